"""Bags as others write them: by the library rosbags, and older ones by taking away what they lacked."""

import re
import sqlite3

import numpy as np
import yaml
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

NANO = 1_000_000_000
START_NS = 1_700_000_000 * NANO
STORE = get_typestore(Stores.ROS2_KILTED)
NAMED_POSE = "motion_capture_tracking_interfaces/msg/NamedPose"
NAMED_POSES = "motion_capture_tracking_interfaces/msg/NamedPoseArray"
CUSTOM = "lab_msgs/msg/Thrust"
DEFINITIONS = {
    NAMED_POSE: "string name\ngeometry_msgs/Pose pose\n",
    NAMED_POSES: "std_msgs/Header header\nNamedPose[] poses\n",
    CUSTOM: "builtin_interfaces/Time at\nstring mode\nfloat32[4] newton\n",
}
for _name, _text in DEFINITIONS.items():
    STORE.register(get_types_from_msg(_text, _name))
_T = STORE.types
_QOS = Qos(
    QosHistory.KEEP_LAST,
    10,
    QosReliability.BEST_EFFORT,
    QosDurability.VOLATILE,
    QosTime(0, 0),
    QosTime(0, 0),
    QosLiveliness.AUTOMATIC,
    QosTime(0, 0),
    avoid_ros_namespace_conventions=False,
)


def header(stamp_ns, frame):
    return _T["std_msgs/msg/Header"](_T["builtin_interfaces/msg/Time"](*divmod(int(stamp_ns), NANO)), frame)


def vector(values):
    return _T["geometry_msgs/msg/Vector3"](*map(float, values))


def pose(values):
    """Return a Pose of x y z qx qy qz qw."""
    return _T["geometry_msgs/msg/Pose"](
        _T["geometry_msgs/msg/Point"](*map(float, values[:3])),
        _T["geometry_msgs/msg/Quaternion"](*map(float, values[3:7])),
    )


def twist(values):
    return _T["geometry_msgs/msg/Twist"](vector(values[:3]), vector(values[3:6]))


def transform(stamp_ns, parent, child, values):
    turn = _T["geometry_msgs/msg/Quaternion"](*map(float, values[3:7]))
    return _T["geometry_msgs/msg/TransformStamped"](
        header(stamp_ns, parent), child, _T["geometry_msgs/msg/Transform"](vector(values[:3]), turn)
    )


def message(kind, stamp_ns, values, frame="world", child=""):
    """Return a message of a kind (short name), its numbers in the order of our roles."""
    return _MAKERS[kind](header(stamp_ns, frame), values, child)


def _odometry(head, values, child):
    many = np.zeros(36)
    return _T["nav_msgs/msg/Odometry"](
        head,
        child,
        _T["geometry_msgs/msg/PoseWithCovariance"](pose(values[:7]), many),
        _T["geometry_msgs/msg/TwistWithCovariance"](twist(values[7:]), many),
    )


def _transform(head, values, child):
    return transform(head.stamp.sec * NANO + head.stamp.nanosec, head.frame_id, child, values)


def _imu(head, values, _):
    none, nine = _T["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0), np.zeros(9)
    return _T["sensor_msgs/msg/Imu"](head, none, nine, vector(values[3:]), nine, vector(values[:3]), nine)


def _battery(head, values, _):
    empty = np.zeros(0, np.float32)
    return _T["sensor_msgs/msg/BatteryState"](head, float(values[0]), *[0.0] * 6, 0, 0, 0, True, empty, empty, "", "")


def _joints(head, values, _):
    return _T["sensor_msgs/msg/JointState"](
        head, ["m2", "m1", "m3", "m4"], np.zeros(0), np.zeros(0), np.array([values[1], values[0], values[2], values[3]])
    )


def _named(head, values, child):
    ghost = _T[NAMED_POSE]("ghost", pose(np.zeros(7)))
    return _T[NAMED_POSES](head, [ghost, _T[NAMED_POSE](child, pose(values))])


_MAKERS = {
    "Odometry": _odometry,
    "PoseStamped": lambda head, values, _: _T["geometry_msgs/msg/PoseStamped"](head, pose(values)),
    "PoseWithCovarianceStamped": lambda head, values, _: _T["geometry_msgs/msg/PoseWithCovarianceStamped"](
        head, _T["geometry_msgs/msg/PoseWithCovariance"](pose(values), np.zeros(36))
    ),
    "TransformStamped": _transform,
    "TFMessage": lambda head, values, child: _T["tf2_msgs/msg/TFMessage"]([_transform(head, values, child)]),
    "Twist": lambda _head, values, _: twist(values),
    "TwistStamped": lambda head, values, _: _T["geometry_msgs/msg/TwistStamped"](head, twist(values)),
    "Imu": _imu,
    "JointState": _joints,
    "BatteryState": _battery,
    "NamedPoseArray": _named,
    "Clock": lambda head, _values, _: _T["rosgraph_msgs/msg/Clock"](head.stamp),
    "Thrust": lambda head, values, _: _T[CUSTOM](head.stamp, "rate", np.array(values, np.float32)),
}


TYPES = {
    name.rpartition("/")[2]: name
    for name in (
        "nav_msgs/msg/Odometry",
        "geometry_msgs/msg/PoseStamped",
        "geometry_msgs/msg/PoseWithCovarianceStamped",
        "geometry_msgs/msg/TransformStamped",
        "tf2_msgs/msg/TFMessage",
        "geometry_msgs/msg/Twist",
        "geometry_msgs/msg/TwistStamped",
        "sensor_msgs/msg/Imu",
        "sensor_msgs/msg/JointState",
        "sensor_msgs/msg/BatteryState",
        "rosgraph_msgs/msg/Clock",
        NAMED_POSES,
        CUSTOM,
    )
}


def write_bag(path, rows, *, storage="mcap", version=9, compression=None, signed=lambda data: data):
    """Write a bag; each row is (topic, kind, log_ns, message); ``signed`` changes the serialised messages."""
    writer = Writer(
        path, version=version, storage_plugin=StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3
    )
    if compression:
        writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for topic, kind, log_ns, content in rows:
            name = TYPES[kind]
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, name, typestore=STORE, offered_qos_profiles=[_QOS])
            writer.write(connections[topic], int(log_ns), signed(bytes(STORE.serialize_cdr(content, name))))
    return path


