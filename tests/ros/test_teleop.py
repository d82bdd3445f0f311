"""`testudo teleop` over real DDS, in a terminal of its own: a held key drives, no key stands, Ctrl-C brakes."""

import os
import pty
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
if find_spec("rclpy") is not None:
    from tests.ros.bench import Observer
    from tests.ros.test_commanded import commanded_robot


@pytest.mark.slow
def test_a_key_drives_the_robot_while_it_is_held_and_the_end_brakes_it(tmp_path, quick):
    fleet = commanded_robot(tmp_path)
    with FleetProcesses(plan(fleet, run_folder=None, duration_s=600.0)) as processes:
        environment = processes.environment()
        dds = {name: environment[name] for name in environment if name.startswith(("ROS_A", "FAST"))}
        observer = Observer(processes.domain_id, fleet.robots[0], dds)
        keyboard, terminal = pty.openpty()
        words = ["teleop", str(fleet.file), "r0", "--domain", str(processes.domain_id), "--local"]
        program = subprocess.Popen(
            [sys.executable, "-m", "testudo_deploy.cli", *words], stdin=terminal, stdout=terminal, stderr=terminal
        )
        try:
            observer.bring_up()
            begin_s = time.monotonic()
            time.sleep(1.0)
            assert not any(any(reading.command) for at, reading in observer.heard.sent if at > begin_s)

            def drives():
                os.write(keyboard, b"w")
                time.sleep(0.03)
                return observer.speed() > 0.02

            observer.wait(drives, "a held key did not drive the robot")
            released_s = time.monotonic()
            assert observer.braked_after(released_s, observer.heard.sent) - released_s < 1.0
            observer.wait_until_at_rest(released_s)

            observer.wait(drives, "a key that is held again did not drive the robot")
            program.send_signal(signal.SIGINT)  # as Ctrl-C
            ended_s = time.monotonic()
            assert observer.braked_after(ended_s, observer.heard.sent) - ended_s < 1.0
            observer.wait_until_at_rest(ended_s)
            assert program.wait(20) == 0
            shown = os.read(keyboard, 1 << 16).decode()
            assert "w s, or arrows up and down" in shown
            assert "r0: commands ended, brakes" in shown
        finally:
            program.kill()
            program.wait()
            observer.close()
