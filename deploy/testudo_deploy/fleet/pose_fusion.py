"""Odometry fused with noisy localisation: an extended Kalman filter of one robot's pose, for `pose: {filter: kalman}`.

Odometry moves the pose, each localisation corrects it by its share (Thrun, Burgard and Fox, Probabilistic Robotics,
chapter 3.3; state and covariance of x, y and yaw, as in robot_localization). It removes noise that is independent from
one localisation to the next, and nothing else: a bias stays, and is part of `sensing.position_error`.

It promises what the robot file states and gives no pose otherwise: three standard deviations of its own estimate must
be within `sensing.position_error` and `sensing.yaw_error`. A localisation that its noise cannot explain starts it anew
there, so that the robot brakes until the new place is steady, as without a filter.
"""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from testudo_deploy.fleet.pose_velocity import FilteredPose
from testudo_hardware.frames import PlanarTransform, wrapped
from testudo_hardware.links.wire import Measurement, OdometryReading, PoseReading, TransformReading
from testudo_hardware.spec import RobotSpec

SIGMAS = 3.0  # standard deviations of the estimate that the errors of the robot file must hold
DRIFT = 0.01  # of odometry whose file states none: encoders and a gyroscope on a hard floor
_GATE = 37.3  # squared Mahalanobis distance of three numbers that noise exceeds once in 25 million times
_HISTORY_S = 2.0
_GAP_S = 0.5  # velocities farther apart do not tell the way between them
_FASTER, _STEP_M = 1.5, 0.05
"""Odometry that moves by more than this share of top speed, and this way, was set to another place."""
TRANSFORM_MAX_AGE_S = 1.0  # largest age of a transform; localisations repeat it
AHEAD_S = 1.0
"""A localisation may stamp a correction ahead by its tolerance (amcl: 1 s); further ahead its clock is wrong."""
_ROUNDING_S = 0.002  # odometry that is stamped later after its arrival is of the future
_LARGEST = 1e12
_SETTLES_S = 8.0  # after this time the deviation of a filter no longer changes


@dataclass(frozen=True)
class FusionNoise:
    """What the filter assumes: standard deviations of one localisation, and errors of the odometry."""

    position_sigma_m: float  # of each coordinate
    yaw_sigma_rad: float
    drift: float
    """Error of way and turn of the odometry after 1 m or 1 rad, as a share; it grows with the root of both."""


@dataclass(frozen=True)
class _Body:
    """Where the odometry said that the robot was."""

    stamp_s: float
    place: PlanarTransform


