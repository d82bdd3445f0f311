"""The plant speaks as a robot's driver would, and what it says is understood on the robot."""

import math
from dataclasses import replace

import pytest
from tests.hardware import plain_messages as plain

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import PoseSourceReader
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.links.wire import CommandReading, OdometryReading, fill_named_poses, fill_transform
from testudo_hardware.spec import load_robot
from testudo_plant.plant.link_emulation import LinkEmulation
from testudo_plant.plant.odometry_sensor import OdometryModel

ROS_S, NOW_S = 1.7e9, 400.0
EMPTY = {"odom": plain.odometry, "pose": plain.pose_stamped, "amcl_pose": plain.pose_with_covariance_stamped}


def robot(source, link, kind="turtlebot4", frame="map"):
    spec = load_robot(kind)
    place = (2.0, 1.0, 1.0)[: spec.dimension]
    return FleetRobot(
        "tb1",
        kind,
        place,
        math.pi / 2,
        place,
        spec,
        link=LinkChoice(link, load_link(link)),
        pose=PoseSource(source, frame, 0.0005, spec.pose_max_age_s),
    )


@pytest.mark.parametrize(
    ("source", "link"),
    [
        ("odom", "testudo"),
        ("odom+initial", "turtlebot4"),
        ("amcl_pose", "turtlebot3"),
        ("mocap", "generic_twist"),
        ("mocap", "testudo"),
    ],
)
def test_what_it_says_is_what_was_measured(source, link):
    entry = robot(source, link, frame="world" if source == "odom" else "map")
    stand_in, sensor = LinkEmulation(entry), PoseSourceReader(entry)
    placed = []
    for k in range(40):
        at_s = NOW_S + k / stand_in.rate_hz
        sample = OdometryReading(at_s - 0.03, (2.0, 1.0 + 0.2 * k / stand_in.rate_hz), math.pi / 2, (0.2, 0.0))
        clocks = (ROS_S + at_s, at_s)
        for topic, measurement in stand_in.say(sample, *clocks):
            message = topic.wire.encode(EMPTY[topic.kind](), measurement)
            placed.append((sample, sensor.place(topic, message, *clocks)))
    sample, found = placed[-1]
    age_s = sample.stamp_s - found.stamp_s  # of a velocity from poses alone
    assert age_s == pytest.approx(0.03 if source == "mocap" else 0.0, abs=1e-6)
    assert found.position_world == pytest.approx((2.0, sample.position_world[1] - 0.2 * age_s), abs=1e-5)
    assert found.yaw == pytest.approx(math.pi / 2, abs=1e-6)
    assert found.velocity == pytest.approx((0.2, 0.0), abs=1e-3)


@pytest.mark.parametrize(
    ("link", "message", "stamp_s"),
    [
        ("turtlebot4", plain.twist, NOW_S),
        ("turtlebot3", plain.twist_stamped, NOW_S - 0.02),
    ],
)
def test_commands_are_stamped_on_the_steady_clock(link, message, stamp_s):
    stand_in = LinkEmulation(robot("odom+initial", link))
    sent = stand_in.commands.encode(message(), CommandReading(ROS_S - 0.02, (0.1, -0.4)))
    reading = stand_in.command(sent, ROS_S, NOW_S)
    assert reading.command == (0.1, -0.4)
    assert reading.stamp_s == pytest.approx(stamp_s, abs=1e-6)


