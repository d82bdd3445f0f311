"""The fleet file: which robots there are, where they start and go, and what drives them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from testudo_deploy.fleet_links import (
    FleetError,
    LinkChoice,
    LinkEntry,
    PoseEntry,
    PoseSource,
    check_host,
    check_radios,
    check_shared_frame,
    check_tracking,
    default_link,
    default_pose,
    link_choice,
    link_tables,
    pose_source,
    pose_tables,
    spelled_out,
)
from testudo_deploy.strict_yaml import parse_yaml
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_hardware.strict import OPTIONAL, read_as

FILE_VERSION = 1
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RESERVED = ("plant", "fleet", "world", "recorder", "station", "task", "markers", "guard", "policy", "driver")


@dataclass(frozen=True)
class FleetRobot:
    """One robot; positions in the fleet's shared world frame."""

    name: str
    """Also its namespace on ROS 2."""
    type: str
    """A registered robot, or the path of a .toml file, relative to the fleet file."""
    initial_position_world: tuple[float, ...]
    """(D,) [m]."""
    initial_yaw: float
    """[rad]."""
    goal_world: tuple[float, ...]
    """(D,) [m]."""
    spec: RobotSpec = field(repr=False)
    untrusted: bool = False
    """The others rely on nothing that it says and keep clear of where tracking sees it."""
    host: str = ""
    """The computer that its nodes run on; empty for the one where they are started."""
    link: LinkChoice = field(default_factory=default_link)
    """How its driver is reached."""
    pose: PoseSource | None = None
    """What tells it where it is; None becomes `default_pose`."""

    def __post_init__(self) -> None:
        if self.pose is None:
            object.__setattr__(self, "pose", default_pose(self.spec))

    @property
    def has_flight_phases(self) -> bool:
        """Return whether it stands on the ground at first, takes off to its initial position and lands at the end."""
        return self.spec.dimension == 3 and self.link.profile.flight is not None


@dataclass(frozen=True)
class Fleet:
    """The robots of one run and their policy."""

    file: Path
    """Where it was read from."""
    policy: Path
    """The policy file, absolute."""
    policy_sha256: str
    """The hash that the policy file must have."""
    robots: tuple[FleetRobot, ...]
    tracking: bool = False
    """Each robot's odometry comes from a tracking system that the others may rely on."""

    @property
    def frame(self) -> str:
        """Return the frame in which all positions stand."""
        return self.robots[0].pose.frame

    @property
    def untrusted(self) -> tuple[str, ...]:
        """Return the names of the robots that are not trusted."""
        return tuple(robot.name for robot in self.robots if robot.untrusted)

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
        raise FleetError(
            f"{self.file}: robots: there is no {name!r}; known are {', '.join(self.names)}"
        )

    def peers(self, name: str) -> tuple[str, ...]:
        """Return the names of all robots but ``name``."""
        return tuple(other for other in self.names if other != name)


@dataclass(frozen=True)
class _RobotEntry:
    """A robot as it stands in the file."""

    type: str
    initial_position: tuple[float, ...]
    initial_yaw: float
    goal: tuple[float, ...]
    untrusted: bool = field(default=False, metadata=OPTIONAL)
    host: str = field(default="", metadata=OPTIONAL)
    link: LinkEntry | None = field(default=None, metadata=OPTIONAL)
    pose: PoseEntry | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class _FleetEntry:
    """A fleet as it stands in the file."""

    fileversion: int
    policy: str
    policy_sha256: str
    robots: dict[str, Any]
    tracking: bool = field(default=False, metadata=OPTIONAL)


