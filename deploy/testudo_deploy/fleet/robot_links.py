"""Links and pose sources of a fleet file: `host`, `link` and `pose` of each robot, all optional.

The defaults are a robot that a driver of this project or the plant moves on this computer, with odometry in the frame
`world`, which the whole fleet shares.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from testudo_deploy.fleet.pose_fusion import DRIFT, FusionNoise, left_by_filter
from testudo_deploy.fleet.pose_velocity import filter_delay_s, filter_window_s
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import DEFAULT_LINK, LinkProfile, load_link, named
from testudo_hardware.links.signal_wire import TWIST, TWIST_STAMPED, SignalTopic
from testudo_hardware.links.sourced import Sourced
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import WORLD_FRAME
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL, is_table

DRIVER_FILES = ("crazyflies", "motion_capture", "server")  # files of a Crazyswarm2 configuration; the first is required
Source = Literal["odom", "odom+initial", "tf", "amcl_pose", "mocap"]
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_URI = re.compile(r"(radio|usb|udp|tcp|serial)://[\w.:/?=&-]+")
_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
_FRAME = re.compile(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*")


COMMANDED_VELOCITY = "commanded_velocity"
"""Signal of a policy that drives by the commands of another program, see `LinkEntry.commands`."""


class FleetError(TestudoError):
    """A fleet file is invalid: the text names file, key, what was found and what is expected."""


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
class CommandsEntry:
    """Topic of another program, such as nav2, in the file: its commands are the robot's nominal ones."""

    topic: str
    stamped: bool = field(default=False, metadata=OPTIONAL)  # TwistStamped, else Twist, whose age counts from arrival


@dataclass(frozen=True)
class LinkChoice:
    """Link of a robot."""

    name: str  # of a known profile, or the path of a .toml file, relative to the fleet file
    profile: LinkProfile = field(repr=False)
    remappings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topic names of the profile, and their names on this robot."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """Configuration files of its driver by kind (`DRIVER_FILES`), relative to the fleet file."""
    types: tuple[str, ...] = ()
    """Robot types of that configuration that the robot file describes, given at import; empty: unknown."""
    uri: str = ""  # address of the robot's radio, for profiles with a driver of this project
    onboard_brake: bool = False  # the user confirms that the vehicle brakes by itself when its radio is silent
    commands: CommandsEntry | None = None  # topic of another program whose commands the robot follows, shielded

    @property
    def topics(self) -> dict[str, str]:
        """Return the names on this robot of `cmd_vel`, `odom`, `pose` and `battery_state`, if its driver has them."""
        profile = self.profile
        parts = (profile.command, profile.odometry, profile.pose, profile.battery)
        names = ("cmd_vel", "odom", "pose", "battery_state")
        found = {name: part.topic.value for name, part in zip(names, parts, strict=True) if part is not None}
        return {name: self.remappings.get(topic, topic) for name, topic in found.items()}


@dataclass(frozen=True)
class LinkEntry:
    """A link in the file."""

    profile: str
    remappings: dict[str, str] = field(default_factory=dict[str, str], metadata=OPTIONAL)
    config: dict[str, str] = field(default_factory=dict[str, str], metadata=OPTIONAL)
    types: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    uri: str = field(default="", metadata=OPTIONAL)
    onboard_brake: bool = field(default=False, metadata=OPTIONAL)
    commands: CommandsEntry | None = field(default=None, metadata=OPTIONAL)


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


@functools.cache
def default_link() -> LinkChoice:
    """Return the link of a robot whose file names none."""
    return LinkChoice(DEFAULT_LINK, load_link(DEFAULT_LINK))


def default_pose(spec: RobotSpec) -> PoseSource:
    """Return the pose source of a robot whose file names none: odometry in the shared frame, limits of its spec."""
    return PoseSource("odom", WORLD_FRAME, spec.position_error_m / 3, spec.pose_max_age_s)


def spelled_out(values: Any) -> Any:
    """Return a robot's table with a table for a `link` that is a plain name."""
    if is_table(values) and isinstance(values.get("link"), str):
        return {**values, "link": {"profile": values["link"]}}
    return values


def check_host(host: str, where: str) -> str:
    """Return the name of a host; empty is this computer.

    Raises:
        FleetError: not a host name.
    """
    if host and not _HOST.fullmatch(host):
        raise FleetError(f"{where}.host: found {host!r}, expected the name or address of a computer")
    return host


