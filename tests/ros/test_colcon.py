"""The ROS packages build with colcon, and the install space holds what `ros2 launch` and `ros2 run` look for."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("colcon_ros") is None, reason="colcon is not installed")

PROGRAMS = {"guard_node", "markers_node", "plant_node", "policy_node", "recorder_node", "station_node", "task_node"}
LAUNCH_FILES = {"fleet.launch.py", "robot.launch.py", "station.launch.py"}


@pytest.fixture(scope="module")
def install(tmp_path_factory):
    """Return the install space of a build of `ros_ws`, outside of the repository."""
    space = tmp_path_factory.mktemp("colcon")
    words = ["build", "--base-paths", ROOT / "ros_ws" / "src", "--build-base", space / "build", "--install-base",
             space / "install"]
    result = subprocess.run(
        [Path(sys.executable).with_name("colcon"), "--log-base", space / "log", *words],
        cwd=space, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 packages finished" in result.stdout
    return space / "install"


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
