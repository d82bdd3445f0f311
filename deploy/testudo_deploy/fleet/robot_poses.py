"""Pose sources of a fleet file: `pose` of each robot, optional.

The default is odometry in the frame `world`, which the whole fleet shares.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from testudo_deploy.fleet.pose_fusion import DRIFT, FusionNoise, left_by_filter
from testudo_deploy.fleet.pose_velocity import filter_delay_s, filter_window_s
from testudo_deploy.fleet.robot_links import FleetError, default_link
from testudo_hardware.links.link_profile import LinkProfile, named
from testudo_hardware.links.wire import WORLD_FRAME
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL

Source = Literal["odom", "odom+initial", "tf", "amcl_pose", "mocap"]
_FRAME = re.compile(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class PoseSource:
    """Source of a robot's poses."""

    source: Source
    frame: str  # frame of the fleet's positions: one for the whole fleet
    sigma_m: float  # standard deviation of the position; the shield uses three of them, with a filter of what it leaves
    max_age_s: float  # the robot brakes on an older pose
    filter: Literal["", "kalman"] = ""  # fuses odometry and localisation, see `pose_fusion`
    yaw_sigma_rad: float = 0.0  # standard deviation of the heading, for the filter
    odometry_drift: float = 0.0  # error of the odometry's way and turn as a share, for the filter


@dataclass(frozen=True)
class PoseEntry:
    """A pose source in the file."""

    source: Source
    frame: str = field(default=WORLD_FRAME, metadata=OPTIONAL)
    sigma: float | None = field(default=None, metadata=OPTIONAL)
    max_age: float | None = field(default=None, metadata=OPTIONAL)
    filter: Literal["", "kalman"] = field(default="", metadata=OPTIONAL)
    yaw_sigma: float | None = field(default=None, metadata=OPTIONAL)
    odometry_drift: float | None = field(default=None, metadata=OPTIONAL)


def default_pose(spec: RobotSpec) -> PoseSource:
    """Return the pose source of a robot whose file names none: odometry in the shared frame, limits of its spec."""
    return PoseSource("odom", WORLD_FRAME, spec.position_error_m / 3, spec.pose_max_age_s)


def pose_source(entry: PoseEntry | None, robot: str, spec: RobotSpec, profile: LinkProfile, where: str) -> PoseSource:
    """Return the pose source of a robot, in a frame that it can share with others.

    Raises:
        FleetError: odometry in the robot's own frame, a source that the link lacks, an error or an age beyond the
            limits of the shield, or a rate of poses that is too low for their age limit.
    """
    at = default_pose(spec)
    if entry is not None:
        at = PoseSource(
            entry.source,
            entry.frame,
            at.sigma_m if entry.sigma is None else entry.sigma,
            at.max_age_s if entry.max_age is None else entry.max_age,
        )
    if entry is not None and entry.filter:
        at = _filtered(entry, at, spec, profile, where)
    elif entry is not None and (entry.yaw_sigma, entry.odometry_drift) != (None, None):
        raise FleetError(f"{where}.pose: found yaw_sigma or odometry_drift, expected them with `filter: kalman` only")
    if not _FRAME.fullmatch(at.frame):
        raise FleetError(f"{where}.pose.frame: found {at.frame!r}, expected the name of a frame")
    _check_frame(at, robot, profile, where)
    if not at.filter and not 0 <= 3 * at.sigma_m <= spec.position_error_m * (1 + 1e-9):
        raise FleetError(
            f"{where}.pose.sigma: found {at.sigma_m:g} m, expected 0 to {spec.position_error_m / 3:g} m: "
            f"three sigma within sensing.position_error of {spec.name}; a filter allows more (`filter: kalman`)"
        )
    if not 0 < at.max_age_s <= spec.pose_max_age_s * (1 + 1e-9):
        raise FleetError(
            f"{where}.pose.max_age: found {at.max_age_s:g} s, expected above 0 and at most "
            f"{spec.pose_max_age_s:g} s: sensing.pose_max_age of {spec.name}"
        )
    if entry is not None or profile != default_link().profile:
        _check_rate(at, spec, profile, where)
    return at


