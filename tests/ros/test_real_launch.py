"""`ros2 launch` on the built workspace: the processes of the plan come up, drive, and go at Ctrl-C.

The launch files are run by the real `launch`, in a process of its own, as the command does it.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

NEEDS = ("launch", "launch_ros", "rclpy", "colcon_ros")
MISSING = [name for name in NEEDS if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]
PATIENCE_S = 60.0
PROGRAM = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource
file, *given = sys.argv[1:]
service = LaunchService(noninteractive=True)
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(
    AnyLaunchDescriptionSource(file), launch_arguments=[tuple(word.split(":=", 1)) for word in given])]))
sys.exit(service.run())
"""


class Launched:
    """One launch file that runs, and what it said."""

    def __init__(self, install, folder, domain_id, file, **given):
        packages = [install / name for name in ("testudo_nodes", "testudo_bringup")]
        python = [str(path) for package in packages for path in package.glob("lib/python*/site-packages")]
        environment = FleetProcesses((), domain_id=domain_id).environment()
        environment.pop("TESTUDO_SUPERVISOR")
        environment |= {
            "AMENT_PREFIX_PATH": os.pathsep.join(map(str, packages)),
            # the programs of the workspace begin with `env python3`
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([*python, os.environ.get("PYTHONPATH", "")]),
            "PYTHONUNBUFFERED": "1",
            "ROS_LOG_DIR": str(folder / "log"),
        }
        self._log = (folder / f"{file}_{given.get('robot', '')}.txt").open("w+")
        path = packages[1] / "share/testudo_bringup/launch" / f"{file}.launch.py"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), *(f"{key}:={value}" for key, value in given.items())],
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def said(self):
        """Return everything that was printed."""
        self._log.seek(0)
        return self._log.read()

    def wait_for(self, *texts):
        """Wait until each of the texts was printed."""
        end_s = time.monotonic() + PATIENCE_S
        while not all(text in self.said() for text in texts):
            assert time.monotonic() < end_s, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.1)

    def wait(self):
        """Return the exit status, and that all children are gone."""
        status = self.process.wait(PATIENCE_S)
        return status, not children(self.process.pid)

    def stop(self):
        """Press Ctrl-C, which in a terminal all processes get."""
        os.killpg(self.process.pid, signal.SIGINT)


def children(group):
    """Return the command lines of a process group but for its leader's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != group and os.getpgid(int(entry.name)) == group:
                found.append((entry / "cmdline").read_text().split("\0"))
        except OSError:  # it has just ended
            continue
    return [words for words in found if len(words) > 1]


def running(group):
    """Return program, namespace and name of each node of a process group."""

    def after(words, key):
        return next(word.removeprefix(key) for word in words if word.startswith(key))

    nodes = [words for words in children(group) if "--ros-args" in words]
    return {(Path(words[1]).name, after(words, "__ns:="), after(words, "__node:=")) for words in nodes}


def planned(fleet, **part):
    """Return the same of the plan."""
    return {(item.executable, f"/{item.namespace}", item.name) for item in plan(fleet, run_folder=None, **part)}


@pytest.fixture
def launched(install, tmp_path):
    """Return a starter of launch files that leaves nothing behind."""
    begun = []
    domain_id = FleetProcesses(()).domain_id

    def start(file, **given):
        begun.append(Launched(install, tmp_path, domain_id, file, **given))
        return begun[-1]

    yield start
    for item in begun:
        if item.process.poll() is None or children(item.process.pid):
            os.killpg(item.process.pid, signal.SIGKILL)
            item.process.wait(PATIENCE_S)


@pytest.mark.parametrize("whole", [True, False], ids=["one file for all", "one file for each computer"])
def test_the_fleet_comes_up_drives_and_goes_at_ctrl_c(launched, tmp_path, whole):
    fleet = make_tiny_fleet(tmp_path, 2, start_x=0.0, goal_x=50.0, walls=False)
    unrecorded = {"run_folder": "none"}
    parts = (
        [("fleet", unrecorded, {})]
        if whole
        else [
            ("station", unrecorded, {"station": True}),
            *(("robot", {"robot": name}, {"robot": name}) for name in fleet.names),
        ]
    )
    begun = [(launched(file, fleet=fleet.file, **given), part) for file, given, part in parts]
    for item, part in reversed(begun):
        item.wait_for(*(f"[{name}.policy]: active: active" for name in fleet.names if part in ({}, {"robot": name})))
    for item, part in begun:
        assert running(item.process.pid) == planned(fleet, **part)
    for item, _ in reversed(begun):
        item.stop()
    for item, _ in begun:
        assert item.wait() == (0, True), item.said()
        assert "has died" not in item.said()


def test_a_policy_that_is_not_there_ends_the_launch_with_an_error(launched, tmp_path):
    fleet = make_tiny_fleet(tmp_path, 1)
    item = launched("fleet", fleet=fleet.file, policy=tmp_path / "none.onnx", run_folder="none")
    status, gone = item.wait()
    assert (status, gone) == (1, True), item.said()
    assert "none.onnx: no such file" in item.said()
    assert "refused to start; its own line above gives the reason" in item.said()


def test_an_argument_that_is_misspelt_ends_the_launch_before_anything_starts(launched, tmp_path):
    item = launched("fleet", fleet=make_tiny_fleet(tmp_path, 1).file, run_folder="none", strat="false")
    assert item.wait() == (1, True), item.said()
    assert "strat: unknown argument; fleet.launch.py takes fleet, policy" in item.said()
    assert "process started" not in item.said()
