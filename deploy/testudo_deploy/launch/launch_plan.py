"""Which processes a fleet needs, and what they say on which topic; pure, so all starters agree.

`testudo up`, the launch file and the tests start what `plan` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.link_topics import FLIGHT_TOPICS, ROBOT_TOPICS, absolute
from testudo_deploy.fleet.pose_source import TRANSFORM_TYPE, PoseSourceReader, sensed_topics
from testudo_deploy.station.station_topics import SCORE_TOPIC
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.topics import CommandWire

PACKAGE = "testudo_nodes"
_ROOMS = {"policy": "robot", "guard": "robot", "driver": "robot", "plant": "plant"}  # of all others: station
SUPERVISOR_VARIABLE = "TESTUDO_SUPERVISOR"
"""Environment variable that holds the process id of the supervisor that started a node."""
BACKENDS = ("sim", "hw")
LEVELS = ("debug", "info", "warn", "error")
WATCHERS = ("task", "markers")
"""Nodes of the station that score the task, and draw for RViz and Foxglove; nothing depends on them."""
DEFAULT_DURATION_S = 60.0

ParameterValue = bool | int | float | str


@dataclass(frozen=True)
class ProcessPlan:
    """One process: a node of a ROS 2 package that is also a Python module."""

    name: str
    """Of the node, and unique in the plan together with the namespace."""
    package: str
    executable: str
    module: str
    namespace: str
    """Without a leading slash; empty for the root."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Further words after `--ros-args`."""

    @property
    def label(self) -> str:
        """Return what to call the process: `r0/policy`, `plant`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class TopicPlan:
    """One topic of a fleet."""

    name: str
    """Absolute."""
    type: str
    """For example `nav_msgs/msg/Odometry`."""
    robot: str
    """Whose it is; empty for the whole fleet."""
    kind: str
    """What it is called in nodes, whatever the robot calls it: `cmd_vel`, `odom`, `pose`."""
    reliable: bool = True
    """Nobody offers less; false: whoever asks for reliable may get nothing."""


MOST_SEED = 2**31 - 1
LEAST_DURATION_S, MOST_DURATION_S = 0.1, 86400.0
EVENTS_TOPIC = "/plant/events"
DIAGNOSTICS_TOPIC = "/diagnostics"
ESTOP_TOPIC = "/estop"
"""`std_msgs/Bool`, a level: true stops the whole fleet. A robot's own `estop` stops that robot."""


def plan(
    fleet: Fleet,
    *,
    run_folder: Path | None,
    backend: str = "sim",
    seed: int = 0,
    duration_s: float = DEFAULT_DURATION_S,
    log_level: str = "warn",
    robot: str = "",
    station: bool = False,
    watch: Sequence[str] = (),
    lock_step: bool = False,
) -> tuple[ProcessPlan, ...]:
    """Return the processes of a fleet: recorder, plant and station, then guard and policy of each robot.

    A real robot whose link has a driver of our own gets that, too, before them; the plant needs none.

    On several computers each starts a part: a robot's computer what runs for ``robot``, the station the rest. All
    parts together are the whole, which is what is returned if neither is asked for.

    Args:
        fleet: the robots and their policy.
        run_folder: where the recorder writes; None records nothing.
        backend: ``sim`` starts the plant for the robots, ``hw`` leaves them to their drivers.
        seed: of the plant.
        duration_s: how long the plant lets the robots drive before it declares the time over.
        log_level: of every node.
        robot: only what runs for this robot.
        station: only what runs for no robot.
        watch: what also runs on the station, of `WATCHERS`.
        lock_step: the plant conducts rounds of simulated time, see `testudo_deploy.launch.lock_step`; else real time.

    Raises:
        TestudoError: unknown backend, log level, robot or watcher, a duration that is not positive, both parts at
            once, or lock-step without the plant.
    """
    _check(backend, log_level, seed, duration_s, watch)
    if robot and station:
        raise TestudoError(f"station: found true with robot {robot!r}, expected one of the two")
    if robot:
        fleet.robot(robot)
    common: dict[str, ParameterValue] = {
        "fleet": str(fleet.file.absolute()),
        "policy": str(fleet.policy),
    }
    nodes = _station_nodes(run_folder, backend, seed, duration_s)
    nodes += [(kind, "", {}) for kind in WATCHERS if kind in watch]
    nodes += _robot_nodes(fleet, backend)
    if lock_step:
        _put_in_rounds(nodes, backend)
    arguments = ("--log-level", log_level)
    whole = not robot and not station
    return tuple(
        ProcessPlan(kind, PACKAGE, f"{kind}_node", node_module(kind), namespace, common | own, arguments)
        for kind, namespace, own in nodes
        if whole or namespace == robot
    )


def node_module(kind: str) -> str:
    """Return the Python module that runs a kind of node."""
    return f"{PACKAGE}.{_ROOMS.get(kind, 'station')}.{kind}_node"


