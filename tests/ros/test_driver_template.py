"""The driver of docs/hardware/driver.md against the real guard and policy over DDS: it drives, and it brakes."""

import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan
from testudo_deploy.station.fleet_status import FleetStatus

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]
PAGE = Path(__file__).parents[2] / "docs/hardware/driver.md"
PATIENCE_S = 80.0


def test_the_driver_of_the_page_drives_as_told_and_stands_without_its_guard(tmp_path):
    from nav_msgs.msg import Odometry

    from testudo_nodes.station.status_listener import StatusListener

    file = tmp_path / "my_driver.py"
    file.write_text(re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1])
    fleet = make_tiny_fleet(tmp_path, 1, start_x=0.0, goal_x=50.0, walls=False)
    speeds, heard = [], FleetStatus(fleet.names)
    with FleetProcesses(plan(fleet, run_folder=None, backend="hw")) as processes:
        words = [sys.executable, str(file), "--ros-args", "-r", "__ns:=/r0"]
        with (
            subprocess.Popen(words, env=processes.environment()) as driver,
            StatusListener(heard, processes.domain_id, local=True) as listener,
        ):
            listener.node.create_subscription(
                Odometry, "/r0/odom", lambda message: speeds.append(message.twist.twist.linear.x), 1
            )
            try:
                listener.listen(PATIENCE_S, enough=lambda: speeds[-25:] and min(speeds[-25:]) > 0.02)
                assert min(speeds[-25:]) > 0.02, heard.robots(0.0)
                processes.signal("r0/guard", signal.SIGSTOP)  # a hang: its topics stay, its commands do not
                listener.listen(5.0, enough=lambda: not any(speeds[-25:]))
                assert not any(speeds[-25:])
            finally:
                processes.signal("r0/guard", signal.SIGCONT)
                driver.kill()
