"""From the messages of a pose source to places in the fleet's frame, on the steady clock."""

import math
from types import SimpleNamespace

import pytest
from tests.hardware import plain_messages as plain

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import PoseSourceReader
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_hardware.links.link_profile import NAMED_POSES, ODOMETRY, POSE_STAMPED, POSE_WITH_COVARIANCE, load_link
from testudo_hardware.links.wire import OdometryReading, PoseReading, WireError, fill_odometry, fill_pose, fill_stamp
from testudo_hardware.spec import load_robot

QUARTER = math.pi / 2
STEADY_S, ROS_S = 500.0, 1.7e9
"""Both clocks at one moment."""


def robot(source, link="turtlebot4", kind="turtlebot4", frame="map", remappings=None):
    spec = load_robot(kind)
    place = (2.0, 1.0, 1.0)[: spec.dimension]
    choice = LinkChoice(link, load_link(link), remappings or {})
    return FleetRobot(
        "tb1",
        kind,
        place,
        QUARTER,
        place,
        spec,
        link=choice,
        pose=PoseSource(source, frame, 0.0005, spec.pose_max_age_s),
    )


def odometry(sensor, position=(0.5, 0.0), *, age_s=0.02, stamp_s=None):
    wire = sensor.topics[0].wire
    reading = OdometryReading(ROS_S - age_s if stamp_s is None else stamp_s, position, 0.0, (0.2, 0.1))
    return fill_odometry(plain.odometry(), "tb1", wire.spec, reading, wire.frames)


def posed(message, where, position, yaw, *, frame="map", stamp_s=ROS_S - 0.02):
    fill_stamp(message.header.stamp, stamp_s)
    message.header.frame_id = frame
    fill_pose(where, position, yaw)
    return message


@pytest.mark.parametrize(
    ("source", "link", "kind", "expected"),
    [
        ("odom", "testudo", "turtlebot4", [("odom", "odom", ODOMETRY)]),
        ("odom+initial", "turtlebot4", "turtlebot4", [("odom", "odom", ODOMETRY)]),
        ("tf", "generic_twist", "turtlebot4", [("odom", "odom", ODOMETRY)]),
        (
            "amcl_pose",
            "turtlebot3",
            "turtlebot3_burger",
            [("odom", "odom", ODOMETRY), ("amcl_pose", "amcl_pose", POSE_WITH_COVARIANCE)],
        ),
        ("mocap", "turtlebot4", "turtlebot4", [("pose", "pose", POSE_STAMPED)]),
        ("mocap", "crazyswarm2", "crazyflie_2x", [("pose", "/poses", NAMED_POSES)]),
    ],
)
def test_the_source_decides_what_is_heard(source, link, kind, expected):
    frame = "world" if source == "odom" else "map"
    sensor = PoseSourceReader(robot(source, link, kind, frame))
    assert [(topic.kind, topic.name, topic.type) for topic in sensor.topics] == expected
    assert sensor.transform_topic == ("/tf" if source == "tf" else "")


def test_topics_are_called_as_the_robot_calls_them():
    renamed = {"odom": "/base/odometry", "amcl_pose": "slam/pose", "/tf": "tf"}
    sensor = PoseSourceReader(robot("amcl_pose", remappings=renamed))
    assert [topic.name for topic in sensor.topics] == ["/base/odometry", "slam/pose"]
    assert PoseSourceReader(robot("tf", remappings=renamed)).transform_topic == "tf"


def test_odometry_is_placed_and_its_stamp_brought_to_the_steady_clock():
    sensor = PoseSourceReader(robot("odom+initial"))
    assert sensor.uses_ros_time
    reading = sensor.place(sensor.topics[0], odometry(sensor, age_s=0.02), ROS_S, STEADY_S)
    assert reading.position_world == pytest.approx((2.0, 1.5))
    assert reading.yaw == pytest.approx(QUARTER)
    assert reading.stamp_s == pytest.approx(STEADY_S - 0.02, abs=1e-6)


def test_stamps_of_our_own_driver_are_taken_as_they_are():
    sensor = PoseSourceReader(robot("odom", "testudo", frame="world"))
    assert not sensor.uses_ros_time
    message = odometry(sensor, stamp_s=499.9)
    assert sensor.place(sensor.topics[0], message, ROS_S, STEADY_S).stamp_s == pytest.approx(499.9, abs=1e-9)


