"""The plant's faults over ROS: a bad parameter is refused in one line."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan, ros_arguments

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(120),
]


def test_a_bad_parameter_is_refused_in_one_line(tmp_path):
    process = next(p for p in plan(make_tiny_fleet(tmp_path, 1), run_folder=None) if p.label == "plant")
    process = replace(process, parameters={**process.parameters, "faults": '{"r0": {"braking_share": 7}}'})
    result = subprocess.run(
        [sys.executable, "-m", process.module, *ros_arguments(process)],
        env=FleetProcesses([process]).environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("refused: plant: parameter faults: r0: braking_share: found 7, expected a number above 0")
