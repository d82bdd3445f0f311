"""The link profile of a robot: topics, types, frames and rates of its driver, read from TOML with sources."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import OPTIONAL, read_as, read_toml

SCHEMA = "testudo/link/1"
TWIST = "geometry_msgs/msg/Twist"
TWIST_STAMPED = "geometry_msgs/msg/TwistStamped"
ODOMETRY = "nav_msgs/msg/Odometry"
POSE_STAMPED = "geometry_msgs/msg/PoseStamped"
POSE_WITH_COVARIANCE = "geometry_msgs/msg/PoseWithCovarianceStamped"
NAMED_POSES = "motion_capture_tracking_interfaces/msg/NamedPoseArray"
CONTROL_POINT_VELOCITY = "control_point_velocity_world"
"""The type of command that every wire carries; the heading of a drone is held."""
VELOCITY_YAW_RATE = "velocity_yaw_rate_world"
"""The same of a drone that turns: a yaw rate [rad/s] beside it, anticlockwise seen from above (REP-103)."""
DEFAULT_LINK = "testudo"
"""The plant and drivers of our own: what a robot has whose fleet file names no link."""

_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
_FRAME = re.compile(r"(\{robot\}|[A-Za-z_]\w*)(/[A-Za-z_]\w*)*")
_NODE = re.compile(r"[A-Za-z_]\w*")
_RATES_HZ = (0.5, 2000.0)
_DEGREES = 180 / math.pi
_YAW_RATES = {None: ("radians",), "velocity_world": ("degrees", "degrees_clockwise"), "full_state": ("radians",)}
"""By set-point, None for a twist: the forms of a yaw rate. A `hover` has none: its velocity stands in the body, which
has turned on by the time that it arrives."""


class LinkError(TestudoError):
    """A link profile does not hold: the text names file, key, what was found and what is expected."""


@dataclass(frozen=True)
class Text:
    """A name and where it comes from."""

    value: str
    source: str


@dataclass(frozen=True)
class Names:
    """Some names and where they come from."""

    value: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Switch:
    """A yes or no and where it comes from."""

    value: bool
    source: str


@dataclass(frozen=True)
class Rate:
    """A rate and where it comes from."""

    value: float
    unit: Literal["Hz"]
    source: str


@dataclass(frozen=True)
class Reliability:
    """How a topic is offered by its publisher, and where that comes from."""

    value: Literal["reliable", "best_effort"]
    source: str


@dataclass(frozen=True)
class SetPointProfile:
    """Which set-point of Crazyswarm2 carries commands, and where that comes from."""

    value: Literal["velocity_world", "hover", "full_state"]
    source: str


@dataclass(frozen=True)
class YawRate:
    """In which unit, per second, and sense a wire carries the yaw rate of a drone, and where that comes from."""

    value: Literal["radians", "degrees", "degrees_clockwise"]
    source: str

    @property
    def per_radian(self) -> float:
        """Return the number on the wire for one rad/s anticlockwise."""
        return {"radians": 1.0, "degrees": _DEGREES, "degrees_clockwise": -_DEGREES}[self.value]


@dataclass(frozen=True)
class ClockSource:
    """The clock of the stamps in messages, and where that comes from."""

    value: Literal["steady", "ros"]
    source: str


@dataclass(frozen=True)
class PoseType:
    """The message type of a pose, and where that comes from."""

    value: Literal["geometry_msgs/msg/PoseStamped", "motion_capture_tracking_interfaces/msg/NamedPoseArray"]
    source: str


@dataclass(frozen=True)
class CommandTopic:
    """Where a robot takes its commands; exactly one of the last two fields is given."""

    topic: Text
    frame: Text
    """Of the header; `{robot}` stands for the robot's name."""
    other_publishers: Names
    """Node names that may publish there, too, without being a fault."""
    enable_stamped_cmd_vel: Switch | None = field(default=None, metadata=OPTIONAL)
    """nav2's name: TwistStamped if true, Twist if false."""
    set_point: SetPointProfile | None = field(default=None, metadata=OPTIONAL)
    """For the wire `crazyswarm2`."""
    yaw_rate: YawRate | None = field(default=None, metadata=OPTIONAL)
    """None: nobody said what its driver makes of a yaw rate, so that it carries none."""