def load_fleet(path: str | Path) -> Fleet:
    """Read and check a fleet file.

    Raises:
        FleetError: unreadable; an unknown, missing or repeated key; a wrong type; a number that is
            not finite; an unknown robot type; a start or goal of another dimension than the robot;
            two robots that start, or go, into each other; an untrusted robot without tracking; a link or
            pose source that does not hold, or robots that share no frame.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FleetError(f"{file}: no such fleet file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"{file}: cannot be read: {error}") from error
    return parse_fleet(text, file)


def parse_fleet(text: str, file: Path) -> Fleet:
    """Read the text of a fleet file; ``file`` names it in errors and is the base of relative paths.

    Raises:
        FleetError: see `load_fleet`.
    """
    tables = parse_yaml(text, file, FleetError)
    entry: _FleetEntry = read_as(_FleetEntry, tables, f"{file}: fleet", FleetError)
    if entry.fileversion != FILE_VERSION:
        raise FleetError(f"{file}: fileversion: found {entry.fileversion}, expected {FILE_VERSION}")
    if not _SHA256.fullmatch(entry.policy_sha256):
        raise FleetError(
            f"{file}: policy_sha256: found {entry.policy_sha256!r}, expected 64 digits 0-9 "
            "and a-f: what `testudo inspect policy.onnx` shows as sha256"
        )
    if not entry.robots:
        raise FleetError(f"{file}: robots: found none, expected at least one")
    robots = tuple(_robot(name, values, file) for name, values in entry.robots.items())
    _check_room(robots, file)
    check_shared_frame({robot.name: robot.pose.frame for robot in robots}, file)
    check_radios({robot.name: (robot.host, robot.link) for robot in robots}, file)
    if entry.tracking:
        check_tracking({robot.name: robot.pose.source for robot in robots}, file)
    fleet = Fleet(file, (file.parent / entry.policy).absolute(), entry.policy_sha256, robots, entry.tracking)
    if fleet.untrusted and not fleet.tracking:
        raise FleetError(
            f"{file}: robots.{fleet.untrusted[0]}.untrusted: found true, expected `tracking: true` in the fleet, too: "
            "a robot that is not trusted must be seen by a tracking system"
        )
    return fleet


def save_fleet(fleet: Fleet, path: str | Path) -> None:
    """Write a fleet file, with the paths in it relative to its folder."""
    file = Path(path)
    tables = {
        "fileversion": FILE_VERSION,
        "policy": _relative(fleet.policy, file.parent),
        "policy_sha256": fleet.policy_sha256,
        "robots": {
            robot.name: {
                "type": _moved(robot.type, fleet.file, file),
                "initial_position": _plain(robot.initial_position_world),
                "initial_yaw": float(robot.initial_yaw),
                "goal": _plain(robot.goal_world),
                **({"untrusted": True} if robot.untrusted else {}),
                **({"host": robot.host} if robot.host else {}),
                **_link(robot, fleet.file, file),
                **pose_tables(robot.pose, robot.spec),
            }
            for robot in fleet.robots
        },
        **({"tracking": True} if fleet.tracking else {}),
    }
    text = yaml.dump(tables, Dumper=_FlowLists, sort_keys=False, width=100)
    file.write_text(text, encoding="utf-8")


def _robot(name: Any, values: Any, file: Path) -> FleetRobot:
    where = f"{file}: robots.{name}"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise FleetError(
            f"{where}: found the name {name!r}, expected small letters, digits and _, "
            f"a letter first, and none of {', '.join(_RESERVED)}"
        )
    entry: _RobotEntry = read_as(_RobotEntry, spelled_out(values), where, FleetError)
    try:
        is_file = entry.type.endswith(".toml")
        spec = load_robot(file.parent / entry.type if is_file else entry.type)
    except TestudoError as error:
        raise FleetError(f"{where}.type: {error}") from error
    for key in ("initial_position", "goal"):
        found = len(getattr(entry, key))
        if found != spec.dimension:
            raise FleetError(
                f"{where}.{key}: found {found} coordinates, expected {spec.dimension} "
                f"for a {spec.name}"
            )
    link = link_choice(entry.link, name, spec, file, where)
    pose = pose_source(entry.pose, name, spec, link.profile, where)
    return FleetRobot(name, entry.type, entry.initial_position, entry.initial_yaw, entry.goal, spec,
                      entry.untrusted, check_host(entry.host, where), link, pose)


def _check_room(robots: tuple[FleetRobot, ...], file: Path) -> None:
    """Refuse robots that would touch at the start or at their goals."""
    for first, second in combinations(robots, 2):
        needed = first.spec.body_radius_m + second.spec.body_radius_m
        for key, one, other in (
            ("initial_position", first.initial_position_world, second.initial_position_world),
            ("goal", first.goal_world, second.goal_world),
        ):
            axes = min(len(one), len(other))
            distance = math.dist(one[:axes], other[:axes])
            if distance <= needed:
                raise FleetError(
                    f"{file}: robots.{second.name}.{key}: is {distance:.3g} m from that of "
                    f"{first.name}, expected more than {needed:.3g} m: they would touch"
                )


def _moved(name: str, before: Path, after: Path) -> str:
    """Return a name, or the path of a .toml file relative to a fleet file, relative to another one."""
    return _relative(before.parent / name, after.parent) if name.endswith(".toml") else name


def _link(robot: FleetRobot, before: Path, after: Path) -> dict[str, Any]:
    config = {name: _relative(before.parent / path, after.parent) for name, path in robot.link.config.items()}
    return link_tables(robot.link, _moved(robot.link.name, before, after), config)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


def _plain(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values]


class _FlowLists(yaml.SafeDumper):
    """Writes lists of numbers on one line."""


_FlowLists.add_representer(
    list,
    lambda dumper, values: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", values, flow_style=True
    ),
)
