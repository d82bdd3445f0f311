"""The ROS packages build with colcon, and the install space holds what `ros2 launch` and `ros2 run` look for."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("colcon_ros") is None, reason="colcon is not installed")

PROGRAMS = {"guard_node", "markers_node", "plant_node", "policy_node", "recorder_node", "station_node", "task_node"}
SOURCE = Path(__file__).parents[2] / "ros_ws/src"
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


def modules(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in (".py", ".typed")}


@pytest.mark.parametrize("name", ["testudo_nodes", "testudo_bringup"])
def test_no_module_is_left_out(install, name):
    """A sourced workspace hides the installed package: a room that is missing here is missing for every verb."""
    (site,) = (install / name).glob("lib/python*/site-packages")
    assert modules(site / name) == modules(SOURCE / name / name)


def test_verbs_run_in_a_shell_that_sourced_the_workspace(install):
    (site,) = (install / "testudo_nodes").glob("lib/python*/site-packages")
    # as `. install/setup.bash` does; the installed nodes are found first, then the verb of a benchmark
    code = (
        "import testudo_nodes, testudo_deploy.cli as cli; print(testudo_nodes.__file__); raise SystemExit(cli.main())"
    )
    command = [sys.executable, "-P", "-c", code, "bench", "list"]
    environment = os.environ | {"PYTHONPATH": str(site)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(site))
    assert "redteam" in result.stdout