def link_choice(entry: LinkEntry | None, robot: str, spec: RobotSpec, file: Path, where: str) -> LinkChoice:
    """Return the link of a robot; ``file`` is the fleet file, the base of relative paths.

    Raises:
        FleetError: no such profile, an invalid one or one for another kind of robot, a remapping that is no topic name,
            or a URI that is missing or unused.
    """
    if entry is None:
        return default_link()
    try:
        profile = load_link(file.parent / entry.profile if entry.profile.endswith(".toml") else entry.profile)
        CommandWire(robot, spec, profile)  # refuses a link for other kinds of robots
    except TestudoError as error:
        raise FleetError(f"{where}.link: {error}") from error
    if entry.commands is not None:
        profile = _with_commands(profile, entry.commands, where)
    for text in (text for pair in entry.remappings.items() for text in pair):
        if not _TOPIC.fullmatch(text):
            raise FleetError(f"{where}.link.remappings: found {text!r}, expected the name of a topic")
    wrong = [name for name in entry.config if name not in DRIVER_FILES]
    if wrong or (entry.config and (DRIVER_FILES[0] not in entry.config or profile.wire != "crazyswarm2")):
        raise FleetError(
            f"{where}.link.config: found {', '.join(entry.config)} for wire {profile.wire!r}, expected "
            f"{', '.join(DRIVER_FILES)} for wire 'crazyswarm2', the first of them at least"
        )
    if entry.types and not entry.config:
        raise FleetError(
            f"{where}.link.types: found {', '.join(entry.types)}, expected them beside config: they are "
            "robot types of its crazyflies.yaml"
        )
    _check_uri(entry.uri, profile, where)
    return LinkChoice(
        entry.profile,
        profile,
        dict(entry.remappings),
        dict(entry.config),
        entry.types,
        entry.uri,
        entry.onboard_brake,
        entry.commands,
    )


def _with_commands(profile: LinkProfile, commands: CommandsEntry, where: str) -> LinkProfile:
    """Return a link whose topic of another program's commands is a sensor of the signal `COMMANDED_VELOCITY`."""
    if not _TOPIC.fullmatch(commands.topic):
        raise FleetError(f"{where}.link.commands.topic: found {commands.topic!r}, expected the name of a topic")
    source = "fleet file: link.commands"
    topic = SignalTopic(
        Sourced(commands.topic, source),
        Sourced(TWIST_STAMPED if commands.stamped else TWIST, source),
        Sourced("best_effort", source),  # requested, so that any publisher matches
        None if commands.stamped else Sourced(0.0, source),
    )
    return replace(profile, signals={**profile.signals, COMMANDED_VELOCITY: topic})


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


def check_radios(links: Mapping[str, tuple[str, LinkChoice]], file: Path) -> None:
    """Refuse two drones on one radio, which one driver uses; ``links`` by robot: its host, and its link.

    Raises:
        FleetError: one Crazyradio of one computer, or one address, for two robots.
    """
    taken: dict[tuple[str, str], str] = {}
    for robot, (host, link) in links.items():
        if not link.uri:
            continue
        dongle = re.match(r"radio://[^/]+", link.uri)
        radio = (host, dongle[0]) if dongle else ("", link.uri)
        if radio in taken:
            raise FleetError(
                f"{file}: robots.{robot}.link.uri: found {radio[1]}, which {taken[radio]} has; expected "
                "another radio: one driver uses it (many drones on one radio need Crazyswarm2)"
            )
        taken[radio] = robot


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


def link_tables(choice: LinkChoice, name: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry `link` of a fleet file with the names of its profile and driver files; empty for the default."""
    if choice == default_link():
        return {}
    tables = {
        "remappings": dict(choice.remappings),
        "config": dict(config),
        "types": list(choice.types),
        "uri": choice.uri,
        "onboard_brake": choice.onboard_brake,
        "commands": None if choice.commands is None else asdict(choice.commands),
    }
    given = {key: table for key, table in tables.items() if table}
    return {"link": {"profile": name, **given} if given else name}


def pose_tables(pose: PoseSource, spec: RobotSpec) -> dict[str, Any]:
    """Return the entry `pose` of a fleet file, empty for the default."""
    if pose == default_pose(spec):
        return {}
    sigma, max_age = float(pose.sigma_m), float(pose.max_age_s)
    tables: dict[str, Any] = {"source": pose.source, "frame": pose.frame, "sigma": sigma, "max_age": max_age}
    if pose.filter:
        tables |= {"filter": pose.filter, "yaw_sigma": pose.yaw_sigma_rad, "odometry_drift": pose.odometry_drift}
    return {"pose": tables}


def _check_uri(uri: str, profile: LinkProfile, where: str) -> None:
    if profile.driver is None and uri:
        raise FleetError(f"{where}.link.uri: unknown key for link {profile.name!r}, which is reached by topics")
    if profile.driver is not None and not _URI.fullmatch(uri):
        raise FleetError(
            f"{where}.link.uri: found {uri!r}, expected the address of the drone as cflib writes it, such "
            "as radio://0/80/2M/E7E7E7E701"
        )


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
