"""Launch files of the built workspace, run by the real `launch` in a process of its own, as the command does it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.ros_domain import LOOPBACK

NEEDS = ("launch", "launch_ros", "rclpy", "colcon_ros")
"""Packages that it takes."""
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

    def __init__(self, install, folder, domain_id, file, *, computer=None, **given):
        """Start it, with its arguments; ``computer`` is one of several (`testudo_bench.hosts`), None this machine."""
        packages = [install / name for name in ("testudo_nodes", "testudo_bringup")]
        python = [str(path) for package in packages for path in package.glob("lib/python*/site-packages")]
        environment = FleetProcesses((), domain_id=domain_id).environment()
        environment.pop("TESTUDO_SUPERVISOR")
        words = [sys.executable, "-c", PROGRAM]
        if computer is not None:
            for name in LOOPBACK:
                del environment[name]
            environment |= computer.environment
            words = computer.words(words)
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
            [*words, str(path), *(f"{key}:={value}" for key, value in given.items())],
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

    def kill(self):
        """End what still runs."""
        if self.process.poll() is None or children(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)

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
