"""The fleet file: robots, their starts and goals, and their policy files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from testudo_deploy.files.strict_yaml import parse_tables, read_text
from testudo_deploy.fleet.fleet_bodies import FleetBody, fleet_bodies
from testudo_deploy.fleet.hold_switch import HoldSwitch, check_hold_switch
from testudo_deploy.fleet.link_topics import check_topics
from testudo_deploy.fleet.policy_groups import (
    Follow,
    PolicyEntry,
    PolicyGroup,
    check_follow,
    check_sha256,
    clear_of,
    policy_files,
)
from testudo_deploy.fleet.robot_links import (
    FleetError,
    LinkChoice,
    LinkEntry,
    check_host,
    check_radios,
    default_link,
    link_choice,
    spelled_out,
)
from testudo_deploy.fleet.robot_poses import (
    PoseEntry,
    PoseSource,
    check_shared_frame,
    check_tracking,
    default_pose,
    pose_source,
)
from testudo_deploy.fleet.scan_source import ScanEntry, ScanSource, scan_source
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_hardware.strict_files import OPTIONAL, read_as

FILE_VERSION = 1
FARTHEST_M = 10_000.0  # largest coordinate of a position in the shared frame
FASTEST_M_S = 20.0  # most that may be stated of an untrusted robot
LEAST_HEARTBEAT_S, MOST_HEARTBEAT_S = 0.3, 60.0  # the station sends ten heartbeats a second
_TURN_RAD = 2 * math.pi
_EXPECTED = "fileversion: 1, policy, policy_sha256 and robots, as in the example of docs/hardware.md"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NO_POSE = PoseSource("odom", "", 0.0, 0.0)
_RESERVED = (
    *("plant", "fleet", "world", "recorder", "station", "task", "markers", "emergency_stop"),
    *("guard", "policy", "driver"),
)


@dataclass(frozen=True)
class FleetRobot:
    """One robot; positions in the fleet's shared world frame."""

    name: str  # also its namespace on ROS 2
    type: str  # a registered robot, or the path of a .toml file, relative to the fleet file
    initial_position_world: tuple[float, ...]  # (D,) [m]
    initial_yaw: float  # [rad]
    goal_world: tuple[float, ...]
    """(D,) [m]; of a following robot while its leader is at its start; of one whose task has no goals, its start."""
    spec: RobotSpec = field(repr=False)
    untrusted: bool = False  # peers ignore its messages and avoid its tracked position
    host: str = ""  # computer of its nodes; empty for the one where they are started
    link: LinkChoice = field(default_factory=default_link)  # link to its driver
    pose: PoseSource = _NO_POSE  # source of its poses; left out, it is `default_pose`
    follows: Follow | None = None  # the robot that it follows; None has a fixed goal
    scan: ScanSource | None = None  # its laser scanner, with which its guard keeps a distance from people
    untrusted_speed_m_s: float = 0.0  # highest speed of an untrusted robot; 0: as in the files of its peers

    def __post_init__(self) -> None:
        if self.pose is _NO_POSE:
            object.__setattr__(self, "pose", default_pose(self.spec))

    @property
    def has_flight_phases(self) -> bool:
        """Return whether it starts on the ground, takes off to its initial position and lands at the end."""
        return self.spec.dimension == 3 and self.link.profile.flight is not None