def _robot_nodes(fleet: Fleet, backend: str) -> list[tuple[str, str, dict[str, ParameterValue]]]:
    """Return kind, namespace and own parameters of what runs for robots."""
    nodes: list[tuple[str, str, dict[str, ParameterValue]]] = []
    for name in fleet.names:
        if backend == "hw" and fleet.robot(name).link.profile.driver is not None:
            nodes.append(("driver", name, {"robot": name}))
        stands_in = backend == "sim" and fleet.robot(name).has_flight_phases
        own = {"robot": name, "policy": str(fleet.team_of(name).policy)} | ({"plant_flies": True} if stands_in else {})
        nodes += [("guard", name, own), ("policy", name, own | {"configure": True})]
    return nodes


def _put_in_rounds(nodes: Sequence[tuple[str, str, dict[str, ParameterValue]]], backend: str) -> None:
    """Let all nodes go by simulated time, and tell the plant whom to wait for; who only shows is not waited for.

    Raises:
        TestudoError: there is no plant.
    """
    if backend != "sim":
        raise TestudoError(f"lock_step: found backend {backend!r}, expected sim: real robots do not wait")
    labels = [
        f"{namespace}/{kind}" if namespace else kind for kind, namespace, _ in nodes if kind not in ("plant", "markers")
    ]
    for kind, _, own in nodes:
        if kind == "plant":
            own.update(lock_step=True, lock_step_nodes=" ".join(labels))
        else:
            own.update({"use_sim_time": True} | ({} if kind == "markers" else {"lock_step": True}))


def _station_nodes(
    run_folder: Path | None, backend: str, seed: int, duration_s: float
) -> list[tuple[str, str, dict[str, ParameterValue]]]:
    """Return kind, namespace and own parameters of what runs for no robot."""
    recorder = {
        "run_folder": str(run_folder and run_folder.absolute()),
        "seed": seed,
        "backend": backend,
    }
    plant = {"seed": seed, "duration_s": float(duration_s), "recorded": run_folder is not None}
    nodes: list[tuple[str, str, dict[str, ParameterValue]]] = []
    if run_folder is not None:
        nodes.append(("recorder", "", recorder))
    if backend == "sim":
        nodes.append(("plant", "", plant))
    return [*nodes, ("station", "", {})]


def topics(fleet: Fleet) -> tuple[TopicPlan, ...]:
    """Return the topics of a fleet that the recorder takes: our own, and those of the robots' links and sensors.

    Not in it is what only shows others of them to people: `/diagnostics`, goals and markers.
    """
    found = [
        TopicPlan(topic, "std_msgs/msg/String", "", kind)
        for topic, kind in ((EVENTS_TOPIC, "events"), (SCORE_TOPIC, "score"))
    ]
    found.append(TopicPlan(ESTOP_TOPIC, "std_msgs/msg/Bool", "", "estop"))
    for robot in fleet.robots:
        name = robot.name
        own = {**ROBOT_TOPICS, **(FLIGHT_TOPICS if robot.has_flight_phases else {})}
        found += [TopicPlan(f"/{name}/{kind}", type_, name, kind) for kind, type_ in own.items()]
        commands = CommandWire(name, robot.spec, robot.link.profile)
        found.append(TopicPlan(absolute(robot.link.topics["cmd_vel"], name), commands.type, name, "cmd_vel"))
        found += [
            TopicPlan(topic.absolute, topic.type, name, topic.kind, topic.wire.reliable)
            for topic in sensed_topics(robot)
        ]
        if robot.spec.attitude or "battery_state" in robot.link.topics:
            battery = absolute(robot.link.topics.get("battery_state", "battery_state"), name)
            found.append(TopicPlan(battery, "sensor_msgs/msg/BatteryState", name, "battery_state", reliable=False))
        transforms = PoseSourceReader(robot).transform_topic
        if transforms:
            found.append(TopicPlan(absolute(transforms, name), TRANSFORM_TYPE, name, "tf", reliable=False))
    return tuple({topic.name: topic for topic in found}.values())  # motion capture and tf have one topic for all robots


def ros_arguments(process: ProcessPlan) -> list[str]:
    """Return the words after the program that give a node its name, namespace and parameters."""
    words = ["--ros-args", "-r", f"__node:={process.name}", "-r", f"__ns:=/{process.namespace}"]
    for key, value in process.parameters.items():
        words += ["-p", f"{key}:={_yaml_value(value)}"]
    return [*words, *process.arguments]


def _check(backend: str, log_level: str, seed: int, duration_s: float, watch: Sequence[str]) -> None:
    if backend not in BACKENDS:
        raise TestudoError(f"backend: found {backend!r}, expected one of {', '.join(BACKENDS)}")
    if log_level not in LEVELS:
        raise TestudoError(f"log_level: found {log_level!r}, expected one of {', '.join(LEVELS)}")
    if not 0 <= seed <= MOST_SEED:
        raise TestudoError(f"seed: found {seed}, expected a whole number from 0 to {MOST_SEED}")
    if not LEAST_DURATION_S <= duration_s <= MOST_DURATION_S:
        raise TestudoError(
            f"duration_s: found {duration_s:g}, expected a time-out from {LEAST_DURATION_S:g} to {MOST_DURATION_S:g} s"
        )
    unknown = set(watch) - set(WATCHERS)
    if unknown:
        raise TestudoError(f"watch: found {', '.join(sorted(unknown))}, expected some of {', '.join(WATCHERS)}")


def _yaml_value(value: ParameterValue) -> str:
    """Return the value so that ROS reads back the same type, also of a text like `1`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return repr(value)
