"""The link profile of a robot: topics, types, frames and rates of its driver, read from TOML with sources."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from testudo_hardware.errors import TestudoError
from testudo_hardware.links.emulation import Emulation
from testudo_hardware.links.signal_wire import STAMPED, SignalTopic
from testudo_hardware.links.sourced import Sourced
from testudo_hardware.strict_files import OPTIONAL, read_as, read_toml

SCHEMA = "testudo/link/1"
TWIST = "geometry_msgs/msg/Twist"
TWIST_STAMPED = "geometry_msgs/msg/TwistStamped"
ODOMETRY = "nav_msgs/msg/Odometry"
POSE_STAMPED = "geometry_msgs/msg/PoseStamped"
POSE_WITH_COVARIANCE = "geometry_msgs/msg/PoseWithCovarianceStamped"
NAMED_POSES = "motion_capture_tracking_interfaces/msg/NamedPoseArray"
CONTROL_POINT_VELOCITY = "control_point_velocity_world"
"""The command type that every link carries; a drone holds its heading."""
VELOCITY_YAW_RATE = "velocity_yaw_rate_world"
"""The same with a yaw rate [rad/s] of a drone, counter-clockwise seen from above (REP-103)."""
LAST_BRAKE = "last_brake"
"""The node that brakes a base which times no command out, if its guard dies; `testudo_nodes.robot.last_brake`."""
DEFAULT_LINK = "testudo"  # link of a robot whose fleet file names none: the plant and the drivers of this project

_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")
_FRAME = re.compile(r"(\{robot\}|[A-Za-z_]\w*)(/[A-Za-z_]\w*)*")
_NODE = re.compile(r"[A-Za-z_]\w*")
_RATES_HZ = (0.5, 2000.0)
_LONGEST_DELAY_S = 0.4  # a value as old brakes the robot
_DEGREES = 180 / math.pi
_YAW_RATES = {None: ("radians",), "velocity_world": ("degrees", "degrees_clockwise"), "full_state": ("radians",)}
"""Allowed units of a yaw rate by set-point, None for a twist. A `hover` has none: its velocity is in the body frame,
which has turned further when it arrives."""


class LinkError(TestudoError):
    """A link profile is invalid: the text names file, key, what was found and what is expected."""


@dataclass(frozen=True)
class Rate:
    """A rate and its source."""

    value: float
    unit: Literal["Hz"]
    source: str


Reliability = Sourced[Literal["reliable", "best_effort"]]  # quality of service that the publisher of a topic offers


@dataclass(frozen=True)
class YawRate:
    """Unit per second and sign of the yaw rate of a drone in messages, and its source."""

    value: Literal["radians", "degrees", "degrees_clockwise"]
    source: str

    @property
    def per_radian(self) -> float:
        """Return the number in the message for 1 rad/s counter-clockwise."""
        return {"radians": 1.0, "degrees": _DEGREES, "degrees_clockwise": -_DEGREES}[self.value]


@dataclass(frozen=True)
class CommandTopic:
    """Topic of a robot's commands; exactly one of `enable_stamped_cmd_vel` and `set_point` is given."""

    topic: Sourced[str]
    frame: Sourced[str]  # of the header; `{robot}` stands for the robot's name
    other_publishers: Sourced[tuple[str, ...]]  # names of other nodes that may publish there without a fault
    enable_stamped_cmd_vel: Sourced[bool] | None = field(default=None, metadata=OPTIONAL)
    """nav2's name: TwistStamped if true, Twist if false."""
    set_point: Sourced[Literal["velocity_world", "hover", "full_state"]] | None = field(default=None, metadata=OPTIONAL)
    """For the wire `crazyswarm2`: which of its set-points carries commands."""
    times_out: Sourced[bool] | None = field(default=None, metadata=OPTIONAL)
    """False for a base that acts on a command until the next one, for wire `twist` with stamps of ROS alone; missing:
    it ends by itself."""
    yaw_rate: YawRate | None = field(default=None, metadata=OPTIONAL)
    """None: unknown to the driver, so that the link carries no yaw rate."""


@dataclass(frozen=True)
class OdometryTopic:
    """Topic of a robot's odometry."""

    topic: Sourced[str]
    frame: Sourced[str]
    child_frame: Sourced[str]
    rate: Rate
    reliability: Reliability

    def frames(self, robot: str) -> tuple[str, str]:
        """Return the frames of pose and body that messages of a robot must have."""
        return named(self.frame.value, robot), named(self.child_frame.value, robot)