@dataclass(frozen=True)
class OdometryTopic:
    """Where a robot tells its odometry."""

    topic: Text
    frame: Text
    child_frame: Text
    rate: Rate
    reliability: Reliability

    def frames(self, robot: str) -> tuple[str, str]:
        """Return the frames of pose and body that messages of a robot must name."""
        return named(self.frame.value, robot), named(self.child_frame.value, robot)


@dataclass(frozen=True)
class PoseTopic:
    """Where poses of a robot without velocities arrive, as from motion capture."""

    topic: Text
    type: PoseType
    rate: Rate
    reliability: Reliability
    stamped_on_arrival: Switch | None = field(default=None, metadata=OPTIONAL)
    """Stamps tell when poses came by radio, and not when they were measured."""


@dataclass(frozen=True)
class BatteryTopic:
    """Where a robot tells the state of its battery."""

    topic: Text
    type: Text


@dataclass(frozen=True)
class DriverProfile:
    """A driver of our own that runs beside the guard, and where that comes from."""

    value: Literal["crazyflie_radio"]
    """`crazyflie_radio`: between topics and a radio, reached by the URI in the fleet file."""
    source: str


@dataclass(frozen=True)
class FlightWire:
    """How a vehicle that flies is asked to take off and land, and where that comes from."""

    value: Literal["topics", "crazyswarm2"]
    """`topics`: `flight_request` and `vehicle_state` of the robot; `crazyswarm2`: services, and its status."""
    source: str


@dataclass(frozen=True)
class FlightPart:
    """That a robot which flies goes through flight phases: it starts on the ground and takes off."""

    wire: FlightWire
    controller: Text | None = field(default=None, metadata=OPTIONAL)
    """The one that its set-points need, as the vehicle calls it."""
    estimator: Text | None = field(default=None, metadata=OPTIONAL)
    """The one that its poses need."""


@dataclass(frozen=True)
class LinkProfile:
    """How one kind of driver is reached; every name and number has its source."""

    schema: str
    name: str
    wire: Literal["twist", "crazyswarm2"]
    description: str
    stamps: ClockSource
    """Clock of the stamps in its messages; watchdogs here count on the steady clock."""
    command: CommandTopic
    odometry: OdometryTopic | None = field(default=None, metadata=OPTIONAL)
    pose: PoseTopic | None = field(default=None, metadata=OPTIONAL)
    battery: BatteryTopic | None = field(default=None, metadata=OPTIONAL)
    flight: FlightPart | None = field(default=None, metadata=OPTIONAL)
    """None: a robot that flies is in the air before anything is asked of it, and somebody else lands it."""
    driver: DriverProfile | None = field(default=None, metadata=OPTIONAL)
    """None: the driver is somebody else's and runs already."""

    @property
    def command_type(self) -> str:
        """Return the message type of commands."""
        if self.command.set_point is not None:
            word = "".join(part.capitalize() for part in self.command.set_point.value.split("_"))
            return f"crazyflie_interfaces/msg/{word}"
        stamped = self.command.enable_stamped_cmd_vel
        return TWIST_STAMPED if stamped is not None and stamped.value else TWIST

    @property
    def takes(self) -> tuple[str, ...]:
        """Return the types of command of a policy that the wire carries."""
        turns = () if self.command.yaw_rate is None else (VELOCITY_YAW_RATE,)
        return (CONTROL_POINT_VELOCITY, *turns)

    def command_frame(self, robot: str) -> str:
        """Return the frame that the header of a command to a robot names."""
        return named(self.command.frame.value, robot)


def with_stamped_commands(profile: LinkProfile, stamped: bool) -> LinkProfile:
    """Return a profile whose commands are TwistStamped, or Twist, as nav2's `enable_stamped_cmd_vel` says.

    Raises:
        LinkError: its commands are set-points of Crazyswarm2.
    """
    if profile.command.enable_stamped_cmd_vel is None:
        raise LinkError(f"link {profile.name!r}: enable_stamped_cmd_vel: unknown key for wire {profile.wire!r}")
    switch = Switch(stamped, "parameter enable_stamped_cmd_vel")
    return replace(profile, command=replace(profile.command, enable_stamped_cmd_vel=switch))


