"""What each process of a plan publishes, subscribes to, serves and calls; pure.

Names are absolute. A test compares them with those of running nodes, in both directions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from testudo_deploy.authentication.process_epochs import EPOCHS_TOPIC
from testudo_deploy.contract.policy_change import in_use_topic
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.hold_switch import chosen_switch
from testudo_deploy.fleet.link_topics import TASK_TOPICS, TRANSFORM_TOPIC, absolute
from testudo_deploy.fleet.pose_source import (
    PoseSourceReader,
    record_topic,
    sensed_topics,
    shared_odometry,
    signal_wires,
)
from testudo_deploy.launch.fleet_topics import body_topic, topics
from testudo_deploy.launch.launch_plan import ProcessPlan
from testudo_deploy.launch.lock_step import CLOCK_TOPIC, DONE_TOPIC, STAGE_TOPIC
from testudo_deploy.launch.topic_names import (
    ANSWERS_TOPIC,
    CHANGE_TOPIC,
    CLICK_TOPIC,
    DIAGNOSTICS_TOPIC,
    DRIVER,
    ESTOP_TOPIC,
    EVENTS_TOPIC,
    GOALS_TOPIC,
    HEARTBEAT_TOPIC,
    LOST_TOPIC,
    MARKERS_TOPIC,
    ORDERS_TOPIC,
    PEER_TOPIC,
    POSE_GOAL_TOPIC,
    SCORE_TOPIC,
    TOOL_NODES,
)
from testudo_deploy.station.button_device import button_choice
from testudo_deploy.station.policy_change_run import in_use_topics
from testudo_deploy.station.viewer_transforms import transformed_robots
from testudo_hardware.errors import TestudoError

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
    """Absolute names of the topics and services of a node; `*` stands for any characters, as in DDS."""

    publishes: frozenset[str] = frozenset()
    subscribes: frozenset[str] = frozenset()
    serves: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()  # subscriptions that exist only at some times, or only with some policies


def process_interfaces(process: ProcessPlan, fleet: Fleet) -> Interfaces:
    """Return the interfaces of a process.

    Raises:
        TestudoError: a process that is not in the table.
    """
    if process.name not in _TABLE:
        raise TestudoError(f"process {process.label}: not in the table of interfaces; known are {', '.join(_TABLE)}")
    own = _with_rclpy(f"/{process.label}", _TABLE[process.name](fleet, process.namespace))
    lock_step = _lock_step(process)
    in_lock_step = bool(lock_step.publishes or process.parameters.get("use_sim_time"))
    keyed = fleet.key_file is not None and not in_lock_step and process.name != "markers"
    epochs = frozenset({EPOCHS_TOPIC} if keyed else ())
    joystick, beats = _of_joystick(process, fleet)
    says, hears = (frozenset[str](), frozenset[str]()) if in_lock_step else _of_policy_change(process, fleet)
    return replace(
        own,
        publishes=own.publishes | lock_step.publishes | epochs | says,
        subscribes=own.subscribes | lock_step.subscribes | epochs | joystick | beats | hears,
        optional=own.optional | beats | (set() if process.parameters.get("use_sim_time") else {CLOCK_TOPIC}),
    )


def _of_policy_change(process: ProcessPlan, fleet: Fleet) -> tuple[frozenset[str], frozenset[str]]:
    """Return the topics of a change of the policy file that a process publishes, and those that it subscribes to."""
    if not fleet.orders or process.name not in ("policy", "guard", "task", "recorder"):
        return frozenset(), frozenset()
    own, others = in_use_topic(process.label), in_use_topics(fleet.names) if process.name == "policy" else ()
    return frozenset({own}), frozenset({CHANGE_TOPIC, *others}) - {own}


def _of_joystick(process: ProcessPlan, fleet: Fleet) -> tuple[frozenset[str], frozenset[str]]:
    """Return the topics of joysticks that a process hears, and the heartbeat through which a guard learns of them."""
    text = str(process.parameters.get("hold_to_run", ""))
    switch = fleet.hold_to_run if process.name in ("emergency_stop", "guard") else None
    switch = chosen_switch(switch, text)
    if process.name == "guard":
        return frozenset(), frozenset({HEARTBEAT_TOPIC} if switch is not None else ())
    button = button_choice(str(process.parameters.get("button", "")))
    topics = [button.topic if button is not None else "", switch.topic if switch is not None else ""]
    return frozenset(topic for topic in topics if topic), frozenset()


def driver_interfaces(fleet: Fleet, robot: str) -> Interfaces:
    """Return the link topics of a robot's driver and localisation; the driver's further topics are not known."""
    own = fleet.robot(robot)
    sensor = PoseSourceReader(own)
    published = {topic.absolute for topic in sensor.topics} | {wire.absolute for wire in signal_wires(own)}
    if sensor.transform_topic:
        published.add(absolute(sensor.transform_topic, robot))
    if own.scan is not None:
        published.add(absolute(own.scan.topic, robot))
    subscribed = {absolute(own.link.topics["cmd_vel"], robot)}
    if own.has_flight_phases:
        published.add(f"/{robot}/vehicle_state")
        subscribed.add(f"/{robot}/flight_request")
    return _with_rclpy(f"/{robot}/{DRIVER}", _interfaces(published, subscribed))


def operator_interfaces(fleet: Fleet) -> Interfaces:
    """Return what an operator may do: see the fleet, stop it, rearm it, give goals, drive by hand."""
    subscribed = [f"/{name}/{kind}" for name in fleet.names for kind in ("mode", "guard_status", "battery_state")]
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
    commands = [absolute(one.link.commands.topic, one.name) for one in fleet.robots if one.link.commands is not None]
    orders = [ORDERS_TOPIC, CHANGE_TOPIC] if fleet.orders else []
    answers = [ANSWERS_TOPIC, *in_use_topics(fleet.names)] if fleet.orders else []
    subscribed += [*_markers(fleet, "").subscribes, GOALS_TOPIC, SCORE_TOPIC]  # the station page
    return _interfaces(
        [*_EVERY_NODE, *stops, *orders, *commands, LOST_TOPIC, *([] if fleet.key_file is None else [EPOCHS_TOPIC])],
        [*subscribed, *answers],
        [f"/{TOOL_NODES}_*/{_TYPES_SERVICE}"],
        [*guard, *policy],
        optional=[*subscribed, *answers],
    )


def _with_rclpy(node: str, own: Interfaces) -> Interfaces:
    """Return the same with the interfaces that every node of rclpy has."""
    services = {f"{node}/{service}" for service in (*_PARAMETER_SERVICES, _TYPES_SERVICE)}
    return replace(
        own,
        publishes=own.publishes | set(_EVERY_NODE),
        serves=own.serves | services,
        subscribes=own.subscribes | {CLOCK_TOPIC},
    )  # with the parameter use_sim_time


def _lock_step(process: ProcessPlan) -> Interfaces:
    """Return the interfaces that lock-step adds."""
    if not process.parameters.get("lock_step"):
        return Interfaces()
    if process.name == "plant":
        return _interfaces([STAGE_TOPIC, CLOCK_TOPIC], [DONE_TOPIC])
    return _interfaces([DONE_TOPIC], [STAGE_TOPIC])


def _policy(fleet: Fleet, robot: str) -> Interfaces:
    own = [f"/{robot}/{kind}" for kind in ("cmd_vel_policy", "peer_state", "tick", "mode")]
    node, sensor, peers = f"/{robot}/policy", PoseSourceReader(fleet.robot(robot)), fleet.peers(robot)
    flies = fleet.robot(robot).has_flight_phases
    subscribed = [topic.absolute for topic in sensor.topics]
    sensed = [wire.absolute for wire in signal_wires(fleet.robot(robot))]
    scan = fleet.robot(robot).scan
    if scan is not None and scan.rows:
        subscribed.append(absolute(scan.topic, robot))
    if sensor.transform_topic:
        subscribed.append(absolute(sensor.transform_topic, robot))
    subscribed += [f"/{robot}/guard_status", *(f"/{peer}/peer_state" for peer in peers)]
    if fleet.tracking:
        subscribed += [topic.absolute for peer in peers for topic in sensed_topics(fleet.robot(peer))]
    follows = fleet.robot(robot).follows
    if follows is not None:
        subscribed.append(f"/{follows.robot}/peer_state")
    if flies:
        own.append(f"/{robot}/flight_order")
        subscribed.append(f"/{robot}/vehicle_state")
    if fleet.task is not None:
        subscribed += [f"/{robot}/{kind}" for kind in TASK_TOPICS]
    names = ("start", "stop", "land") if flies else ("start", "stop")
    services = [f"{node}/{service}" for service in (*names, *_LIFECYCLE_SERVICES)]
    subscribed.append(LOST_TOPIC)
    return _interfaces(
        [*own, DIAGNOSTICS_TOPIC, f"{node}/transition_event"],
        [*subscribed, *sensed],
        services,
        optional=[LOST_TOPIC, *sensed],  # not in lock-step; those that the policy reads
    )


def _guard(fleet: Fleet, robot: str) -> Interfaces:
    own = fleet.robot(robot)
    published = [absolute(own.link.topics["cmd_vel"], robot), f"/{robot}/guard_status", DIAGNOSTICS_TOPIC]
    subscribed = [f"/{robot}/cmd_vel_policy", f"/{robot}/{PEER_TOPIC}", ESTOP_TOPIC, f"/{robot}/estop"]
    services = ["estop", "rearm"]
    sensor = PoseSourceReader(own)
    poses = [topic.absolute for topic in sensor.topics]
    if sensor.transform_topic:
        poses.append(absolute(sensor.transform_topic, robot))
    subscribed += poses
    optional: list[str] = []
    if own.scan is not None:
        subscribed.append(absolute(own.scan.topic, robot))
    if own.has_flight_phases:
        published.append(f"/{robot}/flight_request")
        subscribed += [f"/{robot}/flight_order", f"/{robot}/vehicle_state"]
        services.append("motors_off")
    if fleet.estop_heartbeat_s:
        subscribed.append(HEARTBEAT_TOPIC)
        optional.append(HEARTBEAT_TOPIC)  # not in lock-step
    return _interfaces(published, subscribed, [f"/{robot}/guard/{service}" for service in services], optional=optional)


def _driver(fleet: Fleet, robot: str) -> Interfaces:
    """Return the interfaces of a driver of this project: its end of the link, the battery, and forwarded poses."""
    own = fleet.robot(robot)
    names = own.link.topics
    published = [absolute(names[kind], robot) for kind in ("odom", "battery_state")]
    subscribed = [absolute(names["cmd_vel"], robot), f"/{robot}/flight_request"]
    poses = [absolute(names["pose"], robot)] if own.pose.source == "mocap" else []
    return _interfaces([*published, f"/{robot}/vehicle_state", DIAGNOSTICS_TOPIC], [*subscribed, *poses])


def _station(fleet: Fleet, _: str) -> Interfaces:
    calls = [f"/{name}/policy/{service}" for name in fleet.names for service in ("change_state", "start")]
    return _interfaces(subscribed=[f"/{name}/mode" for name in fleet.names], calls=calls)


def _emergency_stop(fleet: Fleet, _: str) -> Interfaces:
    statuses = [f"/{name}/guard_status" for name in fleet.names]
    return _interfaces([ESTOP_TOPIC, HEARTBEAT_TOPIC], [ESTOP_TOPIC, *statuses])


def _recorder(fleet: Fleet, _: str) -> Interfaces:
    return _interfaces(subscribed=[topic.name for topic in topics(fleet)])


def _plant(fleet: Fleet, _: str) -> Interfaces:
    published: list[str] = [EVENTS_TOPIC, *(body_topic(body.name) for body in fleet.bodies)]
    subscribed: list[str] = [] if fleet.task is None else [SCORE_TOPIC]
    for robot in fleet.robots:
        published += [topic.absolute for topic in sensed_topics(robot)]
        published += [f"/{robot.name}/{kind}" for kind in ("truth", "applied_cmd_vel")]
        subscribed += [absolute(robot.link.topics["cmd_vel"], robot.name), f"/{robot.name}/plant_fault"]
        if robot.spec.attitude:
            published.append(f"/{robot.name}/battery_state")
        if robot.has_flight_phases:
            published.append(f"/{robot.name}/vehicle_state")
            subscribed.append(f"/{robot.name}/flight_request")
    return _interfaces(published, subscribed)


def _task(fleet: Fleet, _: str) -> Interfaces:
    shared = [found[0] for robot in fleet.robots if (found := shared_odometry(robot)) is not None]
    ticks = [record_topic(robot) for robot in fleet.robots]
    bodies = body_topic("*")
    # the policy's scenario decides which bodies there are, and whether ticks are needed beside odometry
    optional = [bodies, *(record_topic(robot) for robot in fleet.robots if shared_odometry(robot) is not None)]
    subscribed = [*(f"/{name}/mode" for name in fleet.names), *shared, *ticks, bodies]
    sent: list[str] = []
    if fleet.task is not None:
        sent = [f"/{name}/{kind}" for name in fleet.names for kind in TASK_TOPICS]
        subscribed += [f"/{name}/{PEER_TOPIC}" for name in fleet.names]
    if fleet.orders:
        sent.append(ANSWERS_TOPIC)
        subscribed += [ORDERS_TOPIC, *([] if fleet.key_file is not None else [POSE_GOAL_TOPIC, CLICK_TOPIC])]
    return _interfaces([SCORE_TOPIC, GOALS_TOPIC, *sent], subscribed, ["/task/restart"], optional=optional)


def _markers(fleet: Fleet, _: str) -> Interfaces:
    subscribed = [f"/{name}/{kind}" for name in fleet.names for kind in ("tick", "peer_state", "mode")]
    subscribed += [found[0] for robot in fleet.robots if (found := shared_odometry(robot)) is not None]
    transforms = [TRANSFORM_TOPIC] if transformed_robots(fleet) else []
    # subscribes only while there is a viewer, and sends transforms only where their type is installed
    return _interfaces([MARKERS_TOPIC, *transforms], subscribed, optional=[*subscribed, *transforms])


_TABLE: dict[str, Callable[[Fleet, str], Interfaces]] = {
    "policy": _policy,
    "guard": _guard,
    DRIVER: _driver,
    "station": _station,
    "emergency_stop": _emergency_stop,
    "recorder": _recorder,
    "plant": _plant,
    "task": _task,
    "markers": _markers,
}
"""By the node name: the interfaces from fleet and robot."""


def _interfaces(
    published: Iterable[str] = (),
    subscribed: Iterable[str] = (),
    serves: Iterable[str] = (),
    calls: Iterable[str] = (),
    optional: Iterable[str] = (),
) -> Interfaces:
    return Interfaces(*(frozenset(names) for names in (published, subscribed, serves, calls, optional)))
