"""What each process of a plan publishes, subscribes to, serves and calls; pure, one table for all who must know.

Names are absolute. A test compares the table with what running nodes say of themselves, both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.link_topics import absolute
from testudo_deploy.fleet.measured_pose_topics import record_topic, shared_odometry
from testudo_deploy.fleet.pose_source import PoseSourceReader, sensed_topics
from testudo_deploy.launch.launch_plan import DIAGNOSTICS_TOPIC, ESTOP_TOPIC, EVENTS_TOPIC, ProcessPlan, topics
from testudo_deploy.launch.lock_step import CLOCK_TOPIC, DONE_TOPIC, TURN_TOPIC
from testudo_deploy.station.station_topics import GOALS_TOPIC, MARKERS_TOPIC, SCORE_TOPIC, body_topic
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.topics import CommandWire

OPERATOR = "operator"
"""Whoever runs `testudo status` and `testudo estop`, or calls services by hand; not a process of the plan."""
DRIVER = "driver"
"""The other end of a robot's link, which on real robots is a process of the plan only where its profile says so."""
TOOL_NODES = "testudo_tool"
"""Beginning of the names of nodes that only a verb of the command line makes; their process id follows."""

_EVERY_NODE = ("/rosout", "/parameter_events")
_PARAMETER_SERVICES = (
    "describe_parameters",
    "get_parameters",
    "get_parameter_types",
    "list_parameters",
    "set_parameters",
    "set_parameters_atomically",
)
_TYPES_SERVICE = "get_type_description"
_LIFECYCLE_SERVICES = (
    "change_state",
    "get_state",
    "get_available_states",
    "get_available_transitions",
    "get_transition_graph",
)


@dataclass(frozen=True)
class Interfaces:
    """Absolute names of what a node speaks on; `*` stands for any characters, as in DDS."""

    publishes: frozenset[str] = frozenset()
    subscribes: frozenset[str] = frozenset()
    serves: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    at_times: frozenset[str] = frozenset()
    """Those of the subscribed that it hears at times only, or not with every policy."""


def process_interfaces(process: ProcessPlan, fleet: Fleet) -> Interfaces:
    """Return what a process of a plan speaks on.

    Args:
        process: of `testudo_deploy.launch.launch_plan.plan`.
        fleet: of the same plan.

    Raises:
        TestudoError: a process that is not in the table.
    """
    if process.name not in _TABLE:
        raise TestudoError(f"process {process.label}: not in the table of interfaces; known are {', '.join(_TABLE)}")
    own = _of_a_node(f"/{process.label}", _TABLE[process.name](fleet, process.namespace))
    rounds = _rounds(process)
    return replace(
        own,
        publishes=own.publishes | rounds.publishes,
        subscribes=own.subscribes | rounds.subscribes,
        at_times=own.at_times if process.parameters.get("use_sim_time") else own.at_times | {CLOCK_TOPIC},
    )


def driver_interfaces(fleet: Fleet, robot: str) -> Interfaces:
    """Return what the driver of a robot, and what locates it, need of its link; a driver's own topics are its own."""
    own = fleet.robot(robot)
    sensor = PoseSourceReader(own)
    said = {topic.absolute for topic in sensor.topics}
    if sensor.transform_topic:
        said.add(absolute(sensor.transform_topic, robot))
    heard = {absolute(own.link.topics["cmd_vel"], robot)}
    if own.has_flight_phases:
        said.add(f"/{robot}/vehicle_state")
        heard.add(f"/{robot}/flight_request")
    return _of_a_node(f"/{robot}/{DRIVER}", _interfaces(said, heard))


def operator_interfaces(fleet: Fleet) -> Interfaces:
    """Return what an operator may do: see how the fleet stands, stop it, and take a stop back."""
    heard = [f"/{name}/{kind}" for name in fleet.names for kind in ("mode", "guard_status", "battery_state")]
    flying = [robot.name for robot in fleet.robots if robot.has_flight_phases]
    guard = [f"/{name}/guard/{service}" for name in fleet.names for service in ("estop", "rearm")]
    guard += [f"/{name}/guard/motors_off" for name in flying]
    policy = [
        f"/{name}/policy/{service}"
        for name in fleet.names
        for service in ("start", "stop", "change_state", "get_state")
    ]
    policy += [f"/{name}/policy/land" for name in flying]
    stops = [ESTOP_TOPIC, *(f"/{name}/estop" for name in fleet.names)]
    return _interfaces(
        [*_EVERY_NODE, *stops], heard, [f"/{TOOL_NODES}_*/{_TYPES_SERVICE}"], [*guard, *policy], at_times=heard
    )


def _of_a_node(node: str, own: Interfaces) -> Interfaces:
    """Return the same with what every node of rclpy has."""
    services = {f"{node}/{service}" for service in (*_PARAMETER_SERVICES, _TYPES_SERVICE)}
    return replace(
        own,
        publishes=own.publishes | set(_EVERY_NODE),
        serves=own.serves | services,
        subscribes=own.subscribes | {CLOCK_TOPIC},
    )  # with the parameter use_sim_time


def _rounds(process: ProcessPlan) -> Interfaces:
    """Return what lock-step adds."""
    if not process.parameters.get("lock_step"):
        return Interfaces()
    if process.name == "plant":
        return _interfaces([TURN_TOPIC, CLOCK_TOPIC], [DONE_TOPIC])
    return _interfaces([DONE_TOPIC], [TURN_TOPIC])