class FusedOdometry:
    """Implements `Localiser` for sources `odom`, `tf` and `amcl_pose` of a differential drive.

    With ``absolute`` odometry (source `odom`) the pose of each message is a localisation, and its velocity moves the
    robot in between. Otherwise the pose of the odometry moves it, and poses or transforms are localisations.
    """

    def __init__(self, spec: RobotSpec, noise: FusionNoise, *, absolute: bool) -> None:
        """Wait for localisations: the first pose comes when they are enough for the errors of the robot file."""
        self._spec, self._noise, self._absolute = spec, noise, absolute
        self._measured = np.diag([noise.position_sigma_m**2] * 2 + [noise.yaw_sigma_rad**2])
        self._history: deque[_Body] = deque()
        self._frame: PlanarTransform | None = None
        """Pose of the odometry's frame in the shared one."""
        self._covariance = self._measured  # (3, 3) of the robot's pose at the newest odometry, in the shared frame
        self._velocity: tuple[float, ...] = ()
        self._pending: PoseReading | None = None
        self._transform: PlanarTransform | None = None
        self._seen_s = -math.inf  # stamp of the newest localisation
        self._corrected_s = -math.inf  # when a transform was last sent, by its stamp or arrival
        self.refused = 0
        """Localisations that were not finite, late, of the future, or without stored odometry, and late or future
        odometry."""
        self.restarts = 0
        """How often it dropped the place that it had given: a localisation was too far off for its noise, or odometry
        was set to another place. After a gap the last pose is too old anyway."""

    @property
    def deviation(self) -> tuple[float, float]:
        """Return the standard deviations of position [m], in its worst direction, and yaw [rad]; infinite at first."""
        if self._frame is None:
            return math.inf, math.inf
        along, across, both = self._covariance[0, 0], self._covariance[1, 1], self._covariance[0, 1]
        worst = (along + across) / 2 + math.hypot((along - across) / 2, both)
        return math.sqrt(worst), math.sqrt(self._covariance[2, 2])

    def take(self, reading: Measurement, received_s: float) -> FilteredPose | None:
        """Take odometry, which moves the pose, or a pose, which only corrects it."""
        if isinstance(reading, PoseReading):
            newest_s = self._history[-1].stamp_s if self._history else math.inf
            if newest_s < reading.stamp_s <= newest_s + AHEAD_S:
                self._pending = reading  # its odometry has not arrived yet
            else:
                self._localise(reading.stamp_s, _planar(reading))
            return None
        numbers = (reading.stamp_s, reading.yaw, *reading.position_world, *reading.velocity)
        if not all(abs(number) < _LARGEST for number in numbers):
            return FilteredPose(reading, 0.0)  # for the control loop to refuse and count
        # one of the future would look like a gap, and what follows it like late odometry
        if reading.stamp_s > received_s + _ROUNDING_S or not self._move(reading):
            self.refused += 1
            return None
        if self._absolute:
            self._localise(reading.stamp_s, _planar(reading))
        elif self._pending is not None and self._pending.stamp_s <= reading.stamp_s:
            self._localise(self._pending.stamp_s, _planar(self._pending))
            self._pending = None
        return self._result(reading)

    def correct(self, transform: TransformReading, received_s: float) -> None:
        """Take the pose of the odometry's frame in the shared one; one that is only repeated tells nothing new."""
        found = transform.placement
        if not all(
            abs(number) < _LARGEST for number in (transform.stamp_s, received_s, found.yaw, *found.position)
        ) or (transform.stamp_s > received_s + AHEAD_S):
            self.refused += 1
            return
        self._corrected_s = min(transform.stamp_s, received_s)
        if self._transform == found:
            return
        body = self._body_at(min(transform.stamp_s, self._history[-1].stamp_s)) if self._history else None
        if body is None:
            self.refused += 1
            return
        self._transform = found
        self._localise(min(transform.stamp_s, self._history[-1].stamp_s), found.then(body))

    def _move(self, reading: OdometryReading) -> bool:
        """Move the pose by odometry; False for a message that is not newer."""
        before = self._history[-1] if self._history else None
        elapsed_s = math.inf if before is None else reading.stamp_s - before.stamp_s
        if -_HISTORY_S <= elapsed_s <= 0:
            return False
        if before is None or not 0 < elapsed_s <= (_GAP_S if self._absolute else _HISTORY_S):
            self._restart(reading)
            return True
        if not self._absolute and self._was_reset(before.place, reading, elapsed_s):
            self.restarts += self._frame is not None
            self._restart(reading)
            return True
        place = self._reckoned(before.place, reading, elapsed_s) if self._absolute else _planar(reading)
        if self._frame is not None:
            self._grow(before.place, place, elapsed_s)
        self._history.append(_Body(reading.stamp_s, place))
        self._velocity = reading.velocity
        while reading.stamp_s - self._history[0].stamp_s > _HISTORY_S:
            self._history.popleft()
        return True

    def _restart(self, reading: OdometryReading) -> None:
        """Begin again: the first odometry, one after a long gap, or one of a clock that was set back."""
        self._history.clear()
        self._history.append(_Body(reading.stamp_s, _planar(reading)))
        self._velocity = reading.velocity
        self._frame, self._transform, self._pending, self._seen_s = None, None, None, -math.inf

    def _was_reset(self, before: PlanarTransform, reading: OdometryReading, elapsed_s: float) -> bool:
        """Return whether the odometry moved farther than the robot can, such as after a restart of its base."""
        farthest_m = _FASTER * self._spec.control_point_speed_m_s * elapsed_s + _STEP_M
        return math.dist(before.position, reading.position_world) > farthest_m

    def _reckoned(self, place: PlanarTransform, reading: OdometryReading, elapsed_s: float) -> PlanarTransform:
        """Return where the mean of two velocities leads from a place of the reckoning."""
        mean = [0.5 * (one + other) for one, other in zip(self._velocity, reading.velocity, strict=True)]
        turn = mean[1] * elapsed_s
        way = (math.cos(turn / 2) * mean[0] * elapsed_s, math.sin(turn / 2) * mean[0] * elapsed_s)
        return place.then(PlanarTransform(way, turn))

    def _grow(self, before: PlanarTransform, now: PlanarTransform, elapsed_s: float) -> None:
        """Add what the odometry may be wrong by on its way between two places of its frame."""
        frame = self._frame
        if frame is None:
            return
        start, end = frame.then(before).position, frame.then(now).position
        x, y = end[0] - start[0], end[1] - start[1]
        jacobian = np.array([[1.0, 0.0, -y], [0.0, 1.0, x], [0.0, 0.0, 1.0]])
        way, turn = math.hypot(x, y), abs(wrapped(now.yaw - before.yaw))
        along, about = self._noise.drift**2 * way, self._noise.drift**2 * (turn + way)
        if self._absolute:  # noise of the velocities, a third of their bound, and how they changed in between
            rim = self._spec.velocity_error_m_s / SIGMAS * elapsed_s
            along += rim**2 + (self._spec.acceleration_limit_m_s2 * elapsed_s**2 / 8) ** 2
            about += (2 * rim / self._spec.wheel_base_m) ** 2
        self._covariance = jacobian @ self._covariance @ jacobian.T + np.diag([along, along, about])

    def _localise(self, stamp_s: float, seen: PlanarTransform) -> None:
        """Correct the pose by one localisation of an earlier moment."""
        finite = all(abs(number) < _LARGEST for number in (stamp_s, seen.yaw, *seen.position))
        body = self._body_at(stamp_s) if finite else None
        if body is None or 0 <= self._seen_s - stamp_s <= _HISTORY_S:
            self.refused += 1
            return
        self._seen_s = stamp_s
        if self._frame is None:
            self._begin(seen, body)
            return
        newest = self._frame.then(self._history[-1].place)
        expected = self._frame.then(body)
        x, y = (one - other for one, other in zip(newest.position, expected.position, strict=True))
        observes = np.array([[1.0, 0.0, y], [0.0, 1.0, -x], [0.0, 0.0, 1.0]])  # of the newest pose, at that moment
        off = np.array([*np.subtract(seen.position, expected.position), wrapped(seen.yaw - expected.yaw)])
        spread = observes @ self._covariance @ observes.T + self._measured
        if off @ np.linalg.solve(spread, off) > _GATE:
            self.restarts += 1
            self._begin(seen, body)
            return
        gain = np.linalg.solve(spread, observes @ self._covariance).T
        shift = (gain @ off).tolist()
        keeps = np.eye(3) - gain @ observes
        self._covariance = keeps @ self._covariance @ keeps.T + gain @ self._measured @ gain.T
        place = tuple(here + part for here, part in zip(newest.position, shift[:2], strict=True))
        moved = PlanarTransform(place, wrapped(newest.yaw + shift[2]))
        self._frame = moved.then(self._history[-1].place.inverse())

    def _begin(self, seen: PlanarTransform, body: PlanarTransform) -> None:
        self._frame, self._covariance = seen.then(body.inverse()), self._measured

    def _body_at(self, stamp_s: float) -> PlanarTransform | None:
        """Return the place by odometry at a time, interpolated between samples; None outside of them."""
        stamps = [one.stamp_s for one in self._history]
        k = bisect_right(stamps, stamp_s)
        if k == 0 or (k == len(stamps) and stamp_s > stamps[-1]):
            return None
        before = self._history[k - 1]
        if stamp_s == before.stamp_s:
            return before.place
        after = self._history[k]
        share = (stamp_s - before.stamp_s) / (after.stamp_s - before.stamp_s)
        step = before.place.inverse().then(after.place)
        part = PlanarTransform(tuple(share * one for one in step.position), share * step.yaw)
        return before.place.then(part)

    def _result(self, reading: OdometryReading) -> FilteredPose | None:
        """Return the pose, if its own deviation is within the errors of the robot file."""
        frame, (off_m, off_rad), spec = self._frame, self.deviation, self._spec
        if frame is None or SIGMAS * off_m > spec.position_error_m or SIGMAS * off_rad > spec.yaw_error_rad:
            return None
        if self._transform is not None and reading.stamp_s - self._corrected_s > TRANSFORM_MAX_AGE_S:
            return None
        now = frame.then(self._history[-1].place)
        return FilteredPose(replace(reading, position_world=now.position, yaw=now.yaw), 0.0)


def left_by_filter(spec: RobotSpec, noise: FusionNoise, rate_hz: float) -> tuple[float, float]:
    """Return the deviations [m], [rad] that stay while a robot drives, or turns, at full speed and is localised."""
    left: list[tuple[float, float]] = []
    for velocity in ((spec.speed_limit_m_s, 0.0), (0.0, spec.turn_rate_limit_rad_s)):
        filtered = FusedOdometry(spec, noise, absolute=True)
        reckoned = PlanarTransform((0.0, 0.0), 0.0)
        for k in range(round(_SETTLES_S * rate_hz)):
            filtered.take(OdometryReading(k / rate_hz, reckoned.position, reckoned.yaw, velocity), k / rate_hz)
            reckoned = reckoned.then(PlanarTransform((velocity[0] / rate_hz, 0.0), velocity[1] / rate_hz))
        left.append(filtered.deviation)
    return max(one[0] for one in left), max(one[1] for one in left)


def _planar(reading: Measurement) -> PlanarTransform:
    return PlanarTransform(reading.position_world, reading.yaw)
