"""The scans of a robot's own scanner, for its shield: checked, placed where the robot was, and bounded in age."""

import math
from collections import deque
from dataclasses import replace

import numpy as np

from testudo_deploy.guard.separation_zones import LEG_M, Scan, ScannerParameters
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.reservations import PeerReservations
from testudo_deploy.shield.sensed_bodies import KnownPeers, RangeErrors, SensedBodies, sensed_bodies
from testudo_deploy.shield.stop_tube import StopTubeParameters
from testudo_deploy.shield.stop_tube_check import rest_time_s
from testudo_hardware.motion.motion_state import length
from testudo_hardware.spec import RobotSpec

_PAST_S = 1.0  # for which poses are kept
_CLOCK_S = 0.002
_FASTER = 1.5  # a speed over that of the robot file, which no sound motion has

_Pose = tuple[float, tuple[float, ...], float]


class ScanReceiver:
    """The newest scan of one robot on the ground; times are seconds on one clock that the caller injects."""

    def __init__(
        self, spec: RobotSpec, scanner: ScannerParameters, arena: Arena | None, space: StopTubeParameters
    ) -> None:
        """Begin without a scan, which is silence."""
        self._spec, self._scanner, self._arena, self._space = spec, scanner, arena, space
        self._poses: deque[_Pose] = deque()
        self._waiting: Scan | None = None  # measured after the newest pose
        self._scan: tuple[Scan, tuple[float, ...], float] | None = None  # with the robot's pose when it was measured
        rest_s = float(rest_time_s(spec, np.array(_FASTER * spec.control_point_speed_m_s)))
        moves_m = scanner.human_speed_m_s * (scanner.silent_after_s + rest_s)
        self._sight_m = space.wall_m + moves_m + 2 * _FASTER * spec.control_point_speed_m_s * rest_s
        """Farther bodies cannot reach the robot before it rests."""

    def hear_pose(self, stamp_s: float, position_world: tuple[float, ...], yaw: float) -> None:
        """Take a valid pose; poses come in the order of their times."""
        self._poses.append((stamp_s, position_world, yaw))
        while self._poses[-1][0] - self._poses[0][0] > _PAST_S:
            self._poses.popleft()
        if self._waiting is not None:
            self._place(self._waiting)

    def hear(self, scan: Scan, now_s: float) -> bool:
        """Take a scan; return whether it is one: of the present, all around, and with few unknown ranges."""
        newest = self._waiting or (self._scan[0] if self._scan else None)
        is_new = newest is None or scan.stamp_s > newest.stamp_s
        is_present = -_CLOCK_S <= now_s - scan.stamp_s < self._scanner.silent_after_s
        if not (scan.is_valid and is_new and is_present and scan.is_circle):
            return False
        if scan.longest_unknown * abs(scan.angle_increment) * self._sight_m > LEG_M:
            return False
        self._place(scan)
        return True

    def forget(self) -> None:
        """Forget all, whose times are of another clock."""
        self._poses.clear()
        self._waiting = self._scan = None

    def fault(self, now_s: float) -> str:
        """Return why the robot must brake, ``code: details``; empty if the newest scan may be used."""
        if self._scan is None:
            return "scan_silent: the scanner has sent no valid scan of all around"
        age_s = now_s - self._scan[0].stamp_s
        if -_CLOCK_S <= age_s < self._scanner.silent_after_s:
            return ""
        return f"scan_silent: the newest scan is {age_s:.2f} s old, at most {self._scanner.silent_after_s:g} s"

    def bodies(self, now_s: float, peers: PeerReservations) -> SensedBodies:
        """Return what the newest scan sees that neither map nor a trusted peer's segments explain, near the robot.

        Raises:
            ValueError: there is no scan; see `fault`.
        """
        if self._scan is None:
            raise ValueError("no scan")
        (scan, position, yaw), spec, scanner = self._scan, self._spec, self._scanner
        x, y, turn = scanner.mount
        cos, sin = math.cos(yaw), math.sin(yaw)
        origin = np.array(position, float) + np.array([cos * x - sin * y, sin * x + cos * y])
        angle = yaw + turn + scan.angle_min + scan.angle_increment * np.arange(len(scan.ranges_m))
        ranges = np.array(scan.ranges_m, float)
        known = (np.abs(ranges) == np.inf) | ((ranges >= scan.range_min_m) & (ranges <= scan.range_max_m))
        found = sensed_bodies(
            self._arena,
            self._known(peers),
            origin,
            angle,
            np.clip(ranges, -1.0, scan.range_max_m),  # too near to measure, -inf, is a body at the sensor
            scan.range_max_m,
            RangeErrors(scanner.error_m + spec.position_error_m, abs(scan.angle_increment) / 2 + spec.yaw_error_rad),
            np.array(now_s - scan.stamp_s),
            scanner.human_speed_m_s,
        )
        # an unknown beam is narrower than a leg between two that are known, see `hear`
        near = found.there & known & (length(found.point_world - origin[:, None]) < self._sight_m)
        return replace(found, point_world=found.point_world[:, near], there=near[near])

    def _known(self, peers: PeerReservations) -> KnownPeers:
        """Return the segments of trusted peers, in which their bodies are."""
        segments = np.concatenate([peers.owned_world, peers.announced_world], axis=2)
        space = self._space
        radius_m = self._spec.keep_radius_m + space.segment_reach_m + space.noise_m + self._scanner.error_m
        return KnownPeers(segments[:, :, np.concatenate([peers.reserves, peers.reserves])], radius_m)

    def _place(self, scan: Scan) -> None:
        """Keep a scan with the pose at its time, between two measured ones; one after the newest pose waits."""
        later = next((k for k, pose in enumerate(self._poses) if pose[0] >= scan.stamp_s), None)
        self._waiting = scan if later is None else None
        if later is None:
            return
        after = self._poses[later]
        before = self._poses[later - 1] if later else after
        if before[0] > scan.stamp_s:
            return  # measured before the first pose
        share = (scan.stamp_s - before[0]) / max(after[0] - before[0], 1e-9)
        position = tuple(a + share * (b - a) for a, b in zip(before[1], after[1], strict=True))
        yaw = before[2] + share * math.remainder(after[2] - before[2], 2 * math.pi)
        self._scan = scan, position, yaw
