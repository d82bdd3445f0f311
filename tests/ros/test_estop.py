"""`testudo estop` and `testudo rearm` over real DDS: a fleet stops when an operator says so, and only then goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.child_processes import FleetProcesses, free_domain_id
from testudo_deploy.launch.launch_plan import plan, with_button
from testudo_deploy.station.fleet_status import FleetStatus

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
PATIENCE_S = 80.0


@dataclass
class Running:
    fleet: object
    domain_id: int
    listener: object
    heard: FleetStatus
    processes: FleetProcesses
    plan: tuple

    def robot(self, name):
        """Return what a robot says now."""
        return next(robot for robot in self.heard.robots(time.monotonic()) if robot.name == name)

    def guard_says(self, name, *codes):
        """Wait until a guard gives one of these codes."""
        self.listener.listen(PATIENCE_S, enough=lambda: self.robot(name).guard in codes)
        assert self.robot(name).guard in codes

    def renew_guard(self, name):
        """Kill a guard, and start it again once it is missed."""
        self.processes.signal(f"{name}/guard", signal.SIGKILL)
        self.listener.listen(PATIENCE_S, enough=lambda: self.robot(name).guard is None)
        self.processes.start(next(one for one in self.plan if one.label == f"{name}/guard"))

    def renew(self, label, number):
        """End a process of the station and start it again."""
        self.processes.signal(label, number)
        self.listener.listen(5.0, enough=lambda: self.processes.exit_status(label) is not None)
        self.processes.start(next(one for one in self.plan if one.label == label))

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
    from testudo_nodes.station.status_listener import StatusListener

    fleet = make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 2, start_x=0.0, goal_x=50.0, walls=False)
    heard = FleetStatus(fleet.names)
    planned = with_button(plan(fleet, run_folder=None, duration_s=600.0), "/joy:1")
    with pytest.MonkeyPatch.context() as patch, FleetProcesses(planned) as all_:
        for key, value in all_.environment().items():
            if key.startswith(("ROS_A", "FAST")):
                patch.setenv(key, value)
        with StatusListener(heard, all_.domain_id, local=True) as listener:
            yield Running(fleet, all_.domain_id, listener, heard, all_, planned)


def verb(domain_id, *words):
    """Run a verb in a domain of this machine; return exit status and all that it printed, in one line."""
    command = [sys.executable, "-m", "testudo_deploy.cli", *words, "--local", "--domain", str(domain_id)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"COLUMNS": "200"}
    )
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
        "r0": (True, "estop"),
        "r1": (True, "estop"),
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


def test_a_robot_that_lost_its_guard_is_armed_and_started_by_a_verb(running):
    """It becomes inactive, and the station never starts it again: until there was this verb, nothing did."""
    running.wait_for("active")
    running.renew_guard("r0")
    running.guard_says("r0", "starting", "silence")
    running.listener.listen(3.0)
    assert running.robot("r0").mode == "idle"
    status, said = verb(running.domain_id, "arm", "r0", "--start")
    assert status == 0, said
    running.listener.listen(PATIENCE_S, enough=lambda: running.robot("r0").mode == "active")
    assert running.robot("r0").mode == "active"
    status, said = verb(running.domain_id, "arm", "r7", "--wait", "1")
    assert (status, "r7 was not heard in this domain" in said) == (1, True), said


@pytest.mark.slow
def test_a_guard_that_is_started_anew_forgets_no_emergency_stop(running):
    """Neither one that somebody still presses, nor one of which nobody but the policy knows any more."""
    running.wait_for("active")
    assert verb(running.domain_id, "estop", str(running.fleet.file))[0] == 0
    running.wait_for("stopped")
    running.renew_guard("r0")
    running.guard_says("r0", "estop")  # the resident process still holds the level
    running.renew("emergency_stop", signal.SIGKILL)
    running.renew_guard("r0")
    running.guard_says("r0", "starting", "silence")
    running.listener.listen(3.0)
    assert (running.robot("r0").mode, running.robot("r0").code) == ("idle", "estop")
    assert verb(running.domain_id, "estop", "--release")[0] == 0
    running.listener.listen(1.0)
    assert running.robot("r0").mode == "idle"
    assert verb(running.domain_id, "rearm", "r0", "r1")[0] == 0

    from std_msgs.msg import Bool

    from testudo_nodes.common.qos import OFFERED

    publisher = running.listener.node.create_publisher(Bool, "/estop", OFFERED["estop"])
    publisher.publish(Bool(data=True))
    running.guard_says("r0", "estop")
    running.renew_guard("r0")
    running.guard_says("r0", "estop")
    assert "still pressed on /estop" in verb(running.domain_id, "rearm", "r0")[1]
    publisher.publish(Bool(data=False))
    running.listener.listen(1.0)
    assert verb(running.domain_id, "rearm", "r0", "r1")[0] == 0
    status, said = verb(running.domain_id, "arm", "r0", "r1", "--start")
    assert status == 0, said


@pytest.mark.slow
def test_a_joystick_stops_all_and_is_not_released_while_it_is_held(running):
    from sensor_msgs.msg import Joy

    running.wait_for("active")
    publisher = running.listener.node.create_publisher(Joy, "/joy", 5)
    running.listener.listen(PATIENCE_S, enough=lambda: publisher.get_subscription_count() > 0)
    publisher.publish(Joy(buttons=[1, 0]))  # another button
    running.listener.listen(1.0)
    running.wait_for("active")
    publisher.publish(Joy(buttons=[0, 1]))
    running.wait_for("stopped")
    status, said = verb(running.domain_id, "estop", "--release")
    assert (status, "still pressed: the joystick" in said) == (2, True), said
    publisher.publish(Joy(buttons=[0, 0]))
    running.listener.listen(1.0)
    assert verb(running.domain_id, "estop", "--release")[0] == 0
    assert verb(running.domain_id, "rearm", "r0", "r1", "--start")[0] == 0
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
