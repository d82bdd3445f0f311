"""Serialised messages of a made-up run, without ROS."""

from types import SimpleNamespace

import numpy as np
from rosbags.typesys import Stores, get_typestore

from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.files.bag_writer import RecordedTopic
from testudo_deploy.launch.fleet_topics import topics
from testudo_deploy.launch.run_folder import RunWriter
from testudo_deploy.launch.topic_names import EVENTS_TOPIC
from testudo_hardware.links.wire import CommandReading, OdometryReading, fill_command, fill_odometry

STORE = get_typestore(Stores.ROS2_KILTED)
TYPES = STORE.types
PERIOD_S = 0.033


class RunMessages:
    """Topics of a fleet, and what is said on them at one moment."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.topics = [
            RecordedTopic(
                topic.name,
                topic.type,
                STORE.generate_msgdef(topic.type)[0],
                STORE.hash_rihs01(topic.type),
                reliable=True,
                transient_local=False,
                depth=10,
            )
            for topic in topics(fleet)
        ]

    def at(self, stamp_s, sequence):
        """Yield topic and bytes of every message of one tick."""
        for robot in self.fleet.robots:
            name, spec = robot.name, robot.spec
            position = tuple(x + 0.01 * sequence for x in robot.initial_position_world)
            pose = OdometryReading(stamp_s, position, 3.0 + 0.01 * sequence, (0.1,) * spec.dimension)
            sent = CommandReading(stamp_s, (0.1,) * spec.dimension)
            yield self._odometry(f"/{name}/odom", name, spec, pose)
            yield self._odometry(f"/{name}/truth", name, spec, pose)
            yield self._command(f"/{name}/cmd_vel", name, spec, sent)
            yield self._command(f"/{name}/applied_cmd_vel", name, spec, sent)
            yield envelope(f"/{name}/tick", tick_record(robot, sequence, stamp_s))
            yield envelope(f"/{name}/peer_state", peer_message(robot, sequence, stamp_s))
        text = f'{{"event": "state", "stamp_s": {stamp_s}, "contacts": 0}}'
        event = TYPES["std_msgs/msg/String"](data=text)
        yield EVENTS_TOPIC, serialised(event)

    @staticmethod
    def _odometry(topic, name, spec, reading):
        return topic, serialised(fill_odometry(empty_odometry(), name, spec, reading))

    @staticmethod
    def _command(topic, name, spec, reading):
        message = SimpleNamespace(header=_header(), twist=_twist())
        fill_command(message, name, spec, reading)
        made = TYPES["geometry_msgs/msg/TwistStamped"](message.header, message.twist)
        return topic, serialised(made)


def record(folder, fleet, ticks, period_s=PERIOD_S, late_s=lambda _: 0.0):
    """Record a run of so many ticks, and close it; ``late_s`` says by how much later a tick is than it should be."""
    messages = RunMessages(fleet)
    with RunWriter(folder, messages.topics, fleet) as writer:
        for k in range(ticks):
            stamp_s = writer._start_s + period_s * k + late_s(k)
            for topic, data in messages.at(stamp_s, k):
                writer.write(topic, data, stamp_s + 0.001)
    return folder


def empty_odometry():
    """Return a `nav_msgs/Odometry` of zeros."""
    point = TYPES["geometry_msgs/msg/Point"](0.0, 0.0, 0.0)
    turn = TYPES["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
    pose = TYPES["geometry_msgs/msg/Pose"](point, turn)
    return TYPES["nav_msgs/msg/Odometry"](
        _header(),
        "",
        TYPES["geometry_msgs/msg/PoseWithCovariance"](pose, np.zeros(36)),
        TYPES["geometry_msgs/msg/TwistWithCovariance"](_twist(), np.zeros(36)),
    )


def envelope(topic, value):
    """Return topic and bytes of an envelope."""
    layout = TYPES["std_msgs/msg/MultiArrayLayout"]([], 0)
    data = np.frombuffer(value.encode(), np.uint8)
    return topic, serialised(TYPES["std_msgs/msg/UInt8MultiArray"](layout, data))


def serialised(message):
    """Return a message as CDR."""
    return bytes(STORE.serialize_cdr(message, message.__msgtype__))


def tick_record(robot, sequence, stamp_s):
    """Return the record of a tick that braked."""
    zero = (0.0,) * robot.spec.dimension
    return TickRecord(
        robot=robot.name,
        sequence=sequence,
        stamp_s=stamp_s,
        late_s=0.0,
        duration_s=0.001,
        pose_stamp_s=None,
        measured_position_world=None,
        measured_yaw=None,
        measured_velocity=None,
        pending_commands=(),
        pending_time_s=(),
        estimate_position_world=None,
        estimate_yaw=None,
        estimate_velocity=None,
        control_point_world=None,
        goal_world=robot.goal_world,
        neighbour_names=(),
        neighbour_control_point_world=(),
        neighbour_control_velocity_world=(),
        neighbour_age_s=(),
        neighbour_valid=(),
        neighbour_untrusted=(),
        neighbour_reserved_segment_world=(),
        neighbour_requested_segment_world=(),
        neighbour_acknowledged=(),
        neighbour_excused=(),
        reserved_segment_world=None,
        requested_segment_world=None,
        request_pending=False,
        requested_since=-1,
        decided=False,
        hidden_before=(),
        hidden_after=(),
        nominal_world=None,
        shielded_world=None,
        sent_command=zero,
        change_m_s=0.0,
        status="braked",
        reason="no_pose",
    )


def peer_message(robot, sequence, stamp_s):
    """Return an announcement of a robot at rest."""
    zero = (0.0,) * robot.spec.dimension
    return PeerMessage(
        robot=robot.name,
        epoch="e",
        sequence=sequence,
        stamp_s=stamp_s,
        sample_age_s=0.0,
        control_point_world=robot.initial_position_world,
        control_velocity_world=zero,
        position_world=robot.initial_position_world,
        yaw=0.0,
        contract="",
        reserved_segment_world=(robot.initial_position_world,) * 2,
        requested_segment_world=(robot.initial_position_world,) * 2,
        echoes={},
    )


def _header():
    time = TYPES["builtin_interfaces/msg/Time"](0, 0)
    return TYPES["std_msgs/msg/Header"](time, "")


def _twist():
    vector = TYPES["geometry_msgs/msg/Vector3"]
    return TYPES["geometry_msgs/msg/Twist"](vector(0.0, 0.0, 0.0), vector(0.0, 0.0, 0.0))