def named(frame: str, robot: str) -> str:
    """Return a frame of a profile with the robot's name in it."""
    return frame.replace("{robot}", robot)


def link_files() -> dict[str, Any]:
    """Return every profile that comes with the package, by name."""
    folder = resources.files("testudo_hardware") / "links" / "profiles"
    return {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}


def load_link(name_or_path: str | Path) -> LinkProfile:
    """Read a link profile by its name or from a TOML file.

    Raises:
        LinkError: no such profile, or the file does not hold.
    """
    return parse_link(*read_toml(name_or_path, link_files(), "link", LinkError))


def parse_link(tables: Mapping[str, Any], where: str) -> LinkProfile:
    """Build a profile from the tables of a TOML file; ``where`` names the file in errors.

    Raises:
        LinkError: unknown, missing or malformed key, no source, a name that ROS does not allow, a rate out of range.
    """
    if tables.get("schema") != SCHEMA:
        raise LinkError(f"{where}: schema: found {tables.get('schema')!r}, expected {SCHEMA!r}")
    profile: LinkProfile = read_as(LinkProfile, tables, f"{where}: link", LinkError)
    _check_sources(profile, f"{where}: link")
    for section in ("command", "odometry", "pose", "battery"):
        part = getattr(profile, section)
        if part is not None:
            _check_names(part, f"{where}: link.{section}")
    _check_wire(profile, f"{where}: link")
    return profile


def _check_sources(part: Any, where: str) -> None:
    for name in (entry.name for entry in fields(part)):
        inner = getattr(part, name)
        if name in ("source", "description", "name") and not inner:
            raise LinkError(f"{where}.{name}: found an empty text, expected where it comes from or what it is")
        if is_dataclass(inner):
            _check_sources(inner, f"{where}.{name}")


def _check_names(part: Any, where: str) -> None:
    rules = {
        "topic": (_TOPIC, "the name of a topic"),
        "frame": (_FRAME, "the name of a frame"),
        "child_frame": (_FRAME, "the name of a frame"),
    }
    for key, (rule, what) in rules.items():
        entry = getattr(part, key, None)
        if entry is not None and not rule.fullmatch(entry.value):
            raise LinkError(f"{where}.{key}.value: found {entry.value!r}, expected {what}")
    rate = getattr(part, "rate", None)
    if rate is not None and not _RATES_HZ[0] <= rate.value <= _RATES_HZ[1]:
        raise LinkError(f"{where}.rate.value: found {rate.value} Hz, expected {_RATES_HZ[0]} to {_RATES_HZ[1]} Hz")


def _check_wire(profile: LinkProfile, where: str) -> None:
    """Refuse a command section that is not of the wire, and a profile that tells no pose."""
    keys = {"twist": "enable_stamped_cmd_vel", "crazyswarm2": "set_point"}
    for wire, key in keys.items():
        given = getattr(profile.command, key) is not None
        if given != (wire == profile.wire):
            raise LinkError(
                f"{where}.command.{key}: {'unknown key' if given else 'missing'} for wire "
                f"{profile.wire!r}, expected {keys[profile.wire]}"
            )
    point, turns = profile.command.set_point, profile.command.yaw_rate
    forms = _YAW_RATES.get(None if point is None else point.value, ())
    if turns is not None and turns.value not in forms:
        raise LinkError(
            f"{where}.command.yaw_rate.value: found {turns.value!r} for a "
            f"{'twist' if point is None else point.value}, expected {' or '.join(forms) or 'no such key'}"
        )
    for node in profile.command.other_publishers.value:
        if not _NODE.fullmatch(node):
            raise LinkError(f"{where}.command.other_publishers.value: found {node!r}, expected the name of a node")
    if profile.odometry is None and profile.pose is None:
        raise LinkError(f"{where}: found neither [odometry] nor [pose], expected where the robot is told from")
