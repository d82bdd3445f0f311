"""Lock-step: a fleet on simulated time, in rounds that wait for everybody; pure.

A round begins whenever a control period of any robot does. It has two stages. In ``sense`` the plant has moved on and
everybody takes in what was sent before; policies tick. In ``act`` guards pass the commands on, and the plant waits for
them. DDS keeps the order of messages within a topic only, so each stage names how many messages of each topic were
sent: everybody waits for those, and acts on no others. What a fleet does is then the same in every run with the same
seed, however fast the machine is.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testudo_deploy.contract.messages import Envelope, EnvelopeError
from testudo_hardware.errors import TestudoError

START_S = 1.0
"""Where simulated time begins; a stamp of zero means "the newest" to some tools."""
PATIENCE_S = 20.0
"""Who does not answer for so long, in real time, ends the run."""
START_PATIENCE_S = 40.0
"""The same before the first round: processes need some seconds to start."""
SPARE_PATIENCE_S = 5.0
"""The same for those whom control does not need: the run goes on without them."""
SPARE = ("recorder", "task")
"""Nodes that control does not need."""
TURN_TOPIC, DONE_TOPIC, CLOCK_TOPIC = "/lock_step/turn", "/lock_step/done", "/clock"
_ROUNDING_S = 1e-9


class RoundStage(StrEnum):
    """A part of a round."""

    SENSE = "sense"
    ACT = "act"


_STAGES = {
    "policy": RoundStage.SENSE,
    "task": RoundStage.SENSE,
    "recorder": RoundStage.SENSE,
    "guard": RoundStage.ACT,
    "station": RoundStage.ACT,
}


def stage_of(label: str) -> RoundStage:
    """Return the stage in which a node of the plan acts, by its label: `r0/policy`, `station`.

    Raises:
        TestudoError: the node has no part in rounds.
    """
    kind = label.rpartition("/")[2]
    if kind not in _STAGES:
        raise TestudoError(f"lock_step: node {label!r} has no part in it; those that do are {', '.join(_STAGES)}")
    return _STAGES[kind]


@dataclass(frozen=True)
class RoundTurn(Envelope):
    """The plant's call to everybody of one stage."""

    SCHEMA = "testudo/lock_step_turn/1"

    number: int
    """Of the round, from 0."""
    stage: str
    time_s: float
    sent: dict[str, int]
    """By absolute topic: messages sent so far, which are to be taken in before anybody acts."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type.

        Raises:
            EnvelopeError: a stage that is not known, or counts that are none.
        """
        if self.stage not in RoundStage or not isinstance(self.time_s, float):
            raise EnvelopeError(f"{self.SCHEMA}: stage {self.stage!r} at {self.time_s!r} is none")
        _check_counts(self.SCHEMA, self.number, self.sent)


@dataclass(frozen=True)
class RoundDone(Envelope):
    """The answer to a turn; with number -1 the news that a node is there."""

    SCHEMA = "testudo/lock_step_done/1"

    node: str
    """Label in the plan."""
    number: int
    sent: dict[str, int]
    """By absolute topic: messages that this node sent so far."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type.

        Raises:
            EnvelopeError: counts that are none.
        """
        _check_counts(self.SCHEMA, self.number, self.sent)


def _check_counts(schema: str, number: Any, sent: Any) -> None:
    numbers = [number, *(sent.values() if isinstance(sent, dict) else [None])]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in numbers):
        raise EnvelopeError(f"{schema}: number {number!r} or counts {sent!r} are none")


class Mailbox:
    """Messages that have come, by topic, until their turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Any]] = {}
        self._taken: dict[str, int] = {}

    def open(self, topic: str) -> None:
        """Expect messages of a topic; topics are emptied in the order in which they were opened."""
        self._waiting.setdefault(topic, deque())
        self._taken.setdefault(topic, 0)

    def post(self, topic: str, item: Any) -> None:
        """Keep a message."""
        self._waiting[topic].append(item)

    def is_complete(self, sent: Mapping[str, int]) -> bool:
        """Return whether of each open topic as many messages have come as were sent."""
        return all(self._taken[topic] + len(items) >= sent.get(topic, 0) for topic, items in self._waiting.items())

    def take(self, sent: Mapping[str, int]) -> list[tuple[str, Any]]:
        """Return, and forget, the messages that count among those sent, by topic and oldest first."""
        found = []
        for topic, items in self._waiting.items():
            for _ in range(min(sent.get(topic, 0) - self._taken[topic], len(items))):
                self._taken[topic] += 1
                found.append((topic, items.popleft()))
        return found

    def take_all(self) -> list[tuple[str, Any]]:
        """Return, and forget, every message, by topic and oldest first."""
        return self.take({topic: self._taken[topic] + len(items) for topic, items in self._waiting.items()})


class SimTimer:
    """A timer on simulated time."""

    def __init__(self, period_s: float, callback: Callable[[], None], now_s: float) -> None:
        self._period_s, self._callback, self._now_s = period_s, callback, now_s
        self._due_s = now_s + period_s

    def reset(self) -> None:
        """Begin to wait anew, also after `cancel`."""
        self._due_s = self._now_s + self._period_s

    def cancel(self) -> None:
        """Wait no more."""
        self._due_s = math.inf

    def advance(self, now_s: float) -> None:
        """Move on in time; calls back once if the timer has run out."""
        self._now_s = now_s
        if now_s >= self._due_s - _ROUNDING_S:
            self.reset()
            self._callback()


def round_times_s(periods_s: Iterable[float]) -> Iterator[float]:
    """Yield when the rounds begin [s]: at every multiple of every control period, each moment once.

    Args:
        periods_s: of the robots; one period gives rounds of that period.

    Raises:
        ValueError: no period, or one under 1 ns.
    """
    periods_ns = {round(period_s * 1e9) for period_s in periods_s}
    if not periods_ns or min(periods_ns) < 1:
        raise ValueError(f"found control periods {periods_ns} ns, expected some, all over 0")
    now_ns = 0
    while True:
        yield START_S + now_ns * 1e-9
        now_ns = min((now_ns // period_ns + 1) * period_ns for period_ns in periods_ns)


class Rounds:
    """Who has answered in the present stage, and what has been sent; the plant's view."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """Wait for every node to be there.

        Raises:
            TestudoError: a node has no part in rounds.
        """
        self._nodes = {node: stage_of(node) for node in nodes}
        self._waits_for = set(nodes)
        self._number, self._stage = -1, RoundStage.ACT
        self.sent: dict[str, int] = {}
        """By absolute topic."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Return who has not answered yet."""
        return tuple(sorted(self._waits_for))

    @property
    def stage(self) -> RoundStage:
        """Return the present stage; before the first round `RoundStage.ACT`."""
        return self._stage

    def take(self, done: RoundDone) -> None:
        """Take an answer; one to another turn, or of somebody who is not asked, counts for nothing."""
        if done.node not in self._waits_for or done.number != self._number:
            return
        self._waits_for.discard(done.node)
        self.sent.update(done.sent)

    def drop(self, node: str) -> None:
        """Wait for a node no longer."""
        self._nodes.pop(node)
        self._waits_for.discard(node)

    def turn(self, time_s: float) -> RoundTurn:
        """Begin the next stage and return what to tell everybody."""
        self._number += self._stage is RoundStage.ACT
        self._stage = RoundStage.SENSE if self._stage is RoundStage.ACT else RoundStage.ACT
        self._waits_for = {node for node, stage in self._nodes.items() if stage is self._stage}
        return RoundTurn(self._number, str(self._stage), time_s, dict(self.sent))