@dataclass(frozen=True)
class Fleet:
    """The robots of one run and their policies."""

    file: Path  # the fleet file
    policy: Path  # the policy file, absolute
    policy_sha256: str  # required hash of the policy file
    robots: tuple[FleetRobot, ...]
    tracking: bool = False  # a tracking system provides the poses of all robots
    policies: Mapping[str, PolicyGroup] = field(default_factory=dict[str, PolicyGroup])
    """By type of robot, where it is not `policy`."""
    key_file: Path | None = None  # the fleet key, absolute; None: messages are not authenticated
    estop_heartbeat_s: float = 0.0  # robots stop without a heartbeat of the station for this time; 0 requires none
    task: Mapping[str, Any] | None = None
    """Start of the task by name, numbers or nested lists, component first: the task node of the station runs it and
    sends all signals of the task. None: the goals are the task, and nothing is sent."""
    bodies: tuple[FleetBody, ...] = ()  # that are no robots: they stand in the plant, and are measured and recorded
    orders: bool = False  # takes goals while it runs, and has no end of its own; only with a task
    hold_to_run: HoldSwitch | None = None  # the button that must be held for robots to move; None requires none

    @property
    def teams(self) -> tuple[Fleet, ...]:
        """Return the policy groups, in the order of their first robots."""
        if not self.policies:
            return (self,)
        return tuple(
            replace(
                self,
                policy=file.path,
                policy_sha256=file.sha256,
                policies={},
                robots=tuple(robot for robot in self.robots if self._policy_file(robot) == file),
            )
            for file in dict.fromkeys(map(self._policy_file, self.robots))
        )

    def team_of(self, name: str) -> Fleet:
        """Return the policy group of a robot; its peers are the others in it.

        Raises:
            FleetError: there is no robot of that name.
        """
        self.robot(name)
        return next(team for team in self.teams if name in team.names)

    def _policy_file(self, robot: FleetRobot) -> PolicyGroup:
        return self.policies.get(robot.type, PolicyGroup(self.policy, self.policy_sha256))

    @property
    def frame(self) -> str:
        """Return the frame of all positions."""
        return self.robots[0].pose.frame

    @property
    def untrusted(self) -> tuple[str, ...]:
        """Return the names of the robots that are not trusted."""
        return tuple(robot.name for robot in self.robots if robot.untrusted)

    @property
    def untrusted_speed_m_s(self) -> float:
        """Return the highest speed that the file names for untrusted robots [m/s]; 0 if it names none."""
        return max(robot.untrusted_speed_m_s for robot in self.robots)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the robots, in the order of the file."""
        return tuple(robot.name for robot in self.robots)

    def robot(self, name: str) -> FleetRobot:
        """Return one robot.

        Raises:
            FleetError: there is none of that name.
        """
        for robot in self.robots:
            if robot.name == name:
                return robot
        raise FleetError(f"{self.file}: robots: there is no {name!r}; known are {', '.join(self.names)}")

    def peers(self, name: str) -> tuple[str, ...]:
        """Return the names of all other robots that run the policy file of ``name``."""
        return tuple(other for other in self.team_of(name).names if other != name)


@dataclass(frozen=True)
class _RobotEntry:
    """A robot in the file."""

    type: str
    initial_position: tuple[float, ...]
    initial_yaw: float
    goal: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    follow: Follow | None = field(default=None, metadata=OPTIONAL)
    untrusted: bool = field(default=False, metadata=OPTIONAL)
    host: str = field(default="", metadata=OPTIONAL)
    link: LinkEntry | None = field(default=None, metadata=OPTIONAL)
    pose: PoseEntry | None = field(default=None, metadata=OPTIONAL)
    scan: ScanEntry | None = field(default=None, metadata=OPTIONAL)
    untrusted_speed_m_s: float = field(default=0.0, metadata=OPTIONAL)


@dataclass(frozen=True)
class _FleetEntry:
    """A fleet in the file."""

    fileversion: int
    policy: str
    policy_sha256: str
    robots: dict[str, Any]
    tracking: bool = field(default=False, metadata=OPTIONAL)
    policies: dict[str, PolicyEntry] = field(default_factory=dict[str, PolicyEntry], metadata=OPTIONAL)
    key_file: str = field(default="", metadata=OPTIONAL)
    estop_heartbeat_s: float = field(default=0.0, metadata=OPTIONAL)
    task: dict[str, Any] | None = field(default=None, metadata=OPTIONAL)
    bodies: dict[str, Any] = field(default_factory=dict[str, Any], metadata=OPTIONAL)
    orders: bool = field(default=False, metadata=OPTIONAL)
    hold_to_run: HoldSwitch | None = field(default=None, metadata=OPTIONAL)


def load_fleet(path: str | Path) -> Fleet:
    """Read and check a fleet file.

    Raises:
        FleetError: unreadable; an unknown, missing or repeated key; a wrong type; a number that is not finite or out of
            range; an unknown robot type; a start or goal of another dimension; two robots that start or end in contact;
            an untrusted robot without tracking; an invalid link, pose source or body; robots that share no frame, or
            share a topic that belongs to one.
    """
    file = Path(path)
    return parse_fleet(read_text(file, "fleet file", FleetError, _EXPECTED), file)


def parse_fleet(text: str, file: Path) -> Fleet:
    """Read the text of a fleet file; ``file`` names it in errors and is the base of relative paths.

    Raises:
        FleetError: see `load_fleet`.
    """
    tables = parse_tables(text, file, FleetError, _EXPECTED)
    entry: _FleetEntry = read_as(_FleetEntry, tables, f"{file}: fleet", FleetError)
    if entry.fileversion != FILE_VERSION:
        raise FleetError(f"{file}: fileversion: found {entry.fileversion}, expected {FILE_VERSION}")
    check_sha256(entry.policy_sha256, f"{file}: policy_sha256")
    if not entry.robots:
        raise FleetError(f"{file}: robots: found none, expected at least one")
    task = {} if entry.orders and entry.task is None else entry.task
    tasked = task is not None
    robots = _with_leaders(tuple(_robot(name, values, file, tasked) for name, values in entry.robots.items()), file)
    _check_room(robots, file)
    check_shared_frame({robot.name: robot.pose.frame for robot in robots}, file)
    check_radios({robot.name: (robot.host, robot.link) for robot in robots}, file)
    check_topics({robot.name: (robot.link, robot.pose) for robot in robots}, file)
    if entry.tracking:
        check_tracking({robot.name: robot.pose for robot in robots}, file)
    fleet = Fleet(
        file,
        (file.parent / entry.policy).absolute(),
        entry.policy_sha256,
        robots,
        entry.tracking,
        policy_files(entry.policies, [robot.type for robot in robots], file),
        (file.parent / entry.key_file).absolute() if entry.key_file else None,
        _heartbeat(entry.estop_heartbeat_s, file),
        task,
        fleet_bodies(entry.bodies, entry.robots, file),
        entry.orders,
        check_hold_switch(entry.hold_to_run, f"{file}: hold_to_run", FleetError),
    )
    if tasked and fleet.policies:
        raise FleetError(f"{file}: task: found with several policy files, expected one: a task has one kind of robot")
    led = next((robot.name for robot in robots if robot.follows is not None), "")
    if fleet.orders and led:
        raise FleetError(f"{file}: orders: found with robots.{led}.follow, expected a goal: a follower takes no orders")
    if fleet.untrusted and not fleet.tracking:
        raise FleetError(
            f"{file}: robots.{fleet.untrusted[0]}.untrusted: found true, expected `tracking: true` in the fleet, too: "
            "an untrusted robot needs a tracking system"
        )
    return fleet


def _heartbeat(time_s: float, file: Path) -> float:
    if time_s != 0 and not LEAST_HEARTBEAT_S <= time_s <= MOST_HEARTBEAT_S:  # NaN, too
        raise FleetError(
            f"{file}: estop_heartbeat_s: found {time_s:g} s, expected 0 for none, or {LEAST_HEARTBEAT_S:g} to "
            f"{MOST_HEARTBEAT_S:g} s"
        )
    return time_s


def _robot(name: Any, values: Any, file: Path, tasked: bool) -> FleetRobot:
    where = f"{file}: robots.{name}"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise FleetError(
            f"{where}: found the name {name!r}, expected small letters, digits and _, "
            f"a letter first, and none of {', '.join(_RESERVED)}"
        )
    entry: _RobotEntry = read_as(_RobotEntry, spelled_out(values), where, FleetError)
    if tasked and not entry.goal and entry.follow is None:
        entry = replace(entry, goal=entry.initial_position)
    _check_bounds(entry, where)
    try:
        is_file = entry.type.endswith(".toml")
        spec = load_robot(file.parent / entry.type if is_file else entry.type)
    except TestudoError as error:
        raise FleetError(f"{where}.type: {error}") from error
    if bool(entry.goal) == (entry.follow is not None):
        found = "found with follow" if entry.goal else "missing, and follow, too"
        raise FleetError(f"{where}.goal: {found}; expected one of them")
    for key in ("initial_position", "goal") if entry.goal else ("initial_position",):
        found = len(getattr(entry, key))
        if found != spec.dimension:
            raise FleetError(f"{where}.{key}: found {found} coordinates, expected {spec.dimension} for a {spec.name}")
    link = link_choice(entry.link, name, spec, file, where)
    pose = pose_source(entry.pose, name, spec, link.profile, where)
    robot = FleetRobot(
        name,
        entry.type,
        entry.initial_position,
        entry.initial_yaw,
        entry.goal,
        spec,
        entry.untrusted,
        check_host(entry.host, where),
        link,
        pose,
        entry.follow,
        scan_source(entry.scan, spec, where),
        _untrusted_speed(entry, where),
    )
    if robot.has_flight_phases and not robot.initial_position_world[2] > 0:
        raise FleetError(
            f"{where}.initial_position: found the height {robot.initial_position_world[2]:g} m, expected "
            "one above 0, the floor: it takes off to there"
        )
    return robot


def _untrusted_speed(entry: _RobotEntry, where: str) -> float:
    """Return how fast an untrusted robot may be [m/s]; 0 if the file does not say it."""
    speed = entry.untrusted_speed_m_s
    if speed != 0 and not (entry.untrusted and 0 < speed <= FASTEST_M_S):  # NaN, too
        raise FleetError(
            f"{where}.untrusted_speed_m_s: found {speed:g} m/s{'' if entry.untrusted else ' without untrusted: true'}, "
            f"expected above 0 up to {FASTEST_M_S:g} m/s, of an untrusted robot"
        )
    return speed


def _check_bounds(entry: _RobotEntry, where: str) -> None:
    """Refuse positions and angles out of range, such as degrees or millimetres."""
    offset = entry.follow.offset if entry.follow is not None else ()
    for key, values, most, unit in (
        ("initial_position", entry.initial_position, FARTHEST_M, "m"),
        ("goal", entry.goal, FARTHEST_M, "m"),
        ("follow.offset", offset, FARTHEST_M, "m"),
        ("initial_yaw", (entry.initial_yaw,), _TURN_RAD, "rad"),
    ):
        for value in values:
            if not -most <= value <= most:
                raise FleetError(f"{where}.{key}: found {value:g} {unit}, expected {-most:.5g} to {most:.5g} {unit}")


def _with_leaders(robots: tuple[FleetRobot, ...], file: Path) -> tuple[FleetRobot, ...]:
    """Return the robots with the initial goals of those that follow."""
    by_name = {robot.name: robot for robot in robots}
    dimensions = {robot.name: robot.spec.dimension for robot in robots}
    follows = {robot.name: robot.follows for robot in robots if robot.follows is not None}
    for name, follow in follows.items():
        check_follow(name, follow, dimensions, follows, f"{file}: robots.{name}.follow")
    found: list[FleetRobot] = []
    for robot in robots:
        if robot.follows is not None:
            leader = by_name[robot.follows.robot].initial_position_world
            robot = replace(robot, goal_world=robot.follows.goal_world(leader, robot.spec.dimension))  # noqa: PLW2901
        found.append(robot)
    return tuple(found)


def _check_room(robots: tuple[FleetRobot, ...], file: Path) -> None:
    """Refuse robots in contact at their starts or goals."""
    for first, second in combinations(robots, 2):
        needed = first.spec.body_radius_m + second.spec.body_radius_m
        for key, one, other in (
            ("initial_position", first.initial_position_world, second.initial_position_world),
            ("goal", first.goal_world, second.goal_world),
        ):
            # a drone with flight phases starts on the ground below its position
            below = key == "initial_position" and (first.has_flight_phases or second.has_flight_phases)
            axes = 2 if below else min(len(one), len(other))
            distance = math.dist(one[:axes], other[:axes])
            if distance <= needed and (below or not _one_flies_above(first, second, one, other)):
                raise FleetError(
                    f"{file}: robots.{second.name}.{key}: is {distance:.3g} m from that of "
                    f"{first.name}, expected more than {needed:.3g} m: they would touch"
                )


def _one_flies_above(first: FleetRobot, second: FleetRobot, one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether one robot is on the ground and the other flies above it, at these positions."""
    if len(one) == len(other):
        return False
    ground, drone, height_m = (first, second, other[2]) if len(one) == 2 else (second, first, one[2])
    return clear_of(ground.spec, drone.spec, height_m)
