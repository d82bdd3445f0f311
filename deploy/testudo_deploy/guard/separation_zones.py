"""Speed-and-separation zones from a laser scanner, in front of everything else; pure, plain numbers.

The protective separation distance is that of ISO/TS 15066, 5.5.4, with the approach speed and the intrusion distance of
ISO 13855: nearer than that for a robot at rest it stops, and up to that at full speed its speed is limited. Ranges are
read by REP 117: -inf is an object too near to measure, +inf is none, NaN is unknown.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from testudo_hardware.spec import RobotSpec

ZoneCode = Literal["", "scan_silent", "scan_near"]
HUMAN_SPEED_M_S = 2.0  # ISO 13855: the highest approach speed of a part of a body, K
LEG_M = 0.05  # ISO 13855: detection capability for legs; a wider sector without ranges may hide one
_REST_M_S = 0.01  # a slower robot stands
_RESUME_M = 0.1  # beyond the protective distance, so that noise does not start and stop the robot
_ROUNDS = 20
_LOOKS_RAD = 0.35  # the scanner must see so far to both sides of the direction of motion
_CLOCK_S = 0.002
_LEAST_STEP_RAD = 1e-4

Point = tuple[float, float]


@dataclass(frozen=True)
class ScannerParameters:
    """A laser scanner on a robot on the ground, and the people around it."""

    period_s: float  # longest time from one scan to the next
    error_m: float  # largest error of a range: Z_d
    height_m: float  # of its plane above the floor
    mount: tuple[float, float, float] = (0.0, 0.0, 0.0)  # x [m], y [m] and yaw [rad] on the robot
    human_speed_m_s: float = HUMAN_SPEED_M_S
    intrusion_m: float | None = None  # C; None is that of ISO 13855 for the height

    @property
    def reach_over_m(self) -> float:
        """Return C: how far a body reaches beyond where it is seen; ISO 13855, parallel approach, in metres."""
        return max(1.2 - 0.4 * self.height_m, 0.85) if self.intrusion_m is None else self.intrusion_m

    @property
    def silent_after_s(self) -> float:
        """Return the age of a scan from which on the scanner is silent: one scan may be lost."""
        return 2.5 * self.period_s


@dataclass(frozen=True)
class Scan:
    """One scan, in the frame of the scanner."""

    stamp_s: float  # on the clock of the caller
    angle_min: float  # [rad]
    angle_increment: float  # [rad]
    range_min_m: float
    range_max_m: float
    ranges_m: Sequence[float]  # (N,)

    @property
    def is_valid(self) -> bool:
        """Return whether its geometry makes sense."""
        numbers = (self.stamp_s, self.angle_min, self.angle_increment, self.range_min_m, self.range_max_m)
        finite = all(abs(number) < math.inf for number in numbers)
        angles = abs(self.angle_increment) >= _LEAST_STEP_RAD and abs(self.angle_min) <= 4 * math.pi
        return finite and angles and 0 <= self.range_min_m < self.range_max_m and len(self.ranges_m) > 0

    @property
    def is_circle(self) -> bool:
        """Return whether the last beam is beside the first."""
        return len(self.ranges_m) * abs(self.angle_increment) >= 2 * math.pi - 1.5 * abs(self.angle_increment)

    @property
    def longest_unknown(self) -> int:
        """Return the most beams side by side without a known range; of a circle also over its seam."""
        count, longest, run = len(self.ranges_m), 0, 0
        for k in range(2 * count if self.is_circle else count):
            run = 0 if self.is_known(self.ranges_m[k % count]) else run + 1
            longest = max(longest, run)
        return longest

    def is_known(self, range_m: float) -> bool:
        """Return whether a range says something: infinite, or within the limits of the scanner."""
        return abs(range_m) == math.inf or self.range_min_m <= range_m <= self.range_max_m


class SeparationZones:
    """The zones of one robot; times are seconds on one clock that the caller injects."""

    def __init__(
        self, spec: RobotSpec, scanner: ScannerParameters, is_background: Callable[[Point], bool] = lambda _: False
    ) -> None:
        """Begin without a scan, which is silence.

        ``is_background`` takes a point on the robot's axes [m], and returns whether a wall or known obstacle is there.
        """
        self._spec, self._scanner, self._is_background = spec, scanner, is_background
        self._scan: Scan | None = None
        self._distance_m = -math.inf  # of the nearest object from the robot's body, as far as the scan sees
        self._stopped = True
        self._speed_m_s = 0.0

    @property
    def speed_m_s(self) -> float:
        """Return the highest speed that the newest scan permits."""
        return self._speed_m_s

    def hear_scan(self, scan: Scan, now_s: float) -> bool:
        """Take a scan; return whether it is one: of the present, with a geometry, and with few unknown ranges."""
        is_new = self._scan is None or scan.stamp_s > self._scan.stamp_s
        is_present = -_CLOCK_S <= now_s - scan.stamp_s < self._scanner.silent_after_s
        if not scan.is_valid or not is_new or not is_present or self._hides_a_leg(scan):
            return False
        self._scan = scan
        self._distance_m = min(self._distances_m(scan), default=self._sight_m(scan))
        self._distance_m = min(self._distance_m, self._sight_m(scan))
        at_rest_m = self.protective_distance_m(0.0)
        self._stopped = self._distance_m < at_rest_m + (_RESUME_M if self._stopped else 0.0)
        self._speed_m_s = 0.0 if self._stopped else self._permitted_m_s()
        return True

    def code(self, now_s: float) -> ZoneCode:
        """Return the code for which the robot must stand; empty if it may move at `speed_m_s`."""
        if self._scan is None or now_s - self._scan.stamp_s >= self._scanner.silent_after_s:
            return "scan_silent"
        return "scan_near" if self._stopped else ""

    def share(self, command: Sequence[float]) -> float:
        """Return the share of a command (2,) that is slow enough: with it all channels shrink, so the path stays."""
        speed_m_s = self._translation_m_s(command)
        return 1.0 if speed_m_s <= self._speed_m_s else self._speed_m_s / speed_m_s

    def is_blind(self, command: Sequence[float]) -> bool:
        """Return whether a command (2,) moves the robot in a direction in which its scanner does not look."""
        if self._translation_m_s(command) < _REST_M_S or self._scan is None or self._scan.is_circle:
            return False
        drives = self._spec.wheel_base_m > 0  # NaN for a holonomic base
        heading = (0.0 if command[0] > 0 else math.pi) if drives else math.atan2(command[1], command[0])
        scan, first = self._scan, self._scan.angle_min + self._scanner.mount[2]
        width = (len(scan.ranges_m) - 1) * scan.angle_increment
        middle, half = first + width / 2, abs(width) / 2
        return abs(math.remainder(heading - middle, 2 * math.pi)) > half - _LOOKS_RAD

    def protective_distance_m(self, speed_m_s: float) -> float:
        """Return the distance from a person at which a robot at a speed must begin to stop.

        S = v_human (T_reaction + T_stop) + v_robot T_reaction + stopping way + C + errors of scanner and place.
        """
        spec, scanner = self._spec, self._scanner
        lag_s = spec.quantities["dynamics.velocity_lag"].high
        speed = speed_m_s * spec.quantities["dynamics.speed_scale"].high
        reaction_s = 2 * scanner.period_s + spec.control_period_s + spec.quantities["dynamics.command_delay"].high
        stop_s, stop_m = _stop(speed, lag_s, spec.acceleration_limit_m_s2)
        human_m = scanner.human_speed_m_s * (reaction_s + stop_s)
        return human_m + speed * reaction_s + stop_m + scanner.reach_over_m + scanner.error_m + spec.position_error_m

    def _permitted_m_s(self) -> float:
        """Return the highest speed whose protective distance is free."""
        low, high = 0.0, self._spec.speed_limit_m_s
        if self.protective_distance_m(high) <= self._distance_m:
            return high
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.protective_distance_m(middle) <= self._distance_m else (low, middle)
        return low

    def _translation_m_s(self, command: Sequence[float]) -> float:
        return abs(command[0]) if self._spec.wheel_base_m > 0 else math.hypot(*command)

    def _sight_m(self, scan: Scan) -> float:
        """Return how far from the robot's body the scanner sees for certain."""
        return scan.range_max_m - math.hypot(*self._scanner.mount[:2]) - self._spec.body_radius_m

    def _distances_m(self, scan: Scan) -> Iterator[float]:
        """Yield the distances of all objects from the robot's body; zero for one too near to measure."""
        x, y, yaw = self._scanner.mount
        for k, range_m in enumerate(scan.ranges_m):
            if range_m == -math.inf:
                yield 0.0
            if not range_m < math.inf or not scan.is_known(range_m):
                continue
            angle = yaw + scan.angle_min + k * scan.angle_increment
            point = (x + range_m * math.cos(angle), y + range_m * math.sin(angle))
            if not self._is_background(point):
                yield max(math.hypot(*point) - self._spec.body_radius_m, 0.0)

    def _hides_a_leg(self, scan: Scan) -> bool:
        """Return whether beams side by side without a known range leave room for a leg at the protective distance."""
        width_m = self.protective_distance_m(0.0) * abs(scan.angle_increment)
        return scan.longest_unknown > math.floor(LEG_M / width_m)


def _stop(speed_m_s: float, lag_s: float, limit_m_s2: float) -> tuple[float, float]:
    """Return time and way until a robot stands (`_REST_M_S`), with its lag and its limit of deceleration."""
    if speed_m_s <= _REST_M_S:
        return 0.0, lag_s * speed_m_s
    corner = min(speed_m_s, limit_m_s2 * lag_s)  # above it the deceleration is limited, below it decays
    time_s = (speed_m_s - corner) / limit_m_s2 + lag_s * math.log(max(corner / _REST_M_S, 1.0))
    return time_s, (speed_m_s**2 - corner**2) / (2 * limit_m_s2) + lag_s * corner
