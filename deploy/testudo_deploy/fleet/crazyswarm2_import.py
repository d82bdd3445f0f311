"""Reads and checks Crazyswarm2's configuration: what a fleet file needs of it, and which line prevents its use.

`crazyflies.yaml` has the drones and their settings, `motion_capture.yaml` the tracking, and `server.yaml` the expected
performance of the radio. Settings of a drone override those of its type, and those the settings of all. Unknown keys
are refused: they may change how a drone flies.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testudo_deploy.files.strict_yaml import LinedYaml, read_lined
from testudo_deploy.fleet.crazyswarm2_rules import (
    enabled_problems,
    enabled_robots,
    frequency_problem,
    is_whole,
    log_problems,
    number,
    shown,
    table,
    type_problems,
    uri_problems,
)
from testudo_deploy.fleet.fleet import FARTHEST_M, FleetRobot
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import is_list, is_table

FILE_VERSION = 3
PID, KALMAN = 1, 2  # of the firmware's parameters `stabilizer.controller` and `stabilizer.estimator`
LOWEST_M = -0.1  # lowest start: the floor
POSES_HZ = 100.0  # rate of poses in the link profiles: of motion capture, or of logged poses without it
STATUS_HZ = 5.0  # battery and state are checked twice a second, for the check-list and low batteries
_MOCAP = ("/motion_capture_tracking", "ros__parameters")
_SERVER = ("/crazyflie_server", "ros__parameters", "warnings", "communication", "max_unicast_latency")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CONTROLLERS = {0: "automatic", 1: "PID", 2: "Mellinger", 3: "INDI", 4: "Brescianini", 5: "Lee"}
_SETTINGS = {"firmware_params", "firmware_logging", "reference_frame"}
_SETTINGS_IN: tuple[tuple[str, ...], ...] = (("robots", "*"), ("robot_types", "*"), ("all",))
"""Tables that may contain settings of the firmware."""
_KNOWN: tuple[tuple[tuple[str, ...], set[str]], ...] = (
    ((), {"fileversion", "robots", "robot_types", "all"}),
    (("robots", "*"), {"enabled", "uri", "initial_position", "type", *_SETTINGS}),
    (("robot_types", "*"), {"motion_capture", "big_quad", "battery", *_SETTINGS}),
    (("robot_types", "*", "motion_capture"), {"tracking", "marker", "dynamics"}),
    (("robot_types", "*", "battery"), {"voltage_warning", "voltage_critical"}),
    (("all",), {"broadcasts", *_SETTINGS}),
    (("all", "broadcasts"), {"num_repeats", "delay_between_repeats_ms"}),
    *(((*table, "firmware_logging"), {"enabled", "default_topics", "custom_topics"}) for table in _SETTINGS_IN),
    *(((*table, "firmware_logging", "default_topics"), {"pose", "scan", "odom", "status"}) for table in _SETTINGS_IN),
)
"""Tables and their allowed keys; `*` is any name."""


class SwarmError(TestudoError):
    """An unusable Crazyswarm2 configuration: the text names file, line, key, what was found and expected."""


@dataclass(frozen=True)
class SwarmRobot:
    """One enabled drone."""

    name: str
    type: str
    position_world: tuple[float, float, float]  # its start [m]
    tracked: bool  # its poses come from motion capture; otherwise from its log


@dataclass(frozen=True)
class Swarm:
    """The enabled drones of a valid configuration."""

    file: Path
    robots: tuple[SwarmRobot, ...]
    frame: str  # of the poses


@dataclass(frozen=True)
class SwarmFiles:
    """The files of one configuration."""

    crazyflies: LinedYaml
    motion_capture: LinedYaml | None
    server: LinedYaml | None

    @property
    def names(self) -> dict[str, str]:
        """Return the absolute paths of the existing files, by their names in a fleet file."""
        parts = {"crazyflies": self.crazyflies, "motion_capture": self.motion_capture, "server": self.server}
        return {name: str(part.file.absolute()) for name, part in parts.items() if part is not None}


def read_swarm_files(crazyflies: Path, motion_capture: Path | None = None, server: Path | None = None) -> SwarmFiles:
    """Read the files; by default the two others are searched beside the first.

    Raises:
        SwarmError: a given file cannot be read.
    """

    def beside(given: Path | None, name: str) -> LinedYaml | None:
        path = given or crazyflies.parent / name
        expected = f"the {name} that the drones are flown with, as in crazyflie/config of Crazyswarm2"
        return read_lined(path, SwarmError, expected) if given is not None or path.is_file() else None

    expected = "fileversion: 3, robots, robot_types and all, as in crazyflie/config/crazyflies.yaml of Crazyswarm2"
    return SwarmFiles(
        read_lined(crazyflies, SwarmError, expected),
        beside(motion_capture, "motion_capture.yaml"),
        beside(server, "server.yaml"),
    )


def read_swarm(files: SwarmFiles, spec: RobotSpec, only: Sequence[str] = (), types: Sequence[str] = ()) -> Swarm:
    """Return the enabled drones of a configuration.

    Args:
        files: of the configuration.
        spec: of the drones.
        only: names of the drones to check; empty: all that are enabled.
        types: robot types that ``spec`` describes; needed if more than one is in use.

    Raises:
        SwarmError: the text has the first line to change, and the number of further violations.
    """
    found = list(_problems(files, spec, only, types))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise SwarmError(found[0] + more)
    names = [name for name in enabled_robots(files.crazyflies) if not only or name in only]
    robots = tuple(_robot(files.crazyflies, name) for name in names)
    tracked = any(robot.tracked for robot in robots)
    return Swarm(files.crazyflies.file, robots, _mocap_frame(files) if tracked else _frame(files.crazyflies, names[0]))


def check_driver(robot: FleetRobot, folder: Path) -> None:
    """Check the driver configuration in the link of a robot, if it has one; paths are relative to ``folder``.

    Raises:
        SwarmError: a file cannot be read, or a line has to be changed.
    """
    config = robot.link.config
    if not config:
        return
    paths = {name: folder / path for name, path in config.items()}
    files = read_swarm_files(**paths)
    (one,) = read_swarm(files, robot.spec, only=(robot.name,)).robots
    if robot.link.types and one.type not in robot.link.types:
        raise SwarmError(
            f"{files.crazyflies.where('robots', one.name, 'type')}: found {one.type!r}, expected "
            f"{' or '.join(robot.link.types)}: the types that {robot.type} describes in "
            "the fleet file; import again, or change link.types there"
        )


def setting(swarm: LinedYaml, robot: str, *keys: str) -> tuple[Any, str]:
    """Return a setting of a drone, and its line: of the drone, its type, or all."""
    tables = (("robots", robot), ("robot_types", str(swarm.get("robots", robot, "type"))), ("all",))
    for above in tables:
        value = swarm.get(*above, *keys)
        if value is not None:
            return value, swarm.where(*above, *keys)
    return None, swarm.where("all", *keys)


def _problems(files: SwarmFiles, spec: RobotSpec, only: Sequence[str], types: Sequence[str]) -> Iterator[str]:
    swarm = files.crazyflies
    if not is_whole(swarm.get("fileversion"), FILE_VERSION):
        yield f"{swarm.where('fileversion')}: found {shown(swarm.get('fileversion'))}, expected {FILE_VERSION}"
    yield from _unknown(swarm)
    yield from enabled_problems(swarm)
    yield from log_problems(swarm, [keys for pattern in _SETTINGS_IN for keys in _tables(swarm, pattern)])
    names = enabled_robots(swarm)
    if not names:
        yield (
            f"{swarm.where('robots')}: found no enabled drone, expected at least one; write enabled: true below "
            "its name under robots"
        )
    if not only:
        yield from type_problems(swarm, names, types, spec.name)
    for name in only:
        if name not in names:
            yield f"{swarm.where('robots', name)}: found no enabled drone of that name, expected that of the fleet file"
    for name in names:
        if not only or name in only:
            yield from _problems_of(files, name)
    latency = None if files.server is None else files.server.get(*_SERVER)
    limit_ms = 1000 * spec.link_delay_most_s
    if files.server is not None and latency is not None and not number(latency) <= limit_ms:
        yield (
            f"{files.server.where(*_SERVER)}: found {shown(latency, 'ms')}, expected at most {limit_ms:g} ms, the "
            f"largest link delay of {spec.name}"
        )


def _problems_of(files: SwarmFiles, name: str) -> Iterator[str]:
    swarm = files.crazyflies
    kind = swarm.get("robots", name, "type")
    if not _NAME.fullmatch(name):
        yield f"{swarm.where('robots', name)}: found the name {name!r}, expected small letters, digits and _"
    if swarm.get("robot_types", str(kind)) is None:
        yield f"{swarm.where('robots', name, 'type')}: found {kind!r}, expected one of robot_types"
        return
    if swarm.get("robot_types", kind, "big_quad"):
        yield f"{swarm.where('robot_types', kind, 'big_quad')}: found true, expected false: no robot file describes it"
    if not _is_position(swarm.get("robots", name, "initial_position")):
        yield (
            f"{swarm.where('robots', name, 'initial_position')}: found "
            f"{shown(swarm.get('robots', name, 'initial_position'))}, expected three numbers [m] within "
            f"{FARTHEST_M:g} m, the last one from {LOWEST_M:g} m on: the floor is at 0"
        )
    yield from uri_problems(swarm, name)
    yield from _firmware_problems(swarm, name)
    yield from _logging_problem(swarm, name, "status", STATUS_HZ, "for checks of its battery and state")
    tracking = swarm.get("robot_types", kind, "motion_capture", "tracking")
    if tracking is None:
        yield from _logging_problem(
            swarm,
            name,
            "pose",
            POSES_HZ,
            "without motion capture its poses come from here, and 10 Hz, the default, is too low for the shield",
        )
    else:
        yield from _mocap_problems(files, kind, tracking)


def _firmware_problems(swarm: LinedYaml, name: str) -> Iterator[str]:
    controller, where = setting(swarm, name, "firmware_params", "stabilizer", "controller")
    if not is_whole(controller, PID):
        kind = f" ({_CONTROLLERS.get(controller, 'unknown')})" if type(controller) is int else ""
        said = f"{shown(controller)}{kind}"
        yield (
            f"{where}: found {said}, expected {PID} (PID): cmd_velocity_world does not work with another one; write "
            f"controller: {PID}"
        )
    estimator, where = setting(swarm, name, "firmware_params", "stabilizer", "estimator")
    if not is_whole(estimator, KALMAN):
        yield (
            f"{where}: found {shown(estimator)}, expected {KALMAN} (Kalman), which "
            f"fuses poses; write estimator: {KALMAN}"
        )
    high_level, where = setting(swarm, name, "firmware_params", "commander", "enHighLevel")
    if high_level is not None and not is_whole(high_level, 1):
        yield f"{where}: found {shown(high_level)}, expected 1: take-off and landing need it; write enHighLevel: 1"


def _logging_problem(swarm: LinedYaml, name: str, topic: str, needed_hz: float, why: str) -> Iterator[str]:
    enabled, where = setting(swarm, name, "firmware_logging", "enabled")
    if enabled is not True:
        yield f"{where}: found {shown(enabled)}, expected true: {why}"
        return
    keys = ("firmware_logging", "default_topics", topic, "frequency")
    found, where = setting(swarm, name, *keys)
    yield from frequency_problem(found, where, needed_hz, why)


def _mocap_problems(files: SwarmFiles, kind: str, tracking: Any) -> Iterator[str]:
    swarm, mocap = files.crazyflies, files.motion_capture
    if tracking not in ("vendor", "librigidbodytracker"):
        yield (
            f"{swarm.where('robot_types', kind, 'motion_capture', 'tracking')}: found {tracking!r}, expected vendor "
            "or librigidbodytracker"
        )
        return
    if mocap is None:
        yield (
            f"{swarm.where('robot_types', kind, 'motion_capture')}: found no motion_capture.yaml beside it, "
            "expected the rate of poses there; give the file with --motion-capture"
        )
        return
    keys = (*_MOCAP, "topics", "poses", "qos", "deadline")
    rate = mocap.get(*keys)
    if not POSES_HZ <= number(rate) < math.inf:
        yield (
            f"{mocap.where(*keys)}: found {shown(rate, 'Hz')}, expected {POSES_HZ:g} Hz or more; write deadline: "
            f"{POSES_HZ}"
        )
    if tracking == "librigidbodytracker":
        marker = str(swarm.get("robot_types", kind, "motion_capture", "marker"))
        points = mocap.get(*_MOCAP, "marker_configurations", marker, "points")
        if len(table(points)) < 3:
            count = len(table(points))
            where = swarm.where("robot_types", kind, "motion_capture", "marker")
            yield (
                f"{where}: found {marker!r} of {count} points, expected a configuration of 3 or more: with fewer "
                "the pose has no orientation"
            )


def _unknown(swarm: LinedYaml) -> Iterator[str]:
    for pattern, known in _KNOWN:
        for keys in _tables(swarm, pattern):
            found = swarm.get(*keys)
            if not is_table(found):
                yield f"{swarm.where(*keys)}: found {found!r}, expected a table"
            for key in table(found):
                if key not in known:
                    yield f"{swarm.where(*keys, key)}: unknown key; known are {', '.join(sorted(known))}"


def _tables(swarm: LinedYaml, pattern: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the keys of the existing tables that match a pattern."""
    found: list[tuple[str, ...]] = [()]
    for key in pattern:
        found = [(*keys, inner) for keys in found for inner in table(swarm.get(*keys)) if key in ("*", inner)]
    return found


def _robot(swarm: LinedYaml, name: str) -> SwarmRobot:
    kind = swarm.get("robots", name, "type")
    x, y, z = map(float, swarm.get("robots", name, "initial_position"))
    tracked = swarm.get("robot_types", kind, "motion_capture", "tracking") is not None
    return SwarmRobot(name, kind, (x, y, z), tracked)


def _frame(swarm: LinedYaml, name: str) -> str:
    return str(setting(swarm, name, "reference_frame")[0] or "world")


def _mocap_frame(files: SwarmFiles) -> str:
    found = files.motion_capture and files.motion_capture.get(*_MOCAP, "topics", "frame_id")
    return str(found or "world")


def _is_position(value: Any) -> bool:
    inside = is_list(value) and len(value) == 3 and all(abs(number(item)) <= FARTHEST_M for item in value)
    return inside and value[2] >= LOWEST_M
