"""Lock-step: rounds of simulated time in which every node finishes before time advances; pure.

A round begins whenever a control period of any robot begins. It has two stages. In ``sense`` the plant has advanced,
all nodes receive what was sent before, and policies tick. In ``act`` guards pass the commands on, and the plant waits
for them. DDS keeps the order of messages within a topic only, so the start of each stage states how many messages of
each topic were sent: every node waits for exactly those. A fleet therefore does the same in every run with the same
seed, at any speed of the machine.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from testudo_deploy.contract.messages import Envelope, EnvelopeError
from testudo_hardware.errors import TestudoError

START_S = 1.0  # simulated time at the start; some tools read a stamp of zero as "the newest"
ANSWER_TIMEOUT_S = 20.0  # a node that does not answer for this time, in real time, ends the run
START_TIMEOUT_S = 110.0  # the same before the first round: on a full computer processes take a minute to start
OPTIONAL_NODES = ("recorder", "task")  # nodes that control does not need; the task where it sends no signals
OPTIONAL_TIMEOUT_S = 5.0
"""After this time, in real time, the run continues without an optional node that does not answer."""
STAGE_TOPIC, DONE_TOPIC, CLOCK_TOPIC = "/lock_step/turn", "/lock_step/done", "/clock"
_ROUNDING_S = 1e-9


class Stage(StrEnum):
    """A part of a round."""

    SENSE = "sense"
    ACT = "act"


_STAGES = dict.fromkeys(("policy", "task", "recorder", "calibration"), Stage.SENSE) | dict.fromkeys(
    ("guard", "station"), Stage.ACT
)


def stage_of(label: str) -> Stage:
    """Return the stage in which a node acts, by its label in the plan: `r0/policy`, `station`.

    Raises:
        TestudoError: the node has no stage.
    """
    kind = label.rpartition("/")[2]
    if kind not in _STAGES:
        raise TestudoError(f"lock_step: node {label!r} has no stage; expected one of {', '.join(_STAGES)}")
    return _STAGES[kind]


@dataclass(frozen=True)
class StageStart(Envelope):
    """Message of the plant that starts a stage."""

    SCHEMA = "testudo/lock_step_turn/1"

    number: int  # of the round, from 0
    stage: str
    time_s: float
    sent: dict[str, int]  # by absolute topic: messages sent so far, which every node receives before it acts

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            EnvelopeError: an unknown stage, a time that is not a float, or invalid counts.
        """
        if self.stage not in Stage or not isinstance(self.time_s, float):
            expected = f"expected {' or '.join(Stage)} and a time [s]"
            raise EnvelopeError(f"{self.SCHEMA}: found stage {self.stage!r} at {self.time_s!r}, {expected}")
        _check_counts(self.SCHEMA, self.number, self.sent)


@dataclass(frozen=True)
class StageDone(Envelope):
    """Answer of a node to `StageStart`; with number -1 it announces that the node is ready."""

    SCHEMA = "testudo/lock_step_done/1"

    node: str  # label in the plan
    number: int
    sent: dict[str, int]  # by absolute topic: messages that this node has sent so far

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            EnvelopeError: invalid counts.
        """
        _check_counts(self.SCHEMA, self.number, self.sent)


def _check_counts(schema: str, number: Any, sent: Any) -> None:
    counts = cast("dict[str, Any]", sent).values() if isinstance(sent, dict) else [None]
    numbers: list[Any] = [number, *counts]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in numbers):
        raise EnvelopeError(f"{schema}: found number {number!r} and counts {sent!r}, expected whole numbers")


class TopicQueues:
    """Received messages by topic, until the stage in which they are delivered."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Any]] = {}
        self._taken: dict[str, int] = {}

    def open(self, topic: str) -> None:
        """Expect messages of a topic; topics are emptied in the order in which they were opened."""
        self._waiting.setdefault(topic, deque())
        self._taken.setdefault(topic, 0)

    def put(self, topic: str, item: Any) -> None:
        """Append a message."""
        self._waiting[topic].append(item)

    def is_complete(self, sent: Mapping[str, int]) -> bool:
        """Return whether all sent messages of every open topic have arrived."""
        return all(self._taken[topic] + len(items) >= sent.get(topic, 0) for topic, items in self._waiting.items())

    def take(self, sent: Mapping[str, int]) -> list[tuple[str, Any]]:
        """Remove and return the messages that are among those sent, by topic and oldest first."""
        found: list[tuple[str, Any]] = []
        for topic, items in self._waiting.items():
            for _ in range(min(sent.get(topic, 0) - self._taken[topic], len(items))):
                self._taken[topic] += 1
                found.append((topic, items.popleft()))
        return found

    def take_all(self) -> list[tuple[str, Any]]:
        """Remove and return every message, by topic and oldest first."""
        return self.take({topic: self._taken[topic] + len(items) for topic, items in self._waiting.items()})


class SimTimer:
    """A timer on simulated time."""

    def __init__(self, period_s: float, callback: Callable[[], None], now_s: float) -> None:
        self._period_s, self._callback, self._now_s = period_s, callback, now_s
        self._due_s = now_s + period_s

    def reset(self) -> None:
        """Restart the period, also after `cancel`."""
        self._due_s = self._now_s + self._period_s

    def cancel(self) -> None:
        """Stop the timer."""
        self._due_s = math.inf

    def advance(self, now_s: float) -> None:
        """Advance the time; calls back once if the period is over."""
        self._now_s = now_s
        if now_s >= self._due_s - _ROUNDING_S:
            self.reset()
            self._callback()


def round_times_s(periods_s: Iterable[float]) -> Iterator[float]:
    """Yield the times [s] at which rounds begin: every multiple of every control period, each once.

    Raises:
        ValueError: no period, or one under 1 ns.
    """
    periods_ns = {round(period_s * 1e9) for period_s in periods_s}
    if not periods_ns or min(periods_ns) < 1:
        raise ValueError(f"found control periods {periods_ns} ns, expected at least one, all over 0")
    now_ns = 0
    while True:
        yield START_S + now_ns * 1e-9
        now_ns = min((now_ns // period_ns + 1) * period_ns for period_ns in periods_ns)


class Rounds:
    """The answers of all nodes in the present stage, and the numbers of messages sent; used by the plant."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """Wait until every node is ready.

        Raises:
            TestudoError: a node has no stage.
        """
        self._nodes = {node: stage_of(node) for node in nodes}
        self._waits_for = set(nodes)
        self._number, self._stage = -1, Stage.ACT
        self.sent: dict[str, int] = {}
        """By absolute topic."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the nodes that have not answered yet."""
        return tuple(sorted(self._waits_for))

    @property
    def stage(self) -> Stage:
        """Return the present stage; before the first round `Stage.ACT`."""
        return self._stage

    def take(self, done: StageDone) -> None:
        """Take an answer; an answer to another stage, or of a node that was not asked, is ignored."""
        if done.node not in self._waits_for or done.number != self._number:
            return
        self._waits_for.discard(done.node)
        self.sent.update(done.sent)

    def drop(self, node: str) -> None:
        """Continue without a node."""
        self._nodes.pop(node)
        self._waits_for.discard(node)

    def start_stage(self, time_s: float) -> StageStart:
        """Begin the next stage and return the message that starts it."""
        self._number += self._stage is Stage.ACT
        self._stage = Stage.SENSE if self._stage is Stage.ACT else Stage.ACT
        self._waits_for = {node for node, stage in self._nodes.items() if stage is self._stage}
        return StageStart(self._number, str(self._stage), time_s, dict(self.sent))
