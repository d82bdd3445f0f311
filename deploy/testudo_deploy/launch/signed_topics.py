"""The topics of a fleet whose messages carry authentication codes: those between processes of this project."""

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.link_topics import TASK_TOPICS, absolute
from testudo_deploy.fleet.pose_source import sensed_topics
from testudo_deploy.launch.fleet_topics import body_topic
from testudo_deploy.launch.topic_names import (
    ANSWERS_TOPIC,
    CHANGE_TOPIC,
    HEARTBEAT_TOPIC,
    LOST_TOPIC,
    ORDERS_TOPIC,
    SCORE_TOPIC,
)
from testudo_deploy.station.policy_change_run import in_use_topics

_ROBOT_TOPICS = ("peer_state", "tick", "cmd_vel_policy", "mode", "guard_status", "flight_order")
_DRIVER_TOPICS = ("flight_request", "vehicle_state")


def signed_topics(fleet: Fleet, backend: str) -> frozenset[str]:
    """Return the absolute names of the signed topics.

    Commands to the actuators and measurements are among them only where the other end is ours: the plant (``backend``
    sim), or a driver of this project. A vendor's driver does not know the code.
    """
    found = {
        SCORE_TOPIC,
        HEARTBEAT_TOPIC,
        LOST_TOPIC,
        ORDERS_TOPIC,
        ANSWERS_TOPIC,
        CHANGE_TOPIC,
        *in_use_topics(fleet.names),
    }
    if backend == "sim":
        found |= {body_topic(body.name) for body in fleet.bodies}
    for robot in fleet.robots:
        name = robot.name
        found |= {f"/{name}/{topic}" for topic in (*_ROBOT_TOPICS, *(TASK_TOPICS if fleet.task is not None else ()))}
        if backend == "sim" or robot.link.profile.driver is not None:
            found |= {f"/{name}/{topic}" for topic in _DRIVER_TOPICS}
            found.add(absolute(robot.link.topics["cmd_vel"], name))
            measured = sensed_topics(robot)
            own_odometry = [topic for topic in measured if topic.kind == "odom"]
            found |= {topic.absolute for topic in (measured if backend == "sim" else own_odometry)}
    return frozenset(found)
