"""Checks the topics of a fleet's links, so that no robot receives or commands what belongs to another one; pure."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from testudo_deploy.fleet.robot_links import FleetError, LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_hardware.links.link_profile import NAMED_POSES, LinkProfile

ROBOT_TOPICS: Mapping[str, str] = {
    "cmd_vel_policy": "geometry_msgs/msg/TwistStamped",
    "applied_cmd_vel": "geometry_msgs/msg/TwistStamped",
    "peer_state": "std_msgs/msg/UInt8MultiArray",
    "tick": "std_msgs/msg/UInt8MultiArray",
    "truth": "nav_msgs/msg/Odometry",
    "mode": "diagnostic_msgs/msg/DiagnosticStatus",
    "guard_status": "diagnostic_msgs/msg/DiagnosticStatus",
    "estop": "std_msgs/msg/Bool",
}
"""Topics in the namespace of each robot, besides those of its link; `truth` is for evaluation only.

The policy publishes on `cmd_vel_policy`; the guard sends its commands and brakes to the driver on `cmd_vel`, or on its
name in the link.
"""
FLIGHT_TOPICS: Mapping[str, str] = {
    "flight_order": "std_msgs/msg/UInt8MultiArray",
    "flight_request": "std_msgs/msg/UInt8MultiArray",
    "vehicle_state": "std_msgs/msg/UInt8MultiArray",
}
"""Topics of a robot with flight phases: orders of its policy, requests of its guard, states of the vehicle."""
TASK_TOPICS: Mapping[str, str] = {"task": "std_msgs/msg/UInt8MultiArray"}
"""Topic of a robot of a fleet with a task: its signals, from the task node."""
TRANSFORM_TOPIC = "/tf"
AMCL_TOPIC = "amcl_pose"
_OWN = (*ROBOT_TOPICS, *FLIGHT_TOPICS, *TASK_TOPICS, "plant_fault", "guard", "policy", "driver")
"""Names in the namespace of a robot for its own nodes, or prefixes of such names."""
_OF_THE_FLEET = {
    *("plant", "fleet", "task", "estop", "diagnostics", "lock_step", "clock"),
    *("station", "station_heartbeat", "emergency_stop", "recorder", "markers", "rosout", "parameter_events"),
}
"""The same from the root."""


def absolute(topic: str, robot: str) -> str:
    """Return the name from the root of a topic of a robot's link."""
    return topic if topic.startswith("/") else f"/{robot}/{topic}"


def check_topics(links: Mapping[str, tuple[LinkChoice, PoseSource]], file: Path) -> None:
    """Refuse links that use topics of others; ``links`` by robot: its link and pose source.

    Raises:
        FleetError: a remapping of a topic that the link lacks, a topic of this project's nodes or in the namespace of
            another robot, one topic for two purposes, or transforms of two robots that cannot be distinguished.
    """
    taken: dict[str, tuple[str, str, str]] = {}
    for robot, (link, pose) in links.items():
        where = f"{file}: robots.{robot}.link"
        known = _known(link.profile)
        for key in (key for key in link.remappings if key not in known):
            raise FleetError(
                f"{where}.remappings.{key}: unknown key; link {link.profile.name!r} has the topics {', '.join(known)}"
            )
        for topic, shared in _used(link, pose):
            name = absolute(link.remappings.get(topic, topic), robot)
            _check_name(name, topic, robot, tuple(links), where)
            if name in taken and (not shared or taken[name][2] != shared):
                raise FleetError(
                    f"{where}: found {name} for {topic!r}, expected a topic of its own: it is "
                    f"{taken[name][1]!r} of {taken[name][0]}"
                )
            taken[name] = (robot, topic, shared)
    _check_transforms(links, file)


def _known(profile: LinkProfile) -> tuple[str, ...]:
    """Return the topics of a link that may be remapped."""
    parts = (profile.command, profile.odometry, profile.pose, profile.battery)
    names = [part.topic.value for part in (*parts, *profile.signals.values()) if part is not None]
    return (*names, *((AMCL_TOPIC, TRANSFORM_TOPIC) if profile.odometry is not None else ()))


def _used(link: LinkChoice, pose: PoseSource) -> Iterator[tuple[str, str]]:
    """Yield the topics of a robot's link by their names in the profile, with the purpose of sharing them."""
    profile = link.profile
    for part in (profile.command, profile.odometry, profile.battery, *profile.signals.values()):
        if part is not None:
            yield part.topic.value, ""
    if pose.source == "amcl_pose":
        yield AMCL_TOPIC, ""
    if pose.source == "tf":
        yield TRANSFORM_TOPIC, TRANSFORM_TOPIC  # `_check_transforms` checks its frames
    if pose.source == "mocap" and profile.pose is not None:
        yield profile.pose.topic.value, NAMED_POSES if profile.pose.type.value == NAMED_POSES else ""


def _check_name(name: str, topic: str, robot: str, robots: tuple[str, ...], where: str) -> None:
    root, _, below = name[1:].partition("/")
    is_other = name == TRANSFORM_TOPIC != topic  # transforms of all robots, and of the node that draws them
    if is_other or root in _OF_THE_FLEET or (root == robot and below.partition("/")[0] in _OWN):
        raise FleetError(
            f"{where}: found {name} for {topic!r}, expected another name: this one is reserved for the "
            "nodes of the fleet"
        )
    if below and root != robot and root in robots:
        raise FleetError(
            f"{where}: found {name} for {topic!r}, expected a topic that is not in the namespace of "
            f"another robot, {root}"
        )


def _check_transforms(links: Mapping[str, tuple[LinkChoice, PoseSource]], file: Path) -> None:
    """Refuse transforms on one topic to one frame: each robot would use the pose of the other."""
    taken: dict[tuple[str, str], str] = {}
    for robot, (link, pose) in links.items():
        if pose.source != "tf":
            continue
        topic = absolute(link.remappings.get(TRANSFORM_TOPIC, TRANSFORM_TOPIC), robot)
        frame = link.profile.odometry_of(robot).frames(robot)[0]
        if (topic, frame) in taken:
            raise FleetError(
                f"{file}: robots.{robot}.pose.source: found tf, with transforms on {topic} to the frame "
                f"{frame!r} as for {taken[topic, frame]}, whose pose it would use; expected another topic "
                f"(`remappings: {{{TRANSFORM_TOPIC}: tf}}` below link) or another frame (`{{robot}}/odom` in your "
                "own link file)"
            )
        taken[topic, frame] = robot
