"""Simulates the driver of one robot: delay, limits and dead-man time of commands.

It brakes by itself when commands stop for the dead-man time or are not finite. It never acts on an old command, so that
a sender that resumes after a pause moves nothing.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from testudo_hardware.motion import motion_model
from testudo_hardware.spec import RobotSpec

_CLIP_TOLERANCE = 1e-9


class DriverReason(StrEnum):
    """Why the driver applies its present command."""

    COMMAND = "command"
    CLIPPED = "clipped"
    START = "start"
    DEAD_MAN = "dead_man"
    NON_FINITE = "non_finite"
    MOTORS_OFF = "motors_off"
    """This and the following for drones only, see `flight_firmware.FlightPhase`."""
    PLANNER = "planner"
    HELD = "held"
    LEVELLED = "levelled"
    ONBOARD_BRAKE = "onboard_brake"
    LOCKED = "locked"


class CommandVerdict(StrEnum):
    """Result of one received command."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"
    BRAKED_NON_FINITE = "braked_non_finite"
    DROPPED_OLD = "dropped_old"
    DROPPED_NOT_NEWER = "dropped_not_newer"
    REFUSED_NON_FINITE = "refused_non_finite"
    """Refused by the link to a drone."""
    LOST = "lost"
    """Lost by the radio to a drone."""


@dataclass(frozen=True)
class AppliedCommand:
    """The command that acts, in the channels of the robot, with its reason."""

    values: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) or (x, y) [m/s] in the body, or (x, y, z) [m/s] in the world."""
    reason: DriverReason
    since_s: float
    """Start time of this command [s]."""
    sentence: str
    """The reason as a sentence."""
    yaw_rate: float = 0.0
    """[rad/s], anticlockwise; of a drone."""


class Driver:
    """Delay, limits and dead-man time of one robot; every time is an argument."""

    def __init__(self, spec: RobotSpec, command_delay_s: float, start_s: float, look_s: float = 0.0) -> None:
        """Start without a command; ``look_s`` [s] is the time between two calls of `advance`."""
        self._model = motion_model(spec)
        self._spec = spec
        self._delay_s, self._look_s = command_delay_s, look_s
        self._queue: deque[tuple[float, AppliedCommand]] = deque()
        self._last_stamp_s = -math.inf
        self.applied = self._zero(DriverReason.START, start_s, "no command yet: the robot stands")
        self.verdicts: Counter[CommandVerdict] = Counter()

    def receive(self, values: Sequence[float], stamp_s: float, received_s: float) -> CommandVerdict:
        """Take a command (D,) sent at ``stamp_s`` that arrives at ``received_s`` [s]."""
        verdict = self._judge(values, stamp_s, received_s)
        self.verdicts[verdict] += 1
        return verdict

    def advance(self, now_s: float) -> AppliedCommand:
        """Return the command that acts at ``now_s`` [s], never decreasing."""
        while self._queue and self._queue[0][0] <= now_s:
            self.applied = self._queue.popleft()[1]
        # the next call would be too late
        self._watch_silence(now_s, self._look_s)
        return self.applied

    def _judge(self, values: Sequence[float], stamp_s: float, received_s: float) -> CommandVerdict:
        size = self._spec.dimension
        if len(values) != size or not all(math.isfinite(value) for value in values):
            self._queue.clear()
            self.applied = self._zero(
                DriverReason.NON_FINITE,
                received_s,
                f"the command is not {size} finite numbers but {[*map(float, values)]}: braking",
            )
            return CommandVerdict.BRAKED_NON_FINITE
        if not abs(received_s - stamp_s) <= self._spec.dead_man_s:  # also true for NaN
            return CommandVerdict.DROPPED_OLD
        if stamp_s <= self._last_stamp_s:
            return CommandVerdict.DROPPED_NOT_NEWER
        self._watch_silence(received_s)
        limited = self._model.limit_command(np.array(values, dtype=float)).tolist()
        clipped = is_clipped(limited, values)
        reason = DriverReason.CLIPPED if clipped else DriverReason.COMMAND
        sentence = "the command, clipped to the limits" if clipped else "the command"
        due_s = received_s + self._delay_s
        self._queue.append((due_s, AppliedCommand(tuple(limited), reason, due_s, sentence)))
        self._last_stamp_s = stamp_s
        return CommandVerdict.CLIPPED if clipped else CommandVerdict.ACCEPTED

    def _watch_silence(self, now_s: float, look_s: float = 0.0) -> None:
        # counted from the stamp: a command with a long delay acts for less time
        if now_s + look_s - self._last_stamp_s <= self._spec.dead_man_s or self._last_stamp_s == -math.inf:
            return
        if self.applied.reason is not DriverReason.DEAD_MAN or self._queue:
            self._queue.clear()
            self.applied = self._zero(
                DriverReason.DEAD_MAN,
                now_s,
                f"no command within the dead-man time of {self._spec.dead_man_s:g} s: braking",
            )

    def _zero(self, reason: DriverReason, since_s: float, sentence: str) -> AppliedCommand:
        return AppliedCommand((0.0,) * self._spec.dimension, reason, since_s, sentence)


def is_clipped(limited: Sequence[float], values: Sequence[float]) -> bool:
    """Return whether a limited command (D,) differs from what was commanded by more than rounding."""
    return max(abs(a - b) for a, b in zip(limited, values, strict=True)) > _CLIP_TOLERANCE
