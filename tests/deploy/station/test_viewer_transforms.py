"""Viewers get where each robot is as a transform, unless its localisation sends a chain of its own."""

import math

import pytest
from tests.deploy.turtlebots import load_turtlebots
from tests.hardware import plain_messages as plain

from testudo_deploy.station.robot_markers import RobotView
from testudo_deploy.station.viewer_transforms import transformed_robots, viewer_transforms
from testudo_hardware.links.wire import fill_transform


def view(robot, place=(1.0, 2.0), yaw=0.5, age_s=0.1):
    return RobotView(robot.name, robot.spec, place, yaw, age_s)


def test_robots_without_a_chain_of_their_own_are_placed_in_the_frame_of_the_fleet(tmp_path):
    initial = {"link": "turtlebot4", "pose": {"source": "odom+initial", "frame": "map"}}
    chained = {"link": "turtlebot4", "pose": {"source": "amcl_pose", "frame": "map"}}
    fleet = load_turtlebots(tmp_path, tb1=initial, tb2=chained)
    assert transformed_robots(fleet) == ("tb1",)
    ((frames, reading),) = viewer_transforms(fleet, [view(robot) for robot in fleet.robots], 5.25)
    assert frames == ("map", "tb1/base_link")
    message = fill_transform(plain.transform_stamped(), *frames, reading)
    assert (message.header.frame_id, message.child_frame_id, message.header.stamp.nanosec) == (*frames, 250_000_000)
    assert (message.transform.translation.x, message.transform.translation.y) == (1.0, 2.0)
    assert message.transform.rotation.z == pytest.approx(math.sin(0.25))


@pytest.mark.parametrize("change", [{"place": None}, {"place": (math.nan, 0.0)}, {"yaw": math.inf}, {"age_s": 1.5}])
def test_a_robot_that_is_not_seen_has_no_place(tmp_path, change):
    initial = {"link": "turtlebot4", "pose": {"source": "odom+initial", "frame": "map"}}
    fleet = load_turtlebots(tmp_path, tb1=initial, tb2=initial)
    assert viewer_transforms(fleet, [view(fleet.robot("tb1"), **change)], 0.0) == []
