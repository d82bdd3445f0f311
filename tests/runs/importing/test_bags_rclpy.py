"""Messages that ROS 2 itself serialised give the values that were in them."""

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from tests.runs.importing.bag_maker import START_NS, STORE, mapping

from testudo_runs.importing.bags import read_bags
from testudo_runs.recording.recording import ROLES

pytestmark = pytest.mark.ros
ROLE = {
    "nav_msgs/msg/Odometry": "odometry",
    "geometry_msgs/msg/PoseStamped": "pose",
    "geometry_msgs/msg/TwistStamped": "command",
    "sensor_msgs/msg/Imu": "imu",
    "sensor_msgs/msg/JointState": "motors",
    "sensor_msgs/msg/BatteryState": "battery",
}


def filled(kind, values):
    """Return a message of ROS 2 with the channels of a role, and what its bytes are."""
    from rclpy.serialization import serialize_message

    package, _, name = kind.split("/")
    content = getattr(pytest.importorskip(f"{package}.msg"), name)()
    content.header.frame_id, content.header.stamp.sec = "world", START_NS // 1_000_000_000
    if name == "JointState":
        content.name, content.effort = ["m1", "m2", "m3", "m4"], list(values)
        return serialize_message(content)
    for path, value in zip(ROLES[ROLE[kind]].paths, values, strict=True):
        *owners, last = path.split(".")
        owner = content
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, last, float(value))
    return serialize_message(content)


@pytest.mark.parametrize("kind", ROLE)
def test_messages_of_ros_itself(tmp_path, kind):
    pytest.importorskip("rclpy", reason="ROS 2 (rclpy) is not installed")
    values = np.random.default_rng(0).normal(size=(20, len(ROLES[ROLE[kind]].channels)))
    values = values.astype(np.float32).astype(float) if "Battery" in kind else values
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/x", kind, typestore=STORE)
        for k, row in enumerate(values):
            writer.write(connection, START_NS + k, filled(kind, row))
    damage = []
    found = read_bags(
        [tmp_path / "bag"], mapping(f"{{topic: /x, robot: r0, role: {ROLE[kind]}}}"), lambda _: None, damage
    )
    np.testing.assert_array_equal(found.robots["r0"].find(ROLE[kind]).values, values)
    assert not damage
