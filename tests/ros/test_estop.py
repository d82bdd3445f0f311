"""`testudo estop` and `testudo rearm` over real DDS: a fleet stops when an operator says so, and only then goes on."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet_status import FleetStatus
from testudo_deploy.plan import plan
from testudo_deploy.processes import FleetProcesses, free_domain_id

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
PATIENCE_S = 80.0


@dataclass
class Running:
    fleet: object
    domain_id: int
    listener: object
    heard: FleetStatus

    def wait_for(self, mode):
        """Wait until all robots are in a mode."""
        def found():
            robots = self.heard.robots(0.0)
            return len(robots) == len(self.fleet.names) and all(robot.mode == mode for robot in robots)

        self.listener.listen(PATIENCE_S, enough=found)
        assert found(), f"waited {PATIENCE_S} s in vain for {mode}: {self.heard.robots(0.0)}"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Return two robots that drive, and somebody who hears their modes."""
    from testudo_nodes.status_listener import StatusListener

    fleet = make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 2, start_x=0.0, goal_x=50.0, walls=False)
    heard = FleetStatus(fleet.names)
    with pytest.MonkeyPatch.context() as patch, FleetProcesses(plan(fleet, run_folder=None, duration_s=600.0)) as all_:
        for key, value in all_.environment().items():
            if key.startswith(("ROS_A", "FAST")):
                patch.setenv(key, value)
        with StatusListener(heard, all_.domain_id, local=True) as listener:
            yield Running(fleet, all_.domain_id, listener, heard)


def verb(domain_id, *words):
    """Run a verb in a domain of this machine; return exit status and all that it printed, in one line."""
    command = [sys.executable, "-m", "testudo_deploy.cli", *words, "--local", "--domain", str(domain_id)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                            env=os.environ | {"COLUMNS": "200"})
    return result.returncode, " ".join((result.stdout + result.stderr).split())


@pytest.mark.slow
def test_estop_stops_all_until_they_are_rearmed_by_hand(running, tmp_path):
    running.wait_for("active")
    file = tmp_path / "stop.json"
    status, said = verb(running.domain_id, "estop", str(running.fleet.file), "--json", str(file))
    assert status == 0, said
    assert "all stopped; to drive again" in said
    robots = json.loads(file.read_text())["robots"]
    assert {name: (found["stopped"], found["guard"]) for name, found in robots.items()} == {
        "r0": (True, "estop"), "r1": (True, "estop")
    }
    running.wait_for("stopped")

    status, said = verb(running.domain_id, "rearm", "r0")  # guards keep the level though nobody publishes it now
    assert (status, "rearm refused: the emergency stop is still pressed" in said) == (1, True), said
    status, said = verb(running.domain_id, "estop", "--release")
    assert (status, "released; a stopped robot stays so" in said) == (0, True), said
    running.listener.listen(0.5)
    running.wait_for("stopped")
    status, said = verb(running.domain_id, "rearm", "r0", "r1", "--start")
    assert status == 0, said
    running.wait_for("active")


@pytest.mark.slow
def test_estop_misses_a_robot_that_is_not_there(running, tmp_path):
    other = make_tiny_fleet(tmp_path, 3)
    status, said = verb(running.domain_id, "estop", str(other.file), "--wait", "4")
    assert status == 1
    assert "not confirmed by r2 (not heard): stop it by hand" in said
    assert verb(running.domain_id, "rearm", "r2", "--wait", "1")[0] == 1


def test_estop_finds_the_robots_of_a_domain_without_a_file(running):
    running.listener.listen(PATIENCE_S, enough=lambda: not running.heard.is_silent)
    status, said = verb(running.domain_id, "estop")
    assert (status, "r0 yes" in said, "r1 yes" in said) == (0, True, True), said


def test_estop_says_when_there_is_nobody():
    status, said = verb(free_domain_id(), "estop", "--wait", "1")
    assert (status, "no robot was heard" in said) == (1, True), said
