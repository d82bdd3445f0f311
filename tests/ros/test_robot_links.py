"""Robots of other drivers over real DDS: the plant stands in for them, in their words."""

import subprocess
import sys
from dataclasses import replace
from importlib import resources
from importlib.util import find_spec

import numpy as np
import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.launch.launch_plan import plan, ros_arguments
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]

ROBOTS = {
    "r0": {"link": "turtlebot4", "pose": {"source": "amcl_pose", "frame": "map"}},
    "r1": {
        "link": {"profile": "generic_twist", "remappings": {"cmd_vel": "base/cmd", "pose": "/mocap/r1"}},
        "pose": {"source": "mocap", "frame": "map", "sigma": 0.002},
    },
}
"""Twist, and wheel odometry that amcl places; TwistStamped, and poses alone; all stamps on the ROS clock."""

JOYSTICK = """
import sys, time, rclpy
from geometry_msgs.msg import Twist
rclpy.init()
node = rclpy.create_node("teleop_twist_joy_node")
publisher = node.create_publisher(Twist, sys.argv[1], 1)
time.sleep(600)
"""
"""As on a TurtleBot 4: there from the beginning, and silent while nobody holds its button."""


def test_a_fleet_of_two_drivers_and_pose_sources_arrives(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 2, "turtlebot4", walls=False)
    tables = yaml.safe_load(fleet.file.read_text())
    for k, (name, link) in enumerate(ROBOTS.items()):
        # far enough from each other, and turned so that one frame taken for another would show
        where = {"initial_position": [0.1, 1.5 * k], "initial_yaw": 0.6 - 1.2 * k, "goal": [0.4, 1.5 * k]}
        tables["robots"][name] |= where | link
    fleet.file.write_text(yaml.safe_dump(tables))
    fleet = load_fleet(fleet.file)
    joystick = FleetProcesses([])
    program = subprocess.Popen([sys.executable, "-c", JOYSTICK, "/r0/cmd_vel"], env=joystick.environment())
    try:
        state = run_fleet(fleet, run_folder=tmp_path / "run", seed=1, duration_s=90.0, domain_id=joystick.domain_id)
    finally:
        program.kill()
        program.wait()
    assert state.success, (state.outcome, state.lines)
    assert state.contacts == 0
    assert [line for line in state.lines if "is not started" not in line] == []  # a busy machine takes its time
    run = read_run(tmp_path / "run")
    assert (run.complete, run.warnings) == (True, ())
    for name in run.robots:
        known, true, sent = run.odometry[name], run.truth[name], run.sent[name]
        assert 0.0 < np.median(known.received_s - known.stamp_s) < 0.2
        where = [np.interp(known.stamp_s, true.stamp_s, values) for values in true.position_world.T]
        assert np.abs(np.transpose(where) - known.position_world).max() < 0.06
        assert np.abs(sent.command).max() > 0.05
        assert -0.01 < np.median(sent.received_s - sent.stamp_s) < 0.1


TYPE = """
import sys, time, rclpy
rclpy.init()
node = rclpy.create_node("onlooker")
while not (found := node.get_publishers_info_by_topic(sys.argv[1])):
    time.sleep(0.05)
print(found[0].topic_type)
"""


def guard_of(fleet):
    return next(process for process in plan(fleet, run_folder=None) if process.name == "guard")


def test_the_guard_has_the_parameter_of_nav2(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    guard = guard_of(fleet)
    guard = replace(guard, parameters={**guard.parameters, "enable_stamped_cmd_vel": False})
    with FleetProcesses([guard]) as processes:
        found = subprocess.run(
            [sys.executable, "-c", TYPE, "/r0/cmd_vel"],
            env=processes.environment(),
            timeout=60,
            capture_output=True,
            text=True,
            check=True,
        )
    assert found.stdout.strip() == "geometry_msgs/msg/Twist"


def test_a_set_point_whose_message_is_not_installed_is_refused_in_one_line(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1, "crazyflie_2x", walls=False)
    profile = (resources.files("testudo_hardware") / "links/profiles/crazyswarm2.toml").read_text()
    (tmp_path / "hover.toml").write_text(profile.replace('value = "velocity_world"', 'value = "hover"'))
    tables = yaml.safe_load(fleet.file.read_text())
    tables["robots"]["r0"] |= {"link": "hover.toml", "pose": {"source": "mocap", "frame": "world"}}
    fleet.file.write_text(yaml.safe_dump(tables))
    guard = guard_of(load_fleet(fleet.file))
    result = subprocess.run(
        [sys.executable, "-m", guard.module, *ros_arguments(guard)],
        capture_output=True,
        text=True,
        env=FleetProcesses([guard]).environment(),
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    reason = "not installed; expected the ROS package crazyflie_interfaces"
    assert result.stderr.splitlines() == [f"refused: crazyflie_interfaces/msg/Hover: {reason}"]