def test_odometry_of_another_frame_is_refused():
    sensor = PoseSourceReader(robot("odom+initial"))
    message = odometry(sensor)
    message.header.frame_id = "map"
    with pytest.raises(WireError, match="found frames"):
        sensor.place(sensor.topics[0], message, ROS_S, STEADY_S)


def test_without_its_transform_a_robot_is_nowhere_and_with_it_in_the_map():
    sensor = PoseSourceReader(robot("tf"))
    topic = sensor.topics[0]
    assert sensor.place(topic, odometry(sensor), ROS_S, STEADY_S) is None
    other, own = plain.transform_stamped(), plain.transform_stamped()
    other.header.frame_id, other.child_frame_id = "odom", "base_link"
    own.header.frame_id, own.child_frame_id = "map", "odom"
    fill_stamp(own.header.stamp, ROS_S)
    shift = SimpleNamespace(position=own.transform.translation, orientation=own.transform.rotation)
    fill_pose(shift, (3.0, 0.0), QUARTER)
    sensor.correct([other, own], ROS_S, STEADY_S)
    reading = sensor.place(topic, odometry(sensor), ROS_S, STEADY_S)
    assert reading.position_world == pytest.approx((3.0, 0.5))
    late_s = 2.0  # nothing corrected it since
    later = odometry(sensor, age_s=0.02 - late_s)
    assert sensor.place(topic, later, ROS_S + late_s, STEADY_S + late_s) is None


def test_amcl_places_the_odometry_of_its_moment():
    sensor = PoseSourceReader(robot("amcl_pose"))
    odom, amcl = sensor.topics
    for age_s in (0.1, 0.05):
        assert sensor.place(odom, odometry(sensor, age_s=age_s), ROS_S, STEADY_S) is None
    message = plain.pose_with_covariance_stamped()
    posed(message, message.pose.pose, (4.0, 0.0), 0.0, stamp_s=ROS_S - 0.07)
    assert sensor.place(amcl, message, ROS_S, STEADY_S) is None
    reading = sensor.place(odom, odometry(sensor, age_s=0.0), ROS_S, STEADY_S)
    assert reading.position_world == pytest.approx((4.0, 0.0))


def test_poses_alone_get_a_velocity_once_there_are_enough_of_them():
    sensor = PoseSourceReader(robot("mocap"))
    places = []
    for k in range(30):
        message = plain.pose_stamped()
        posed(message, message.pose, (0.002 * k, 0.0), 0.0, stamp_s=ROS_S + 0.01 * k)
        now_s = 0.01 * k + 0.005
        places.append(sensor.place(sensor.topics[0], message, ROS_S + now_s, STEADY_S + now_s))
    assert places[0] is None
    assert places[-1].velocity == pytest.approx((0.2, 0.0), abs=1e-3)


def test_a_peer_is_seen_from_the_first_pose_on():
    sensor = PoseSourceReader(robot("mocap"))
    message = plain.pose_stamped()
    posed(message, message.pose, (1.0, 2.0), 0.0)
    reading = sensor.read(sensor.topics[0], message, ROS_S, STEADY_S)
    assert isinstance(reading, PoseReading)
    assert reading.position_world == (1.0, 2.0)
    assert reading.stamp_s == pytest.approx(STEADY_S - 0.02, abs=1e-6)
    named = PoseSourceReader(robot("mocap", "crazyswarm2", "crazyflie_2x"))
    message = posed(plain.named_poses("tb2"), plain.pose(), (1.0, 2.0), 0.0)
    assert named.read(named.topics[0], message, ROS_S, STEADY_S) is None


def test_a_run_of_a_robot_whose_clock_was_ahead_of_the_recorder_is_read():
    """On the robot the same message is of the future, and refused."""
    for live, is_read in ((True, False), (False, True)):
        sensor = PoseSourceReader(robot("mocap"), live=live)
        for k in range(30):
            message = plain.pose_stamped()
            posed(message, message.pose, (0.002 * k, 0.0), 0.0, stamp_s=ROS_S + 0.01 * k)
            now_s = 0.01 * k - 60.0
            found = sensor.place(sensor.topics[0], message, ROS_S + now_s, STEADY_S + now_s)
        assert (found is not None) == is_read
