"""A fleet of emulated TurtleBot 4 over real DDS, in lock-step: noise of 5 cm, wheels that drift, and the filter."""

from importlib.util import find_spec

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_analysis.identify.robot_file_writer import robot_text
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.launch.launch_plan import with_emulation
from testudo_hardware.spec import load_robot

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(600),
]
SOURCES = {
    "r0": {"source": "odom", "frame": "odom"},  # a pose with noise in each odometry message
    "r1": {"source": "odom", "frame": "odom"},
}


def emulated_fleet(folder, *, filtered):
    """Return two TurtleBot 4 that state 5 cm of error in their file, with or without the filter."""
    tables = load_robot("turtlebot4").to_dict()
    for key, value in (("position_error", 0.05), ("pose_max_age", 0.25)):
        tables["sensing"][key] |= {"value": value, "interval": [value, value]}
    (folder / "robot.toml").write_text(robot_text(tables, []))
    fleet = make_tiny_fleet(folder, 2, str(folder / "robot.toml"), walls=False)
    entries = yaml.safe_load(fleet.file.read_text())
    for k, (name, pose) in enumerate(SOURCES.items()):
        extra = {"sigma": 0.05, "yaw_sigma": 0.035, "filter": "kalman"} if filtered else {}
        where = {"initial_position": [0.0, 2.0 * k], "initial_yaw": 0.5, "goal": [0.4, 2.0 * k]}
        entries["robots"][name] |= {**where, "link": "turtlebot4", "pose": {**pose, **extra}}
    fleet.file.write_text(yaml.safe_dump(entries))
    return load_fleet(fleet.file)


@pytest.mark.parametrize("filtered", [True, False])
def test_turtlebots_with_poses_of_5_cm_arrive_with_the_filter_and_never_without(tmp_path, filtered):
    fleet = emulated_fleet(tmp_path, filtered=filtered)
    state = run_fleet(
        fleet,
        run_folder=None,
        seed=1,
        duration_s=40.0 if filtered else 10.0,
        lock_step=True,
        adapt=lambda plan: with_emulation(plan, emulates=True),
    )
    assert (state.success, state.contacts) == (filtered, 0), (state.outcome, state.lines)
