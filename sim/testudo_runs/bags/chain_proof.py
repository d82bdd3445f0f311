"""Verifies the chain of hashes of a bag while it is read: which messages are as they were recorded, and which are not.

See `testudo_deploy.files.hash_chain` for what a chain shows, and what only a key or a hash kept elsewhere shows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.files.hash_chain import Checkpoint, Segment, start_hash
from testudo_runs.bags.bag_contents import BagMessage, BagTopic, clock_time

_WORDS = {"changed": "changed", "missing": "missing", "inserted": "inserted", "moved": "in another order"}
"""Kinds of deviation, and how a sentence names them."""


@dataclass(frozen=True)
class Deviation:
    """Messages of one topic, between two checkpoints, that are not as they were recorded."""

    kind: str  # changed, missing, inserted or moved
    topic: str  # empty if it is not known
    count: int
    first_ns: int  # time of the first message around it
    last_ns: int

    def __str__(self) -> str:
        """Return it as a sentence."""
        what = "1 message is" if self.count == 1 else f"{self.count} messages are"
        span = f"between {clock_time(self.first_ns)} and {clock_time(self.last_ns)}"
        return f"{self.topic or 'unknown topic'}: {what} {_WORDS[self.kind]} {span}"


@dataclass(frozen=True)
class ChainProof:
    """What the chain of a bag shows."""

    messages: int = 0  # messages of the bag, as read
    proven: int = 0  # those that are as they were recorded
    checkpoints: tuple[Checkpoint, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    faults: tuple[str, ...] = ()  # further faults of the chain, in sentences

    @property
    def exists(self) -> bool:
        """Return whether the bag has a chain."""
        return bool(self.checkpoints)

    @property
    def is_closed(self) -> bool:
        """Return whether the chain was completed: nothing was cut off behind its last checkpoint."""
        return self.exists and self.checkpoints[-1].final

    @property
    def is_whole(self) -> bool:
        """Return whether every message is proven, and none was cut off."""
        return self.is_closed and not self.deviations and not self.faults and self.proven == self.messages

    @property
    def is_contradicted(self) -> bool:
        """Return whether a message was changed, inserted or moved: more than damage, which loses messages."""
        return any(one.kind != "missing" for one in self.deviations)

    @property
    def is_signed(self) -> bool:
        """Return whether the checkpoints hold codes of some key."""
        return self.exists and any(checkpoint.code for checkpoint in self.checkpoints)

    @property
    def last_hash(self) -> str:
        """Return the last hash as hexadecimal digits; empty without a chain."""
        return self.checkpoints[-1].hash.hex() if self.exists else ""

    @property
    def sentence(self) -> str:
        """Return in one sentence what is proven."""
        if not self.exists:
            return (
                "the recording has no chain of hashes (another recorder, or a version before it): changes show only "
                "where its content contradicts itself"
            )
        if self.is_whole:
            return f"chain of hashes: all {self.messages} messages are as recorded; last hash {self.last_hash}"
        rest = self.messages - self.proven
        cut = "" if self.is_closed else f"; recording was cut off after checkpoint {self.checkpoints[-1].number}"
        return f"chain of hashes: {self.proven} of {self.messages} messages are as recorded, {rest} not proven{cut}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return every deviation and fault as a sentence."""
        return (*map(str, self.deviations), *self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "chain": self.exists,
            "whole": self.is_whole,
            "signed": self.is_signed,
            "messages": self.messages,
            "proven": self.proven,
            "last_hash": self.last_hash,
            "deviations": [asdict(deviation) for deviation in self.deviations],
            "faults": list(self.faults),
        }

    def refusals(self, key: FleetKey | None, last_hash: str) -> list[str]:
        """Return what contradicts the fleet key, or the last hash that was kept elsewhere, as sentences."""
        found = []
        if key is not None and not self.exists:
            found.append("the recording has no chain of hashes that the fleet key could have signed")
        if key is not None:
            wrong = [one.number for one in self.checkpoints if not one.is_coded_by(key)]
            if wrong and not self.is_signed:
                found.append("the chain is not signed, expected the codes of the fleet key: the run was rewritten")
            elif wrong:
                found.append(
                    f"checkpoint {wrong[0]} is not signed with this fleet key: a run of another fleet, or rewritten"
                )
        if last_hash and self.last_hash != last_hash.strip().lower():
            found.append(f"the last hash of the chain is {self.last_hash or 'missing'}, expected {last_hash}")
        return found


