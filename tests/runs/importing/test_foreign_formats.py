"""Bags of ROS 1 and logs of PX4 are read as what they are; fields of bags have units, scales, axes and float stamps."""

import struct

import numpy as np
import pytest
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_typestore
from tests.runs.importing.bag_maker import NANO, START_NS, drive, mapping, pose, twist, write_bag
from tests.runs.importing.test_bags import read, rows_of

from testudo_hardware.errors import TestudoError
from testudo_runs.bags.bag_contents import BagError
from testudo_runs.importing.bags import read_bags
from testudo_runs.importing.mapping.mapping_file import MapError
from testudo_runs.importing.run_import import ImportRequest, import_run

ROS1 = get_typestore(Stores.ROS1_NOETIC)
TOPICS = """
{topic: /r0/odom, robot: r0, role: odometry}
{topic: /r0/cmd_vel, robot: r0, role: command}
"""


def write_ros1(path, times, command, poses, velocity):
    types = ROS1.types
    with Writer(path) as writer:
        odometry = writer.add_connection("/r0/odom", "nav_msgs/msg/Odometry", typestore=ROS1)
        cmd_vel = writer.add_connection("/r0/cmd_vel", "geometry_msgs/msg/Twist", typestore=ROS1)
        for k, time in enumerate(times):
            stamp = START_NS + round(time * NANO)
            head = types["std_msgs/msg/Header"](k, types["builtin_interfaces/msg/Time"](*divmod(stamp, NANO)), "/odom")
            message = types["nav_msgs/msg/Odometry"](
                head,
                "base_link",
                types["geometry_msgs/msg/PoseWithCovariance"](pose(poses[k]), np.zeros(36)),
                types["geometry_msgs/msg/TwistWithCovariance"](twist(velocity[k]), np.zeros(36)),
            )
            writer.write(odometry, stamp + 1_000_000, ROS1.serialize_ros1(message, "nav_msgs/msg/Odometry"))
            data = ROS1.serialize_ros1(twist(command[k]), "geometry_msgs/msg/Twist")
            writer.write(cmd_vel, stamp + 2_000_000, data)


def test_a_bag_of_ros_1_gives_the_numbers_and_stamps_that_were_written(tmp_path):
    times, command, poses, velocity = drive(100)
    write_ros1(tmp_path / "old.bag", times, command, poses, velocity)
    damage = []
    found = read_bags([tmp_path / "old.bag"], mapping(TOPICS), lambda _: None, damage)
    assert damage == []
    odometry, commands = (found.robots["r0"].find(role) for role in ("odometry", "command"))
    np.testing.assert_array_equal(odometry.values, np.hstack([poses, velocity]))
    np.testing.assert_allclose(odometry.stamp_s, times - times[0], atol=1e-6)
    np.testing.assert_array_equal(commands.values, command)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.6])
def test_a_cut_bag_of_ros_1_is_refused_with_the_remedy(tmp_path, share):
    write_ros1(tmp_path / "whole.bag", *drive(100))
    data = (tmp_path / "whole.bag").read_bytes()
    (tmp_path / "cut.bag").write_bytes(data[: 13 + round(share * len(data))])
    with pytest.raises(BagError, match=r"cut\.bag: this bag of ROS 1 cannot be read .*rosbag reindex"):
        read_bags([tmp_path / "cut.bag"], mapping(TOPICS), lambda _: None, [])


def ulog(rows):
    """Return a ULog with `vehicle_odometry` (PX4 1.14) of rows (stamp [us], position, q, velocity, rates)."""

    def record(kind, body):
        return struct.pack("<HB", len(body), ord(kind)) + body

    text = "uint64_t timestamp;float[3] position;float[4] q;float[3] velocity;float[3] angular_velocity;"
    data = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0) + record("B", bytes(40))
    data += record("F", f"vehicle_odometry:{text}".encode()) + record(
        "A", struct.pack("<BH", 0, 3) + b"vehicle_odometry"
    )
    return data + b"".join(record("D", struct.pack("<HQ13f", 3, int(row[0]), *row[1:])) for row in rows)


def circle(count=400):
    """Return rows of a drone that flies a circle counter-clockwise seen from above, nose ahead, at 1 m, in NED."""
    time = 0.02 * np.arange(count)
    angle = 0.5 * time
    heading = -angle  # clockwise from north is positive; the circle begins to the north
    zero = 0 * time
    columns = [1e6 * time, 0.8 * np.sin(angle), -0.8 * (1 - np.cos(angle)), zero - 1.0]
    columns += [np.cos(heading / 2), zero, zero, np.sin(heading / 2)]
    columns += [0.4 * np.cos(angle), -0.4 * np.sin(angle), zero, zero, zero, zero - 0.5]
    return np.stack(columns, axis=1)


