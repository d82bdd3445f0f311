"""Pose of a robot in the frame that the fleet shares, from the measurements of its pose source (REP-105).

`odom` is continuous and drifts; the shared frame jumps when a localisation corrects it. Odometry relative to the place
of switch-on is placed in the shared frame: once, at the robot's initial pose, or by a localisation, as transform or as
`amcl_pose`. Poses without odometry get their velocity from `pose_velocity`.
"""

import math
from collections import deque
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_fusion import AHEAD_S, TRANSFORM_MAX_AGE_S, FusedOdometry, FusionNoise
from testudo_deploy.fleet.pose_velocity import FilteredPose, VelocityFilter, filter_window_s
from testudo_hardware.frames import PlanarTransform, turned, wrapped
from testudo_hardware.links.wire import Measurement, OdometryReading, PoseReading, TransformReading
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

UNCORRECTED_WAY_M = 1.0
"""Longest distance on odometry alone after an `amcl_pose`, which nav2 sends every 0.25 m by default."""
_HISTORY_S = 2.0
_START_M, _START_RAD = 0.1, 0.2
"""Largest offset from the initial pose before the first drive, with odometry relative to it."""


class Localiser(Protocol):
    """Converts the measurements of one robot's pose source to odometry in the shared frame."""

    restarts: int
    """How often it dropped the place that it had given: the robot must not drive on by that place."""

    def take(self, reading: Measurement, received_s: float) -> FilteredPose | None:
        """Take a measurement, stamped and received on the steady clock; None if it gives no pose now."""

    def correct(self, transform: TransformReading, received_s: float) -> None:
        """Take a transform from the shared frame to that of the odometry, stamped and received on the steady clock."""


def localiser(robot: FleetRobot) -> Localiser:
    """Return the localiser of a robot by its `pose` and `link`."""
    source, profile = robot.pose.source, robot.link.profile
    if robot.pose.filter:
        noise = FusionNoise(robot.pose.sigma_m, robot.pose.yaw_sigma_rad, robot.pose.odometry_drift)
        return FusedOdometry(robot.spec, noise, absolute=source == "odom")
    if source == "odom":
        return PlacedOdometry(robot.spec, None)
    if source == "odom+initial":
        return PlacedOdometry(robot.spec, PlanarTransform(robot.initial_position_world, robot.initial_yaw))
    if source == "mocap":
        rate_hz = profile.pose_of(robot.name).rate.value
        window_s = filter_window_s(robot.spec, rate_hz, robot.pose.sigma_m, robot.pose.max_age_s)
        return PoseOnly(VelocityFilter(robot.spec, rate_hz, window_s))
    return CorrectedOdometry(robot.spec)


def switched_on_at(robot: FleetRobot) -> PlanarTransform | None:
    """Return the pose that odometry must have before the robot first drives; None if any is allowed.

    Only for odometry relative to the initial pose: without a reset there it is wrong, which cannot be detected later.
    """
    if robot.pose.source != "odom+initial":
        return None
    return PlanarTransform(robot.initial_position_world, robot.initial_yaw)


def offset_from_start(start: PlanarTransform, now: PlanarTransform) -> str:
    """Return the offset of a robot from its initial pose as ``code: details``; empty if it is there."""
    away_m, turned_rad = math.dist(start.position, now.position), abs(wrapped(now.yaw - start.yaw))
    if away_m <= _START_M and turned_rad <= _START_RAD:
        return ""
    return f"away_from_start: by {away_m:.2f} m and {turned_rad:.2f} rad"


def placed(reading: OdometryReading, frame: PlanarTransform, spec: RobotSpec) -> OdometryReading:
    """Return odometry relative to ``frame`` in the parent of that frame; velocities in the body do not turn."""
    there = frame.then(PlanarTransform(reading.position_world, reading.yaw))
    velocity = reading.velocity if spec.kind == DIFFERENTIAL_DRIVE else turned(reading.velocity, frame.yaw)
    return OdometryReading(reading.stamp_s, there.position, there.yaw, velocity, reading.tilt_rad)


class PlacedOdometry:
    """Sources `odom` and `odom+initial`: odometry whose frame is fixed in the shared one.

    The frame of the odometry is the place of switch-on, so the robot must be at its initial pose then, or its odometry
    be reset there, see `offset_from_start`. A node that restarts while the robot is away is right about its position,
    but cannot distinguish this from odometry that was never reset.
    """

    restarts = 0

    def __init__(self, spec: RobotSpec, frame: PlanarTransform | None) -> None:
        """Place the frame of the odometry in the shared frame; None if it is the shared frame."""
        self._spec, self._frame = spec, frame

    def take(self, reading: Measurement, received_s: float) -> FilteredPose | None:
        """Return odometry in the shared frame; poses are ignored."""
        if not isinstance(reading, OdometryReading):
            return None
        return FilteredPose(reading if self._frame is None else placed(reading, self._frame, self._spec), 0.0)

    def correct(self, transform: TransformReading, received_s: float) -> None:
        """Do nothing: the frame is fixed."""