def make_older(path, version):
    """Take from a bag (of version 8) what rosbag2 did not write yet at an older version of its metadata."""
    file = path / "metadata.yaml"
    tables = yaml.safe_load(file.read_text())
    facts = tables["rosbag2_bagfile_information"]
    facts["version"] = version
    newer = {8: ["ros_distro"], 6: ["custom_data"], 5: ["files"], 3: ["compression_format", "compression_mode"]}
    for since, keys in newer.items():
        if version < since:
            for key in keys:
                facts.pop(key, None)
    for entry in facts["topics_with_message_count"]:
        if version < 7:
            entry["topic_metadata"].pop("type_description_hash")
        if version < 4:
            entry["topic_metadata"].pop("offered_qos_profiles")
    if version < 4:
        facts["relative_file_paths"] = [f"{path.name}/{name}" for name in facts["relative_file_paths"]]
    file.write_text(yaml.safe_dump(tables, sort_keys=False))
    for base in path.glob("*.db3") if version < 7 else ():
        _make_tables_older(base, version)
    return path


def _make_tables_older(base, version):
    connection = sqlite3.connect(base)
    steps = [
        "DROP TABLE message_definitions",
        "DROP TABLE metadata",
        "ALTER TABLE topics DROP COLUMN type_description_hash",
        "DROP TABLE schema" if version < 6 else "UPDATE schema SET schema_version = 3",
    ]
    steps += ["ALTER TABLE topics DROP COLUMN offered_qos_profiles"] if version < 4 else []
    for step in steps:
        connection.execute(step)
    connection.commit()
    connection.close()


def drive(count=400, rate=50.0, seed=0, lag_s=0.0):
    """Return times [s], commands (T, 6) and the poses (T, 7) and velocities (T, 6) of a robot that follows them."""
    rng = np.random.default_rng(seed)
    times = np.arange(count) / rate
    knots = np.arange(0, times[-1] + 2, 0.7)
    speed = np.interp(times, knots, rng.uniform(0, 0.3, len(knots)))
    turn = np.interp(times, knots, rng.uniform(-1, 1, len(knots)))
    command = np.zeros((count, 6))
    command[:, 0], command[:, 5] = speed, turn
    late = [np.interp(times - lag_s, times, column) for column in (speed, turn)]
    yaw = np.cumsum(late[1]) / rate
    places = np.stack([np.cumsum(late[0] * np.cos(yaw)), np.cumsum(late[0] * np.sin(yaw))], axis=1) / rate
    poses = np.zeros((count, 7))
    poses[:, :2], poses[:, 5], poses[:, 6] = places, np.sin(yaw / 2), np.cos(yaw / 2)
    velocity = np.zeros((count, 6))
    velocity[:, 0], velocity[:, 5] = late
    return times, command, poses, velocity


def mapping(text, name="map.yaml"):
    """Return a parsed mapping with these lines in its section `topics`."""
    from testudo_runs.importing.mapping.mapping_file import parse_map

    lines = "".join(f"  - {line}\n" for line in re.split(r"\n+", text.strip()))
    return parse_map(f"schema: testudo/map/1\nname: lab\nabout: test\ntopics:\n{lines}", name)