class ChainReader:
    """Takes the messages and records of one file, in their order; holds no message without a chain."""

    def __init__(self) -> None:
        """Begin without a chain."""
        self._segment = Segment()
        self._checkpoints: list[Checkpoint] = []
        self._deviations: list[Deviation] = []
        self._faults: list[str] = []
        self._enclosed: list[tuple[str, str, bytes]] = []
        self._messages = self._proven = 0
        self._times_ns: list[int] = []
        self._last_ns = 0

    def attach(self, name: str, kind: str, data: bytes) -> None:
        """Take an attached file."""
        self._enclosed.append((name, kind, data))

    def take_all(self, messages: Sequence[BagMessage]) -> None:
        """Take messages in their order."""
        self._messages += len(messages)
        if self._checkpoints:
            self._segment.take_all(
                (topic.name, (sequence, log_ns, publish_ns), data)
                for topic, log_ns, publish_ns, sequence, data, _ in messages
            )
            self._times_ns += [message.log_ns for message in messages]

    def check(self, record: Mapping[str, str]) -> None:
        """Take a checkpoint, and compare it with the messages since the last one."""
        try:
            found = Checkpoint.of(record)
        except ValueError as error:
            self._faults.append(f"a checkpoint of the chain cannot be read ({error})")
            return
        if not self._checkpoints and found.number:
            self._faults.append("the start of the chain is missing")
        elif self._checkpoints:
            self._compare(found, self._checkpoints[-1])
        elif self._messages:
            self._faults.append(f"{self._messages} messages stand before the chain")
        self._checkpoints.append(found)
        self._last_ns = self._times_ns[-1] if self._times_ns else self._last_ns
        self._segment.clear()
        self._times_ns.clear()

    def proof(self, topics: Iterable[BagTopic], facts: Mapping[str, str]) -> ChainProof:
        """Return the result, at the end of the file.

        Args:
            topics: all topics of the file.
            facts: its metadata record `testudo`.
        """
        if self._checkpoints and not self._checkpoints[0].number:
            rows = [(one.name, one.type, one.encoding, one.definition, one.qos, one.type_hash) for one in topics]
            if start_hash(rows, self._enclosed, facts) != self._checkpoints[0].hash:
                self._faults.append(
                    "a topic, a message definition or an attached file is not as it was when recording began"
                )
        after = len(self._segment.topics)
        if after and self._checkpoints[-1].final:
            self._faults.append(f"{after} messages stand behind the end of the chain")
        return ChainProof(
            self._messages, self._proven, tuple(self._checkpoints), tuple(self._deviations), tuple(self._faults)
        )

    def _compare(self, found: Checkpoint, last: Checkpoint) -> None:
        segment, count = self._segment, len(found.tags)
        follows = found.number == last.number + 1 and found.previous == last.hash
        if not follows:
            self._faults.append(f"checkpoint {found.number} does not follow checkpoint {last.number} of the chain")
        # where checkpoints are missing, only the last messages are of this one
        first = 0 if follows else max(len(segment.heads) - count, 0)
        own = segment.hash(found.previous, found.number, found.total, final=found.final, first=first)
        tags = segment.tags()[first:]
        if own == found.hash:
            self._proven += len(tags)
            if tags != found.tags or Counter(segment.topics[first:]) != Counter(dict(found.counts)):
                self._faults.append(f"checkpoint {found.number} was changed: its checksums are not those of its hash")
            return
        deviations = self._deviations_of(found, tags, segment.topics[first:])
        if not deviations:
            self._faults.append(f"checkpoint {found.number} was changed: its hash is not that of its messages")
        self._deviations += deviations

    def _deviations_of(self, found: Checkpoint, tags: tuple[int, ...], topics: list[str]) -> list[Deviation]:
        first_ns = self._last_ns or min(self._times_ns, default=0)
        span = (first_ns, max(self._times_ns, default=first_ns))
        left, foreign = Counter(found.tags), Counter[str]()
        kept = []
        for tag, topic in zip(tags, topics, strict=True):
            if left[tag]:
                left[tag] -= 1
                kept.append(tag)
            else:
                foreign[topic] += 1
        here, deviations = Counter(topics), []
        for topic in sorted(set(found.counts) | set(here)):
            lost = found.counts.get(topic, 0) - (here[topic] - foreign[topic])
            changed = max(min(lost, foreign[topic]), 0)
            for kind, count in (
                ("changed", changed),
                ("missing", lost - changed),
                ("inserted", foreign[topic] - changed),
            ):
                if count > 0:
                    deviations.append(Deviation(kind, topic, count, *span))
        known = Counter(kept)
        order = [tag for tag in found.tags if known[tag]]
        if not deviations and order != kept:
            moved = [topic for was, tag, topic in zip(order, kept, topics, strict=False) if was != tag]
            deviations += [Deviation("moved", topic, count, *span) for topic, count in Counter(moved).items()]
        return deviations
