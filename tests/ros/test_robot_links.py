"""Robots of other drivers over real DDS: the plant stands in for them, in their words."""

from importlib.util import find_spec

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.drive import drive
from testudo_deploy.fleet import load_fleet

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]

ROBOTS = {
    "r0": {"link": "turtlebot4", "pose": {"source": "odom+initial", "frame": "map"}},
    "r1": {
        "link": {"profile": "generic_twist", "remappings": {"cmd_vel": "base/cmd", "pose": "/mocap/r1"}},
        "pose": {"source": "mocap", "frame": "map", "sigma": 0.002},
    },
    "r2": {"link": "turtlebot3", "pose": {"source": "amcl_pose", "frame": "map"}},
}
"""Twist on the ROS clock with wheel odometry; TwistStamped with poses alone; wheel odometry that amcl places."""


def test_a_fleet_of_three_drivers_and_pose_sources_arrives(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 3, "turtlebot4", walls=False)
    tables = yaml.safe_load(fleet.file.read_text())
    for k, (name, link) in enumerate(ROBOTS.items()):
        # far enough from each other, and turned so that one frame taken for another would show
        where = {"initial_position": [0.1, 1.5 * k], "initial_yaw": 0.6 - 0.5 * k, "goal": [0.4, 1.5 * k]}
        tables["robots"][name] |= where | link
    fleet.file.write_text(yaml.safe_dump(tables))
    state = drive(load_fleet(fleet.file), run_folder=None, seed=1, duration_s=30.0)
    assert state.success, (state.outcome, state.lines)
    assert state.contacts == 0
    assert state.lines == []
