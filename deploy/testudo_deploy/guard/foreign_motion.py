"""Detects that a robot moves although its guard brakes it: another program commands it, or something pushes it."""

import math
from collections.abc import Sequence

from testudo_hardware.spec import RobotSpec

Point = tuple[float, ...]
_CLEAR_M = 0.01  # beyond the errors of two poses, the robot has moved by at least this
_SOON_S = 0.5  # a motion ends if its robot stays within the errors of two poses for this time
_FASTER = 1.5  # a pose that is farther off than the robot can drive this much faster is a jump of the localisation


class ForeignMotion:
    """The motion of one braked robot on the ground; times are seconds on one clock that the caller injects.

    A robot rests once its brake has acted for the command delay, the hold and the braking time of its file, at the ends
    of the intervals. From then on two poses differ only by their errors. A drone that is braked drifts, which this does
    not judge.
    """

    def __init__(self, spec: RobotSpec) -> None:
        lag, delay = spec.quantities["dynamics.velocity_lag"], spec.quantities["dynamics.command_delay"]
        speed = spec.control_point_speed_m_s
        # after a fifth part of a per cent of the speed is left, the rest of the way is far below the errors
        self._rests_after_s = delay.high + spec.hold_s + 6 * lag.high + speed / spec.acceleration_limit_m_s2
        self._error_m = 2 * spec.position_error_m + _CLEAR_M
        self._fastest_m_s = _FASTER * speed
        self._drove_s = -math.inf
        self._anchor: tuple[float, Point] | None = None
        """Stamp and place since which the robot has not moved."""
        self._moved_s = -math.inf

    def note_sent(self, now_s: float, command: Sequence[float]) -> None:
        """Take a command (D,) that was sent to the driver; zeros are a brake."""
        if any(command):
            self._drove_s, self._anchor = now_s, None

    def see_pose(self, stamp_s: float, position_world: Sequence[float]) -> None:
        """Take a pose (D,) [m] measured at a time; one from before the robot rests is ignored."""
        if not all(abs(value) < math.inf for value in (stamp_s, *position_world)):
            return
        if stamp_s <= self._drove_s + self._rests_after_s:
            return
        place = tuple(position_world)
        if self._anchor is None:
            self._anchor = (stamp_s, place)
            return
        since_s, anchor = self._anchor
        way_m = math.dist(place, anchor)
        if stamp_s <= since_s or way_m <= self._error_m:
            return
        if way_m <= self._error_m + self._fastest_m_s * (stamp_s - since_s):
            self._moved_s = stamp_s
        self._anchor = (stamp_s, place)

    def found(self, now_s: float) -> bool:
        """Return whether the braked robot moved a moment ago."""
        return now_s - self._moved_s < _SOON_S