@dataclass(frozen=True)
class PoseTopic:
    """Topic of poses without velocities, such as motion capture."""

    topic: Sourced[str]
    type: Sourced[Literal["geometry_msgs/msg/PoseStamped", "motion_capture_tracking_interfaces/msg/NamedPoseArray"]]
    rate: Rate
    reliability: Reliability
    stamped_on_arrival: Sourced[bool] | None = field(default=None, metadata=OPTIONAL)
    """Stamps are the times of arrival by radio, not of the measurement."""


@dataclass(frozen=True)
class BatteryTopic:
    """Topic of a robot's battery state."""

    topic: Sourced[str]
    type: Sourced[str]


@dataclass(frozen=True)
class FlightPart:
    """A robot with flight phases: it starts on the ground and takes off."""

    wire: Sourced[Literal["topics", "crazyswarm2"]]
    """`topics`: `flight_request` and `vehicle_state` of the robot; `crazyswarm2`: services, and its status."""
    controller: Sourced[str] | None = field(default=None, metadata=OPTIONAL)
    """Controller that its set-points need, named as the vehicle names it."""
    estimator: Sourced[str] | None = field(default=None, metadata=OPTIONAL)  # estimator that its poses need


@dataclass(frozen=True)
class LinkProfile:
    """How one kind of driver is reached; every name and number has its source."""

    schema: str
    name: str
    wire: Literal["twist", "crazyswarm2"]
    description: str
    stamps: Sourced[Literal["steady", "ros"]]  # clock of the stamps in its messages; watchdogs use the steady clock
    command: CommandTopic
    odometry: OdometryTopic | None = field(default=None, metadata=OPTIONAL)
    pose: PoseTopic | None = field(default=None, metadata=OPTIONAL)
    battery: BatteryTopic | None = field(default=None, metadata=OPTIONAL)
    flight: FlightPart | None = field(default=None, metadata=OPTIONAL)
    """None: a flying robot is already in the air, and others land it."""
    signals: dict[str, SignalTopic] = field(default_factory=dict[str, SignalTopic], metadata=OPTIONAL)
    """By signal of a policy: the sensor topic from which the robot takes it in place of the task's message."""
    driver: Sourced[Literal["crazyflie_radio"]] | None = field(default=None, metadata=OPTIONAL)
    """Driver of this project that runs beside the guard, between topics and the radio at the URI of the fleet file.
    None: a third-party driver, already running."""
    emulation: Emulation | None = field(default=None, metadata=OPTIONAL)
    """How the plant stands in for driver and localisation; None: with the plant's own noise and ages."""

    def odometry_of(self, robot: str) -> OdometryTopic:
        """Return the odometry of a robot.

        Raises:
            LinkError: the profile has none.
        """
        if self.odometry is None:
            raise LinkError(f"{robot}: link {self.name!r} has no odometry, expected another pose source")
        return self.odometry

    def pose_of(self, robot: str) -> PoseTopic:
        """Return the pose topic of a robot.

        Raises:
            LinkError: the profile has none.
        """
        if self.pose is None:
            raise LinkError(f"{robot}: link {self.name!r} has no [pose], expected the topic of motion capture")
        return self.pose

    @property
    def needs_last_brake(self) -> bool:
        """Return whether the base acts on a command until the next one, so that the guard's death needs a brake."""
        return self.command.times_out is not None and not self.command.times_out.value

    @property
    def command_publishers(self) -> tuple[str, ...]:
        """Return the names of the nodes beside the guard that may publish commands."""
        return self.command.other_publishers.value + ((LAST_BRAKE,) if self.needs_last_brake else ())

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
        """Return the command types of a policy that the link carries."""
        turns = () if self.command.yaw_rate is None else (VELOCITY_YAW_RATE,)
        return (CONTROL_POINT_VELOCITY, *turns)

    def command_frame(self, robot: str) -> str:
        """Return the frame in the header of a command to a robot."""
        return named(self.command.frame.value, robot)


def with_stamped_commands(profile: LinkProfile, stamped: bool) -> LinkProfile:
    """Return a profile whose commands are TwistStamped, or Twist, as nav2's `enable_stamped_cmd_vel` says.

    Raises:
        LinkError: the commands are set-points of Crazyswarm2.
    """
    if profile.command.enable_stamped_cmd_vel is None:
        raise LinkError(f"link {profile.name!r}: enable_stamped_cmd_vel: unknown key for wire {profile.wire!r}")
    switch = Sourced(stamped, "parameter enable_stamped_cmd_vel")
    return replace(profile, command=replace(profile.command, enable_stamped_cmd_vel=switch))