def _policy(fleet: Fleet, robot: str) -> Interfaces:
    own = [f"/{robot}/{kind}" for kind in ("cmd_vel_policy", "peer_state", "tick", "mode")]
    node, sensor, peers = f"/{robot}/policy", PoseSourceReader(fleet.robot(robot)), fleet.peers(robot)
    flies = fleet.robot(robot).has_flight_phases
    heard = [topic.absolute for topic in sensor.topics]
    if sensor.transform_topic:
        heard.append(absolute(sensor.transform_topic, robot))
    heard += [f"/{robot}/guard_status", *(f"/{peer}/peer_state" for peer in peers)]
    if fleet.tracking:
        heard += [topic.absolute for peer in peers for topic in sensed_topics(fleet.robot(peer))]
    follows = fleet.robot(robot).follows
    if follows is not None:
        heard.append(f"/{follows.robot}/peer_state")
    if flies:
        own.append(f"/{robot}/flight_order")
        heard.append(f"/{robot}/vehicle_state")
    words = ("start", "stop", "land") if flies else ("start", "stop")
    services = [f"{node}/{service}" for service in (*words, *_LIFECYCLE_SERVICES)]
    return _interfaces([*own, DIAGNOSTICS_TOPIC, f"{node}/transition_event"], heard, services)


def _guard(fleet: Fleet, robot: str) -> Interfaces:
    said = [absolute(fleet.robot(robot).link.topics["cmd_vel"], robot), f"/{robot}/guard_status", DIAGNOSTICS_TOPIC]
    heard = [f"/{robot}/cmd_vel_policy", ESTOP_TOPIC, f"/{robot}/estop"]
    words = ["estop", "rearm"]
    own = fleet.robot(robot)
    if CommandWire(robot, own.spec, own.link.profile).needs_place:
        heard += [topic.absolute for topic in sensed_topics(own)]
    if fleet.robot(robot).has_flight_phases:
        said.append(f"/{robot}/flight_request")
        heard += [f"/{robot}/flight_order", f"/{robot}/vehicle_state"]
        words.append("motors_off")
    return _interfaces(said, heard, [f"/{robot}/guard/{service}" for service in words])


def _driver(fleet: Fleet, robot: str) -> Interfaces:
    """Return what a driver of our own speaks on: its end of the link, the battery, and poses that it passes on."""
    own = fleet.robot(robot)
    names = own.link.topics
    said = [absolute(names[kind], robot) for kind in ("odom", "battery_state")]
    heard = [absolute(names["cmd_vel"], robot), f"/{robot}/flight_request"]
    poses = [absolute(names["pose"], robot)] if own.pose.source == "mocap" else []
    return _interfaces([*said, f"/{robot}/vehicle_state", DIAGNOSTICS_TOPIC], [*heard, *poses])


def _station(fleet: Fleet, _: str) -> Interfaces:
    calls = [f"/{name}/policy/{service}" for name in fleet.names for service in ("change_state", "start")]
    return _interfaces(heard=[f"/{name}/mode" for name in fleet.names], calls=calls)


def _recorder(fleet: Fleet, _: str) -> Interfaces:
    return _interfaces(heard=[topic.name for topic in topics(fleet)])


def _plant(fleet: Fleet, _: str) -> Interfaces:
    said, heard = [EVENTS_TOPIC], []
    for robot in fleet.robots:
        said += [topic.absolute for topic in sensed_topics(robot)]
        said += [f"/{robot.name}/{kind}" for kind in ("truth", "applied_cmd_vel")]
        heard += [absolute(robot.link.topics["cmd_vel"], robot.name), f"/{robot.name}/plant_fault"]
        if robot.spec.attitude:
            said.append(f"/{robot.name}/battery_state")
        if robot.has_flight_phases:
            said.append(f"/{robot.name}/vehicle_state")
            heard.append(f"/{robot.name}/flight_request")
    return _interfaces(said, heard)


def _task(fleet: Fleet, _: str) -> Interfaces:
    shared = [found[0] for robot in fleet.robots if (found := shared_odometry(robot)) is not None]
    ticks = [record_topic(robot) for robot in fleet.robots]
    bodies = body_topic("*")
    # which bodies there are, and whether it needs the ticks beside odometry, is up to the policy's scenario
    rare = [bodies, *(record_topic(robot) for robot in fleet.robots if shared_odometry(robot) is not None)]
    heard = [*(f"/{name}/mode" for name in fleet.names), *shared, *ticks, bodies]
    return _interfaces([SCORE_TOPIC, GOALS_TOPIC], heard, ["/task/restart"], at_times=rare)


def _markers(fleet: Fleet, _: str) -> Interfaces:
    heard = [f"/{name}/{kind}" for name in fleet.names for kind in ("tick", "peer_state", "mode")]
    heard += [found[0] for robot in fleet.robots if (found := shared_odometry(robot)) is not None]
    return _interfaces([MARKERS_TOPIC], heard, at_times=heard)  # while somebody looks


_TABLE: dict[str, Callable[[Fleet, str], Interfaces]] = {
    "policy": _policy,
    "guard": _guard,
    DRIVER: _driver,
    "station": _station,
    "recorder": _recorder,
    "plant": _plant,
    "task": _task,
    "markers": _markers,
}
"""By the kind of process, which is its node's name: from fleet and robot."""


def _interfaces(
    said: Iterable[str] = (),
    heard: Iterable[str] = (),
    serves: Iterable[str] = (),
    calls: Iterable[str] = (),
    at_times: Iterable[str] = (),
) -> Interfaces:
    return Interfaces(*(frozenset(names) for names in (said, heard, serves, calls, at_times)))