class PoseOnly:
    """Source `mocap`: poses in the shared frame, velocities from the filter."""

    restarts = 0  # a jump appears in its poses

    def __init__(self, velocity_filter: VelocityFilter) -> None:
        """Take the filter, which counts refused samples."""
        self.filter = velocity_filter

    def take(self, reading: Measurement, received_s: float) -> FilteredPose | None:
        """Return the fit through the newest poses; odometry is ignored."""
        if not isinstance(reading, PoseReading):
            return None
        located = self.filter.take(reading, received_s)
        return located and replace(located, reading=replace(located.reading, tilt_rad=reading.tilt_rad))

    def correct(self, transform: TransformReading, received_s: float) -> None:
        """Do nothing: poses are in the shared frame."""


class CorrectedOdometry:
    """Sources `tf` and `amcl_pose`: odometry in a frame that a localisation places repeatedly.

    Position and velocity of one moment come from odometry, so a correction adds no delay; it appears as a jump, which
    the control loop refuses if it exceeds the errors of the robot's localisation. `amcl_pose` is published only when
    the robot has moved: after the start of this node set the initial pose in amcl, or request an update.
    """

    restarts = 0  # a jump appears in its poses

    def __init__(self, spec: RobotSpec) -> None:
        """Wait for the first correction, without which there is no pose."""
        self._spec = spec
        self._frame: TransformReading | None = None
        self._by_transform, self._corrected_s = False, 0.0
        self._pending: PoseReading | None = None
        self._history: deque[OdometryReading] = deque()
        self._way_m = 0.0
        self.refused = 0
        """Corrections that were not finite, late, in the future, or without stored odometry."""

    def take(self, reading: Measurement, received_s: float) -> FilteredPose | None:
        """Take odometry, which is placed, or an `amcl_pose`, which only corrects the frame."""
        if isinstance(reading, PoseReading):
            self._take_pose(reading)
            return None
        if all(map(math.isfinite, (reading.stamp_s, reading.yaw, *reading.position_world))):
            self._remember(reading)
        if self._pending is not None and self._history and self._pending.stamp_s <= self._history[-1].stamp_s:
            self._correct_by(self._pending)
        if self._frame is None or not self._holds(reading.stamp_s):
            return None
        return FilteredPose(placed(reading, self._frame.placement, self._spec), 0.0)

    def correct(self, transform: TransformReading, received_s: float) -> None:
        """Take the pose of the odometry's frame in the shared one; localisations may stamp it slightly ahead.

        Its age counts from its stamp or its arrival, whichever is earlier.
        """
        before = self._frame if self._by_transform else None
        late = before is not None and 0 < before.stamp_s - transform.stamp_s <= TRANSFORM_MAX_AGE_S
        numbers = (transform.stamp_s, received_s, transform.placement.yaw, *transform.placement.position)
        if late or not all(map(math.isfinite, numbers)) or transform.stamp_s > received_s + AHEAD_S:
            self.refused += 1
            return
        self._frame, self._by_transform = transform, True
        self._corrected_s = min(transform.stamp_s, received_s)

    def _remember(self, reading: OdometryReading) -> None:
        """Store the odometry of the last seconds, and the distance since the last correction."""
        if self._history:
            elapsed_s = reading.stamp_s - self._history[-1].stamp_s
            if -_HISTORY_S <= elapsed_s <= 0:
                return
            if elapsed_s > 0:
                self._way_m += math.dist(reading.position_world, self._history[-1].position_world)
            else:
                self._history.clear()  # the clock was set back
        self._history.append(reading)
        while reading.stamp_s - self._history[0].stamp_s > _HISTORY_S:
            self._history.popleft()

    def _holds(self, stamp_s: float) -> bool:
        if self._by_transform:
            return stamp_s - self._corrected_s <= TRANSFORM_MAX_AGE_S
        return self._way_m <= UNCORRECTED_WAY_M

    def _take_pose(self, pose: PoseReading) -> None:
        numbers = (pose.stamp_s, pose.yaw, *pose.position_world)
        ahead = bool(self._history) and pose.stamp_s > self._history[-1].stamp_s + AHEAD_S
        if not all(map(math.isfinite, numbers)) or not self._history or ahead:
            self.refused += 1
        elif pose.stamp_s > self._history[-1].stamp_s:
            self._pending = pose  # its odometry has not arrived yet
        else:
            self._correct_by(pose)

    def _correct_by(self, pose: PoseReading) -> None:
        """Place the frame so that the odometry at the stamp of the pose equals the pose."""
        self._pending = None
        body = self._odometry_at(pose.stamp_s)
        before = None if self._by_transform else self._frame
        late = before is not None and 0 <= before.stamp_s - pose.stamp_s <= _HISTORY_S
        if body is None or late:
            self.refused += 1
            return
        there = PlanarTransform(pose.position_world, pose.yaw)
        self._frame = TransformReading(pose.stamp_s, there.then(body.inverse()))
        self._by_transform, self._way_m = False, 0.0

    def _odometry_at(self, stamp_s: float) -> PlanarTransform | None:
        """Return the odometry at a time, interpolated between samples; None outside of them."""
        for before, after in pairwise(self._history):
            if before.stamp_s <= stamp_s <= after.stamp_s:
                share = (stamp_s - before.stamp_s) / (after.stamp_s - before.stamp_s)
                position = tuple(
                    one + share * (other - one)
                    for one, other in zip(before.position_world, after.position_world, strict=True)
                )
                return PlanarTransform(position, wrapped(before.yaw + share * wrapped(after.yaw - before.yaw)))
        return None