def named(frame: str, robot: str) -> str:
    """Return a frame of a profile with the robot's name for `{robot}`."""
    return frame.replace("{robot}", robot)


def link_files() -> dict[str, Any]:
    """Return every profile of the package, by name."""
    folder = resources.files("testudo_hardware") / "links" / "profiles"
    return {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}


def load_link(name_or_path: str | Path) -> LinkProfile:
    """Read a link profile by its name or from a TOML file.

    Raises:
        LinkError: no such profile, or an invalid file.
    """
    return parse_link(*read_toml(name_or_path, link_files(), "link", LinkError))


def parse_link(tables: Mapping[str, Any], where: str) -> LinkProfile:
    """Build a profile from the tables of a TOML file; ``where`` names the file in errors.

    Raises:
        LinkError: an unknown, missing or malformed key, no source, a name that ROS does not allow, a rate out of range.
    """
    if tables.get("schema") != SCHEMA:
        raise LinkError(f"{where}: schema: found {tables.get('schema')!r}, expected {SCHEMA!r}")
    profile: LinkProfile = read_as(LinkProfile, tables, f"{where}: link", LinkError)
    _check_sources(profile, f"{where}: link")
    for section in ("command", "odometry", "pose", "battery"):
        part = getattr(profile, section)
        if part is not None:
            _check_names(part, f"{where}: link.{section}")
    for name, signal in profile.signals.items():
        _check_signal(signal, f"{where}: link.signals.{name}")
    _check_wire(profile, f"{where}: link")
    if profile.emulation is not None and (fault := profile.emulation.fault()):
        raise LinkError(f"{where}: link.emulation.{fault}")
    return profile


def _check_signal(part: SignalTopic, where: str) -> None:
    """Refuse a sensor topic without sources, with a wrong name, or whose messages have no age."""
    _check_sources(part, where)
    _check_names(part, where)
    stamped = part.type.value in STAMPED
    if stamped == (part.delay is not None):
        raise LinkError(
            f"{where}.delay: {'found' if stamped else 'missing'} for a {part.type.value}, whose messages have "
            f"{'a stamp; remove it' if stamped else 'no stamp; expected the longest time from measurement to arrival'}"
        )
    if part.delay is not None and not 0 <= part.delay.value <= _LONGEST_DELAY_S:
        raise LinkError(f"{where}.delay.value: found {part.delay.value:g} s, expected 0 to {_LONGEST_DELAY_S:g} s")
    if part.scale is not None and part.scale.value == 0:
        raise LinkError(f"{where}.scale.value: found 0, expected another number")


def _check_sources(part: Any, where: str) -> None:
    for name in (entry.name for entry in fields(part)):
        inner = getattr(part, name)
        if name in ("source", "description", "name") and not inner:
            raise LinkError(f"{where}.{name}: found an empty text, expected its source or description")
        if is_dataclass(inner):
            _check_sources(inner, f"{where}.{name}")


def _check_names(part: Any, where: str) -> None:
    for key, rule, what in (("topic", _TOPIC, "topic"), ("frame", _FRAME, "frame"), ("child_frame", _FRAME, "frame")):
        entry = getattr(part, key, None)
        if entry is not None and not rule.fullmatch(entry.value):
            raise LinkError(f"{where}.{key}.value: found {entry.value!r}, expected the name of a {what}")
    rate = getattr(part, "rate", None)
    if rate is not None and not _RATES_HZ[0] <= rate.value <= _RATES_HZ[1]:
        raise LinkError(f"{where}.rate.value: found {rate.value} Hz, expected {_RATES_HZ[0]} to {_RATES_HZ[1]} Hz")


def _check_wire(profile: LinkProfile, where: str) -> None:
    """Refuse a command section of another wire, and a profile without poses."""
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
    if profile.needs_last_brake and (profile.wire != "twist" or profile.stamps.value != "ros"):
        raise LinkError(
            f"{where}.command.times_out.value: found false for wire {profile.wire!r} with stamps "
            f"{profile.stamps.value!r}, expected it for wire 'twist' with stamps 'ros' alone"
        )
    for node in profile.command.other_publishers.value:
        if not _NODE.fullmatch(node):
            raise LinkError(f"{where}.command.other_publishers.value: found {node!r}, expected the name of a node")
    if profile.odometry is None and profile.pose is None:
        raise LinkError(f"{where}: found neither [odometry] nor [pose], expected at least one of them")
