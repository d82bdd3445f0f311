"""The ROS packages build with colcon, and the install space holds what `ros2 launch` and `ros2 run` look for."""

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("colcon_ros") is None, reason="colcon is not installed")

PROGRAMS = {"guard_node", "markers_node", "plant_node", "policy_node", "recorder_node", "station_node", "task_node"}
LAUNCH_FILES = {"fleet.launch.py", "robot.launch.py", "station.launch.py"}


def test_every_node_is_a_program_of_its_package(install):
    found = {file.name for file in (install / "testudo_nodes" / "lib" / "testudo_nodes").iterdir()}
    assert found >= PROGRAMS


def test_launch_files_and_configuration_are_installed(install):
    share = install / "testudo_bringup" / "share" / "testudo_bringup"
    assert {file.name for file in (share / "launch").glob("*.launch.py")} == LAUNCH_FILES
    assert (share / "config" / "fleet.yaml").is_file()
    assert (share / "package.xml").is_file()


@pytest.mark.parametrize("name", ["testudo_nodes", "testudo_bringup"])
def test_packages_are_in_the_index(install, name):
    assert (install / name / "share" / "ament_index" / "resource_index" / "packages" / name).is_file()
