"""Topics of a fleet that are recorded, and publishers that do not belong there; pure. Names are absolute."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.link_topics import FLIGHT_TOPICS, ROBOT_TOPICS, TASK_TOPICS, absolute
from testudo_deploy.fleet.pose_source import (
    TRANSFORM_TYPE,
    PoseSourceReader,
    sensed_topics,
    signal_wires,
)
from testudo_deploy.launch.topic_names import (
    ANSWERS_TOPIC,
    ESTOP_TOPIC,
    EVENTS_TOPIC,
    ORDERS_TOPIC,
    PEER_TOPIC,
    SCORE_TOPIC,
)
from testudo_hardware.links.link_profile import POSE_STAMPED
from testudo_hardware.links.topics import CommandWire


@dataclass(frozen=True)
class TopicPlan:
    """One topic of a fleet."""

    name: str  # absolute
    type: str  # for example `nav_msgs/msg/Odometry`
    robot: str  # the robot of the topic; empty for the whole fleet
    kind: str  # name of the topic in our nodes, which a link may remap: `cmd_vel`, `odom`, `pose`
    reliable: bool = True  # false: a publisher may offer best effort only, which a reliable subscription does not match


def body_topic(body: str) -> str:
    """Return the topic of the measured pose of a scenario's body: `geometry_msgs/PoseStamped`, in the fleet's frame."""
    return f"/task/{body}/pose"


def topics(fleet: Fleet) -> tuple[TopicPlan, ...]:
    """Return the topics that the recorder takes: our own, and those of the robots' links and sensors.

    Topics that only display others are left out: `/diagnostics`, goals and markers.
    """
    found = [
        TopicPlan(EVENTS_TOPIC, "std_msgs/msg/String", "", "events"),
        TopicPlan(SCORE_TOPIC, "std_msgs/msg/String", "", "score"),
        TopicPlan(ESTOP_TOPIC, "std_msgs/msg/Bool", "", "estop"),
    ]
    if fleet.orders:
        found += [TopicPlan(name, "std_msgs/msg/String", "", "order") for name in (ORDERS_TOPIC, ANSWERS_TOPIC)]
    for robot in fleet.robots:
        name = robot.name
        own = {**ROBOT_TOPICS, **(FLIGHT_TOPICS if robot.has_flight_phases else {})}
        own |= {} if fleet.task is None else TASK_TOPICS
        found += [TopicPlan(f"/{name}/{kind}", type_, name, kind) for kind, type_ in own.items()]
        commands = CommandWire(name, robot.spec, robot.link.profile)
        found.append(TopicPlan(absolute(robot.link.topics["cmd_vel"], name), commands.type, name, "cmd_vel"))
        found += [
            TopicPlan(topic.absolute, topic.type, name, topic.kind, topic.wire.reliable)
            for topic in sensed_topics(robot)
        ]
        found += [
            TopicPlan(wire.absolute, wire.part.type.value, name, "signal", wire.reliable)
            for wire in signal_wires(robot)
        ]
        if robot.spec.attitude or "battery_state" in robot.link.topics:
            battery = absolute(robot.link.topics.get("battery_state", "battery_state"), name)
            found.append(TopicPlan(battery, "sensor_msgs/msg/BatteryState", name, "battery_state", reliable=False))
        transforms = PoseSourceReader(robot).transform_topic
        if transforms:
            found.append(TopicPlan(absolute(transforms, name), TRANSFORM_TYPE, name, "tf", reliable=False))
    found += [TopicPlan(body_topic(body.name), POSE_STAMPED, "", "pose", reliable=False) for body in fleet.bodies]
    return tuple({topic.name: topic for topic in found}.values())  # motion capture and tf have one topic for all robots


def unknown_robots(topics: Iterable[str], robots: Sequence[str]) -> list[str]:
    """Return the names of robots that have a topic for peers and are not in the fleet."""
    found = (topic[1:].partition("/") for topic in topics)
    return sorted({name for name, _, kind in found if kind == PEER_TOPIC and name not in robots})


def foreign_publishers(found: Sequence[str], own: str, allowed: Sequence[str] = ()) -> list[str]:
    """Return the nodes that publish on a topic reserved for the node ``own``.

    Args:
        found: absolute names of nodes, one entry for each publisher on the topic.
        own: absolute name of the node that may publish; a second entry of this name is another process.
        allowed: names without namespace of further nodes that may publish, from the link profile.
    """
    rest = list(found)
    if own in rest:
        rest.remove(own)
    return [name for name in rest if name.rpartition("/")[2] not in allowed]