def test_a_log_of_px4_comes_out_in_rep_103(tmp_path):
    (tmp_path / "uav1.ulg").write_bytes(ulog(circle()))
    result = import_run(ImportRequest((tmp_path / "uav1.ulg",), None, {"": "crazyflie_2x"}), tmp_path / "run")
    assert result.losses == ()
    assert result.report["implausible"] == []
    found = result.recording.robots["uav1"].find("odometry")
    angle = 0.5 * found.stamp_s
    np.testing.assert_allclose(found.values[:, 0], -0.8 * (1 - np.cos(angle)), atol=1e-6)  # x is east
    np.testing.assert_allclose(found.values[:, 1], 0.8 * np.sin(angle), atol=1e-6)
    np.testing.assert_allclose(found.values[:, 2], 1.0, atol=1e-6)
    np.testing.assert_allclose(2 * np.arctan2(found.values[:, 5], found.values[:, 6]), np.pi / 2 + angle, atol=1e-6)
    np.testing.assert_allclose(found.values[:, 7:10], [[0.4, 0, 0]] * len(angle), atol=1e-6)  # ahead, in the body
    np.testing.assert_allclose(found.values[:, 12], 0.5, atol=1e-6)


def test_a_cut_log_of_px4_gives_what_is_before_the_cut_and_a_torn_one_a_sentence(tmp_path):
    whole = ulog(circle())
    (tmp_path / "uav1.ulg").write_bytes(whole[: 9 * len(whole) // 10])
    result = import_run(ImportRequest((tmp_path / "uav1.ulg",), None, {"": "crazyflie_2x"}), tmp_path / "run")
    assert len(result.recording.robots["uav1"].find("odometry")) > 300
    (tmp_path / "uav2.ulg").write_bytes(whole[:20])
    with pytest.raises(TestudoError, match=r"uav2\.ulg|nothing in the source can be used"):
        import_run(ImportRequest((tmp_path / "uav2.ulg",), None, {"": "crazyflie_2x"}), tmp_path / "run2")


ENTRY = (
    "{topic: /x, robot: r0, role: pose, axes: ned, fields: {x: {column: pose.pose.position.x, unit: mm}, "
    "y: {column: pose.pose.position.y, unit: mm}, z: {column: pose.pose.position.z, unit: mm, scale: -1}, "
    "yaw: {column: twist.twist.linear.x, unit: deg}, stamp: {column: twist.twist.linear.y}}}"
)


def test_fields_of_a_bag_have_units_scales_axes_and_stamps_as_numbers(tmp_path):
    count = 50
    values = np.zeros((count, 13))
    values[:, 0], values[:, 1], values[:, 2] = 1000.0, 2000.0, 500.0
    values[:, 7] = np.linspace(0, 90, count)
    values[:, 8] = START_NS / NANO + 0.02 * np.arange(count)  # as a float
    rows, _ = rows_of("Odometry", values)
    bag = write_bag(tmp_path / "bag", rows)
    found, damage = read(bag, ENTRY)
    assert damage == []
    series = found.robots["r0"].find("pose")
    np.testing.assert_allclose(series.values[:, :3], [[2.0, 1.0, 0.5]] * count, atol=1e-12)
    yaw = 2 * np.arctan2(series.values[:, 5], series.values[:, 6])
    np.testing.assert_allclose(yaw, np.pi / 2 - np.radians(values[:, 7]), atol=1e-9)
    np.testing.assert_allclose(series.stamp_s, 0.02 * np.arange(count), atol=1e-6)
    whole = ENTRY.replace("twist.twist.linear.y}", "header.stamp.sec}")
    with pytest.raises(BagError, match=r"fields\.stamp: header\.stamp\.sec is an integer; expected its unit"):
        read(bag, whole)
    with pytest.raises(MapError, match=r"fields\.yaw\.unit: found 'turns', expected one of rad, mrad, deg"):
        read(bag, ENTRY.replace("unit: deg", "unit: turns"))
    with pytest.raises(MapError, match=r"axes: found 'enu_up', expected one of"):
        read(bag, ENTRY.replace("axes: ned", "axes: enu_up"))