def _filtered(entry: PoseEntry, at: PoseSource, spec: RobotSpec, profile: LinkProfile, where: str) -> PoseSource:
    """Return a pose source with a filter.

    Raises:
        FleetError: a robot or a source that it is not made for, numbers out of range, or noise of which it leaves more
            than the robot file states.
    """
    if spec.kind != DIFFERENTIAL_DRIVE or at.source not in ("odom", "tf", "amcl_pose"):
        raise FleetError(
            f"{where}.pose.filter: found {entry.filter} for source {at.source} of a {spec.kind}, expected a "
            f"{DIFFERENTIAL_DRIVE} with source odom, tf or amcl_pose: the filter fuses odometry with localisation"
        )
    yaw_sigma = spec.yaw_error_rad / 3 if entry.yaw_sigma is None else entry.yaw_sigma
    drift = DRIFT if entry.odometry_drift is None else entry.odometry_drift
    for key, value, unit, most in (
        ("sigma", at.sigma_m, " m", 1.0),
        ("yaw_sigma", yaw_sigma, " rad", 1.0),
        ("odometry_drift", drift, "", 0.3),
    ):
        if not 0 < value <= most:
            raise FleetError(f"{where}.pose.{key}: found {value:g}{unit}, expected above 0 and at most {most:g}{unit}")
    noise = FusionNoise(at.sigma_m, yaw_sigma, drift)
    if at.source == "odom":
        rate_hz = 0.0 if profile.odometry is None else profile.odometry.rate.value
        left_m, left_rad = left_by_filter(spec, noise, rate_hz)
        if 3 * left_m > spec.position_error_m or 3 * left_rad > spec.yaw_error_rad:
            raise FleetError(
                f"{where}.pose.filter: leaves {left_m:.3g} m and {left_rad:.3g} rad of these errors at full speed, "
                f"expected a third of sensing.position_error and yaw_error of {spec.name} at most, that is "
                f"{spec.position_error_m / 3:.3g} m and {spec.yaw_error_rad / 3:.3g} rad; state larger errors in the "
                "robot file, or get a better localisation"
            )
    return replace(at, filter=entry.filter, yaw_sigma_rad=yaw_sigma, odometry_drift=drift)


def check_tracking(poses: Mapping[str, PoseSource], file: Path) -> None:
    """Refuse wheel odometry in a fleet with a tracking system, and noise that only a filter makes small enough.

    Raises:
        FleetError: a source that does not come from outside the robot, or one with a filter: peers take raw poses.
    """
    for robot, pose in poses.items():
        source = pose.source
        if pose.filter:
            raise FleetError(
                f"{file}: robots.{robot}.pose.filter: found {pose.filter} with `tracking: true`, expected none: the "
                "other robots take its poses as they are measured"
            )
        if source not in ("odom", "mocap"):
            raise FleetError(
                f"{file}: robots.{robot}.pose.source: found {source}, expected mocap, or odometry in the "
                "shared frame: with `tracking: true` every pose comes from a tracking system"
            )


def check_shared_frame(frames: Mapping[str, str], file: Path) -> None:
    """Refuse robots whose poses are in different frames; ``frames`` by robot.

    Raises:
        FleetError: two frames.
    """
    first, shared = next(iter(frames.items()))
    for robot, frame in frames.items():
        if frame != shared:
            raise FleetError(
                f"{file}: robots.{robot}.pose.frame: found {frame!r}, expected {shared!r} as for {first}: "
                "one frame is shared by the whole fleet"
            )


def pose_tables(pose: PoseSource, spec: RobotSpec) -> dict[str, Any]:
    """Return the entry `pose` of a fleet file, empty for the default."""
    if pose == default_pose(spec):
        return {}
    sigma, max_age = float(pose.sigma_m), float(pose.max_age_s)
    tables: dict[str, Any] = {"source": pose.source, "frame": pose.frame, "sigma": sigma, "max_age": max_age}
    if pose.filter:
        tables |= {"filter": pose.filter, "yaw_sigma": pose.yaw_sigma_rad, "odometry_drift": pose.odometry_drift}
    return {"pose": tables}


def _check_frame(at: PoseSource, robot: str, profile: LinkProfile, where: str) -> None:
    own = None if profile.odometry is None else named(profile.odometry.frame.value, robot)
    if at.source == "mocap":
        if profile.pose is None:
            raise FleetError(
                f"{where}.pose.source: found mocap, expected a link with [pose], which {profile.name!r} lacks"
            )
    elif own is None:
        raise FleetError(
            f"{where}.pose.source: found {at.source}, expected mocap: link {profile.name!r} has no odometry"
        )
    if at.source == "odom" and own != at.frame:
        raise FleetError(
            f"{where}.pose.source: found odom, which is in {own!r} and not in the shared frame "
            f"{at.frame!r}; expected odom+initial, which places it at initial_position, or tf, amcl_pose "
            "or mocap"
        )
    if at.source != "odom" and own == at.frame:
        raise FleetError(
            f"{where}.pose.frame: found {at.frame!r}, in which the odometry of link {profile.name!r} "
            f"is already; expected source odom, or another frame for {at.source}"
        )


def _check_rate(at: PoseSource, spec: RobotSpec, profile: LinkProfile, where: str) -> None:
    rate_hz, lag_s, what = profile.odometry.rate.value if profile.odometry else 0.0, 0.0, "odometry"
    if at.source == "mocap":
        rate_hz, what = profile.pose_of(spec.name).rate.value, "poses, whose velocities lag by the filter,"
        lag_s = filter_delay_s(rate_hz, filter_window_s(spec, rate_hz, at.sigma_m, at.max_age_s))
    oldest_s = 1 / rate_hz + lag_s
    if oldest_s > at.max_age_s:
        raise FleetError(
            f"{where}.pose.max_age: found {at.max_age_s:g} s, expected at least {oldest_s:.3g} s: link "
            f"{profile.name!r} sends {what} at {rate_hz:g} Hz"
        )
