"""Crazyswarm2's configuration, read and checked: what of it our fleet needs, and which line is in its way.

`crazyflies.yaml` says which drones there are and how they are set up, `motion_capture.yaml` what sees them, and
`server.yaml` what the radio is expected to do. Settings of one drone go before those of its type, and those before
the settings of all. What is not known here is refused: it may change how a drone flies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
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
    type_problems,
    uri_problems,
)
from testudo_deploy.fleet.fleet import FARTHEST_M, FleetRobot
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec

FILE_VERSION = 3
PID, KALMAN = 1, 2
"""Of the firmware's parameters `stabilizer.controller` and `stabilizer.estimator`."""
LOWEST_M = -0.1
"""A drone stands on the floor, or above it."""
POSES_HZ = 100.0
"""Our links count on it: of motion capture, and of logged poses where nothing else tells where a drone is."""
STATUS_HZ = 5.0
"""Battery and state of a drone are looked at twice a second; the check-list and low batteries rest on them."""
_MOCAP = ("/motion_capture_tracking", "ros__parameters")
_SERVER = ("/crazyflie_server", "ros__parameters", "warnings", "communication", "max_unicast_latency")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CONTROLLERS = {0: "automatic", 1: "PID", 2: "Mellinger", 3: "INDI", 4: "Brescianini", 5: "Lee"}
_SETTINGS = {"firmware_params", "firmware_logging", "reference_frame"}
_SETTINGS_IN: tuple[tuple[str, ...], ...] = (("robots", "*"), ("robot_types", "*"), ("all",))
"""Tables in which settings of the firmware may stand."""
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
"""Tables and the keys that may stand in them; `*` is any name."""


class SwarmError(TestudoError):
    """A configuration of Crazyswarm2 does not fit: the text names file, line, key, what was found and expected."""


@dataclass(frozen=True)
class SwarmRobot:
    """One enabled drone."""

    name: str
    type: str
    position_world: tuple[float, float, float]
    """Where it stands [m]."""
    tracked: bool
    """Motion capture tells where it is; else its own log does."""


@dataclass(frozen=True)
class Swarm:
    """The enabled drones of a configuration that fits."""

    file: Path
    robots: tuple[SwarmRobot, ...]
    frame: str
    """In which poses stand."""


@dataclass(frozen=True)
class SwarmFiles:
    """The files of one configuration."""

    crazyflies: LinedYaml
    motion_capture: LinedYaml | None
    server: LinedYaml | None

    @property
    def names(self) -> dict[str, str]:
        """Return the absolute paths of the files that are there, as a fleet file says them."""
        parts = {"crazyflies": self.crazyflies, "motion_capture": self.motion_capture, "server": self.server}
        return {name: str(part.file.absolute()) for name, part in parts.items() if part is not None}


def read_swarm_files(crazyflies: Path, motion_capture: Path | None = None, server: Path | None = None) -> SwarmFiles:
    """Read the files; left out, the two others are looked for beside the first.

    Raises:
        SwarmError: one that is named, or the first, cannot be read.
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
        only: names of those that are looked at; empty: all that are enabled.
        types: of drones, all of which ``spec`` describes; needed where more than one is in use.

    Raises:
        SwarmError: it does not fit; the text tells the first line that is in the way, and how many there are.
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
    """Check the configuration of the driver that the link of a robot names, if it names one.

    Args:
        robot: of a fleet.
        folder: of its fleet file, to which paths are relative.

    Raises:
        SwarmError: a file cannot be read, or does not fit; the text tells the line.
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
            f"{' or '.join(robot.link.types)}: of these the fleet file says that {robot.type} describes "
            "them; import again, or change link.types there"
        )


def setting(swarm: LinedYaml, robot: str, *keys: str) -> tuple[Any, str]:
    """Return a setting of a drone, and where it stands: with the drone, its type, or all."""
    tables = (("robots", robot), ("robot_types", str(swarm.get("robots", robot, "type"))), ("all",))
    for table in tables:
        value = swarm.get(*table, *keys)
        if value is not None:
            return value, swarm.where(*table, *keys)
    return None, swarm.where("all", *keys)


def _problems(files: SwarmFiles, spec: RobotSpec, only: Sequence[str], types: Sequence[str]) -> Iterator[str]:
    swarm = files.crazyflies
    if not is_whole(swarm.get("fileversion"), FILE_VERSION):
        yield f"{swarm.where('fileversion')}: found {shown(swarm.get('fileversion'))}, expected {FILE_VERSION}"
    yield from _unknown(swarm)
    yield from enabled_problems(swarm)
    yield from log_problems(swarm, [table for pattern in _SETTINGS_IN for table in _tables(swarm, pattern)])
    names = enabled_robots(swarm)
    if not names:
        yield (
            f"{swarm.where('robots')}: found none that is enabled, expected at least one; write enabled: true below "
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
    latency = files.server and files.server.get(*_SERVER)
    limit_ms = 1000 * spec.link_delay_most_s
    if latency is not None and not number(latency) <= limit_ms:
        yield (
            f"{files.server.where(*_SERVER)}: found {shown(latency, 'ms')}, expected at most {limit_ms:g} ms: a "
            f"slower radio is not within the delay of the link of {spec.name}"
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
    yield from _logging_problem(swarm, name, "status", STATUS_HZ, "its battery and state are looked at")
    tracking = swarm.get("robot_types", kind, "motion_capture", "tracking")
    if tracking is None:
        yield from _logging_problem(
            swarm,
            name,
            "pose",
            POSES_HZ,
            "no motion capture tells where it is, and 10 Hz, as shipped, are too rare for the shield",
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
            "expected the one that tells how often poses come; give it with --motion-capture"
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
        if not isinstance(points, Mapping) or len(points) < 3:
            count = len(points) if isinstance(points, Mapping) else 0
            where = swarm.where("robot_types", kind, "motion_capture", "marker")
            yield (
                f"{where}: found {marker!r} of {count} points, expected a configuration of 3 or more: with fewer "
                "nobody sees where a drone faces, and its pose comes without an orientation"
            )


def _unknown(swarm: LinedYaml) -> Iterator[str]:
    for pattern, known in _KNOWN:
        for table in _tables(swarm, pattern):
            found = swarm.get(*table) if table else swarm.values
            if not isinstance(found, Mapping):
                yield f"{swarm.where(*table)}: found {found!r}, expected a table"
                continue
            for key in found:
                if key not in known:
                    yield f"{swarm.where(*table, key)}: unknown key; known are {', '.join(sorted(known))}"


def _tables(swarm: LinedYaml, pattern: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Return the tables that are there and that a pattern names."""
    found: list[tuple[str, ...]] = [()]
    for key in pattern:
        above = [(table, swarm.get(*table) if table else swarm.values) for table in found]
        found = [
            (*table, inner)
            for table, value in above
            if isinstance(value, Mapping)
            for inner in (value if key == "*" else (key,))
            if inner in value
        ]
    yield from found


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
    inside = isinstance(value, list) and len(value) == 3 and all(abs(number(item)) <= FARTHEST_M for item in value)
    return inside and value[2] >= LOWEST_M