def test_wheels_and_a_localisation_that_sends_transforms_are_placed_where_the_robot_is():
    """The wheels are off by 2 % of the way; what the localisation says corrects them."""
    entry = robot("tf", "turtlebot4")
    stand_in, sensor = LinkEmulation(entry, emulates=True), PoseSourceReader(entry)
    placed = []
    for k in range(60):
        at_s, way = NOW_S + k / stand_in.rate_hz, 0.2 * k / stand_in.rate_hz
        sample = OdometryReading(at_s, (2.0, 1.0 + way), math.pi / 2, (0.2, 0.0))
        clocks = (ROS_S + at_s, at_s)
        for topic, measured in stand_in.say(sample, *clocks, PlanarTransform((1.02 * way, 0.0), 0.0)):
            if topic is None:
                message = fill_transform(plain.transform_stamped(), *stand_in.transform_frames, measured)
                sensor.correct([message], *clocks)
            else:
                message = topic.wire.encode(EMPTY[topic.kind](), measured)
                assert message.pose.pose.position.x == pytest.approx(1.02 * way)
                placed.append((sensor.place(topic, message, *clocks), way))
    assert sum(found is not None for found, _ in placed) > 50
    found, way = placed[-1]
    assert found.position_world == pytest.approx((2.0, 1.0 + way), abs=0.003)


def test_the_plant_takes_noise_and_quirks_from_the_profile_only_where_it_emulates():
    plain_robot = LinkEmulation(robot("odom+initial", "turtlebot4")).plant_robot()
    assert (plain_robot.odometry, plain_robot.dead_man_s) == (None, None)
    emulated = LinkEmulation(robot("odom+initial", "turtlebot4"), emulates=True).plant_robot()
    assert (emulated.odometry.position_sigma_m, emulated.odometry.drift) == (0.05, 0.01)
    assert (emulated.odometry.speed_sigma_m_s, emulated.dead_man_s) == (OdometryModel().speed_sigma_m_s, 0.5)


def test_motion_capture_sends_all_robots_of_a_moment_in_one_message_and_each_finds_itself():
    entry = robot("mocap", "crazyswarm2", "crazyflie_2x", frame="world")
    stand_in, sensor = LinkEmulation(entry, emulates=True), PoseSourceReader(entry)
    assert stand_in.shares_poses
    assert stand_in.plant_robot().odometry_phase == LinkEmulation(entry).plant_robot().odometry_phase == 0.5
    placed = []
    for k in range(60):
        at_s = NOW_S + k / stand_in.rate_hz
        sample = OdometryReading(at_s - 0.01, (2.0, 1.0 + 0.2 * k / stand_in.rate_hz, 1.0), 0.3, (0.2, 0.0, 0.0))
        [(topic, measured)] = stand_in.say(sample, ROS_S + at_s, at_s)
        other = replace(measured, position_world=(9.0, 9.0, 9.0))
        poses = {"cf9": other, "tb1": measured}
        message = fill_named_poses(plain.named_poses(), lambda: plain.named_poses("").poses[0], "world", poses)
        assert [body.name for body in message.poses] == ["cf9", "tb1"]
        placed.append((sample, sensor.place(topic, message, ROS_S + at_s, at_s)))
    sample, found = placed[-1]
    assert found.position_world == pytest.approx(sample.position_world, abs=0.01)
    assert found.yaw == pytest.approx(0.3, abs=1e-6)
    without = fill_named_poses(plain.named_poses(), lambda: plain.named_poses("").poses[0], "world", {"cf9": other})
    assert sensor.place(topic, without, ROS_S + at_s, at_s) is None


@pytest.mark.parametrize(("link", "emulates", "serves"), [("crazyswarm2", True, True), ("crazyswarm2", False, False)])
def test_services_of_crazyswarm2_are_served_only_where_the_server_is_emulated(link, emulates, serves):
    stand_in = LinkEmulation(robot("mocap", link, "crazyflie_2x"), emulates=emulates)
    assert (stand_in.serves_flight, stand_in.status_s) == (serves, pytest.approx(0.2 if emulates else 0.1))


def test_other_publishers_of_commands_are_there_only_where_the_driver_is_emulated():
    entry = robot("odom+initial", "turtlebot4")
    assert LinkEmulation(entry, emulates=True).other_publishers == ("teleop_twist_joy_node",)
    assert LinkEmulation(entry).other_publishers == ()
