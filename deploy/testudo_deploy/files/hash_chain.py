"""A chain of hashes over the messages of a bag, as its recorder wrote them.

Every half second the recorder writes a checkpoint: a metadata record with the hash of the hash before and of all
messages since then, in their order. So a changed, missing, inserted or moved message breaks the checkpoint behind it,
and a bag that ends early is proven up to its last checkpoint. Short checksums of the messages say which one it was.

Without a key this shows accidents and partial changes: who rewrites the whole file can compute the chain again. The
code of a fleet key, or the last hash kept elsewhere, shows that, too.
"""

import base64
import binascii
import hashlib
import hmac
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testudo_deploy.authentication.fleet_key import FleetKey

CHAIN_SCHEMA = "testudo/chain/1"
CHAIN_RECORD = "testudo_chain"
"""Name of the metadata records that hold the chain."""
CHAIN_KEY = "testudo_chain"
"""Key of the last hash in `metadata.yaml`."""
_NUMBERS = struct.Struct("<IQQI")  # sequence, time of recording [ns], time of publishing [ns], number of bytes
_TAG = struct.Struct("<I")
_PURPOSE = "run"


@dataclass(frozen=True)
class Checkpoint:
    """One link of the chain; number 0 stands before the first message."""

    number: int
    total: int  # messages of the bag up to here
    tags: tuple[int, ...]  # checksum of each message since the checkpoint before, in their order
    counts: Mapping[str, int]  # messages since then by topic
    previous: bytes  # hash of the checkpoint before
    hash: bytes
    final: bool  # the bag was closed behind it
    code: bytes = b""  # authentication code of the hash by the fleet key; empty without one

    def record(self) -> dict[str, str]:
        """Return the values of its metadata record."""
        return {
            "schema": CHAIN_SCHEMA,
            "number": str(self.number),
            "total": str(self.total),
            "tags": base64.b64encode(b"".join(map(_TAG.pack, self.tags))).decode("ascii"),
            "counts": json.dumps(dict(sorted(self.counts.items())), separators=(",", ":")),
            "previous": self.previous.hex(),
            "hash": self.hash.hex(),
            "final": "yes" if self.final else "no",
            "code": self.code.hex(),
        }

    @classmethod
    def of(cls, record: Mapping[str, str]) -> "Checkpoint":
        """Read a metadata record.

        Raises:
            ValueError: it is not a checkpoint.
        """
        try:
            tags = base64.b64decode(record["tags"], validate=True)
            counts = {str(name): int(count) for name, count in json.loads(record["counts"]).items()}
            if record["schema"] != CHAIN_SCHEMA or record["final"] not in ("yes", "no"):
                raise ValueError(f"expected a record of {CHAIN_SCHEMA}")
            return cls(
                int(record["number"]),
                int(record["total"]),
                struct.unpack(f"<{len(tags) // _TAG.size}I", tags),
                counts,
                bytes.fromhex(record["previous"]),
                bytes.fromhex(record["hash"]),
                record["final"] == "yes",
                bytes.fromhex(record["code"]),
            )
        except (KeyError, TypeError, AttributeError, binascii.Error, struct.error) as error:
            raise ValueError(f"not a checkpoint: {error!r}") from error

    def is_coded_by(self, key: FleetKey) -> bool:
        """Return whether the code is that of a fleet key."""
        return hmac.compare_digest(self.code, _code(key, self.hash))


class Segment:
    """The messages since the last checkpoint; hashing waits until the next one, so that writing costs little."""

    def __init__(self) -> None:
        """Begin without any message."""
        self._names: dict[str, bytes] = {}
        self.topics: list[str] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.size = 0
        """Number of bytes of the messages."""

    def take(self, topic: str, numbers: tuple[int, int, int], data: bytes) -> None:
        """Add a message with its ``numbers``: sequence, time of recording and of publishing [ns]."""
        self.take_all([(topic, numbers, data)])

    def take_all(self, messages: Iterable[tuple[str, tuple[int, int, int], bytes]]) -> None:
        """Add messages, each as `take`."""
        pack, heads, start = _NUMBERS.pack, self.heads, len(self.bodies)
        names, find = self.topics, self._names.get
        bodies = self.bodies
        for topic, numbers, data in messages:
            name = find(topic) or self._names.setdefault(topic, topic.encode() + b"\0")
            names.append(topic)
            heads.append(name + pack(*numbers, len(data)))
            bodies.append(data)
        self.size += sum(map(len, self.bodies[start:]))

    def tags(self) -> tuple[int, ...]:
        """Return the checksum of each message."""
        return tuple(map(zlib.crc32, self.bodies, map(zlib.crc32, self.heads)))

    def hash(self, previous: bytes, number: int, total: int, *, final: bool, first: int = 0) -> bytes:
        """Return the hash of a checkpoint behind the messages from index ``first`` on; see `Checkpoint`."""
        parts = [part for pair in zip(self.heads[first:], self.bodies[first:], strict=True) for part in pair]
        about = f"{CHAIN_SCHEMA} {number} {total} {len(self.heads) - first} {'final' if final else ''}\0".encode()
        return hashlib.sha256(b"".join((previous, about, *parts))).digest()

    def clear(self) -> None:
        """Forget the messages."""
        self.topics.clear()
        self.heads.clear()
        self.bodies.clear()
        self.size = 0


class ChainWriter:
    """Makes the checkpoints of a bag while it is written."""

    def __init__(self, start: bytes, key: FleetKey | None = None) -> None:
        """Begin behind everything that stands before the messages, whose hash is ``start``; see `start_hash`."""
        self._key, self._segment = key, Segment()
        self.take = self._segment.take
        self.last = Checkpoint(0, 0, (), {}, b"", start, final=False, code=_code(key, start))

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the messages since the last checkpoint."""
        return self._segment.size

    def checkpoint(self, *, final: bool = False) -> Checkpoint | None:
        """Return the next checkpoint; None if no message came since the last one, unless it is the final one."""
        segment, last = self._segment, self.last
        if not segment.heads and not final:
            return None
        number, total = last.number + 1, last.total + len(segment.heads)
        found = segment.hash(last.hash, number, total, final=final)
        counts = dict(Counter(segment.topics))
        self.last = Checkpoint(number, total, segment.tags(), counts, last.hash, found, final, _code(self._key, found))
        segment.clear()
        return self.last


def start_hash(
    topics: Iterable[Sequence[str]], enclosed: Iterable[tuple[str, str, bytes]], metadata: Mapping[str, str]
) -> bytes:
    """Return the hash of what stands before the messages.

    Args:
        topics: name, type, encoding, definition, QoS profiles and hash of the type of each.
        enclosed: name, media type and content of each attached file.
        metadata: the record `testudo`.
    """
    files = sorted((name, kind, hashlib.sha256(data).hexdigest()) for name, kind, data in enclosed)
    content = [CHAIN_SCHEMA, sorted([*topic] for topic in topics), files, sorted(metadata.items())]
    return hashlib.sha256(json.dumps(content).encode()).digest()


def _code(key: FleetKey | None, content: bytes) -> bytes:
    return b"" if key is None else hmac.digest(key.derived(_PURPOSE), content, "sha256")
