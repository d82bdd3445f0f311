"""Where a station hears poses: odometry in the shared frame directly, all others in the records of ticks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.deploy.run_messages import tick_record
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.pose_source import record_topic, recorded_pose, shared_odometry
from testudo_deploy.fleet.robot_links import LinkChoice
from testudo_deploy.fleet.robot_poses import PoseSource
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.spec import load_robot

SPEC = load_robot("gritsbot_x")


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 1).robots[0]


def record(**changes):
    made = tick_record(SimpleNamespace(name="r0", spec=SPEC, goal_world=(1.0, 0.0)), 3, 7.0)
    known = {
        "pose_stamp_s": 6.95,
        "measured_position_world": (0.5, 0.25),
        "measured_yaw": 0.3,
        "measured_velocity": (0.1, 0.0),
    }
    return replace(made, **known | changes)


def test_odometry_in_the_shared_frame_is_heard_where_the_link_says(robot):
    assert shared_odometry(robot) == ("/r0/odom", ("world", "r0/base_link"))
    assert record_topic(robot) == "/r0/tick"
    link = LinkChoice("testudo", load_link("testudo"), {"odom": "odometry/filtered"})
    assert shared_odometry(replace(robot, link=link))[0] == "/r0/odometry/filtered"
    link = LinkChoice("testudo", load_link("testudo"), {"odom": "/elsewhere"})
    assert shared_odometry(replace(robot, link=link))[0] == "/elsewhere"


@pytest.mark.parametrize("source", ["odom+initial", "tf", "amcl_pose", "mocap"])
def test_a_pose_from_elsewhere_is_heard_in_the_records(robot, source):
    assert shared_odometry(replace(robot, pose=PoseSource(source, "world", 0.01, 0.1))) is None


def test_the_pose_of_a_record_keeps_its_stamp_on_the_same_clock_and_its_age_on_another():
    reading = recorded_pose(record(), 7.02)
    assert (reading.stamp_s, reading.position_world, reading.yaw) == (6.95, (0.5, 0.25), 0.3)
    assert recorded_pose(record(), 5000.0).stamp_s == pytest.approx(4999.95)
    assert recorded_pose(record(), 6.0).stamp_s == pytest.approx(5.95)


def test_a_tick_without_a_pose_tells_none():
    assert recorded_pose(record(pose_stamp_s=None), 7.0) is None
