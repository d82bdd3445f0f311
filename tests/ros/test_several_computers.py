"""A fleet on several computers, by the commands that are typed on each: launch files, status, emergency stop.

The computers are network namespaces with clocks of their own; the network between them delays, loses, and falls into
two halves for five seconds. Bodies and drivers are the plant's (`testudo_bench.hosts`).
"""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.bringup.launched import NEEDS, Launched, running
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.launch_plan import plan

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(400)]
NO_LAUNCH = [name for name in NEEDS if importlib.util.find_spec(name) is None]
if importlib.util.find_spec("rclpy") is None:
    pytest.skip("ROS 2 (rclpy) is not installed", allow_module_level=True)

from testudo_bench.fault_matrix.harness.fleet_harness import write_swap  # noqa: E402 -- needs ROS
from testudo_bench.hosts.computers import DISCOVERIES, Computers, missing  # noqa: E402
from testudo_bench.hosts.fleet_on_computers import (  # noqa: E402
    DOMAIN,
    STATION,
    FleetOnComputers,
    Operator,
    PartProcesses,
)
from testudo_bench.hosts.host_runs import drawn_clocks  # noqa: E402
from testudo_bench.hosts.shaped_links import Link  # noqa: E402

if why := missing():
    pytest.skip(f"several computers on one: {why}", allow_module_level=True)

BAD = Link(delay_ms=50.0, jitter_ms=20.0, loss=0.1)
PROGRAM = str(Path(sys.executable).with_name("testudo"))
CLOCK_SPREAD_MIN = 5.0
LIMIT_S, START_S = 150.0, 90.0


@pytest.fixture
def launched(request, tmp_path):
    """Return a starter of launch files on computers that leaves nothing behind."""
    install, begun = request.getfixturevalue("install"), []

    def start(file, computer, **given):
        begun.append(Launched(install, tmp_path, DOMAIN, file, computer=computer, **given))
        return begun[-1]

    yield start
    for item in begun:
        item.kill()


def swap_on_computers(tmp_path, count, parts, end, *, start_parts):
    """Let robots swap places through a partition, and stop them; ``parts`` and ``end`` start and end their nodes."""
    fleet = write_swap(tmp_path, count=count, turn_rad=0.3, robot="turtlebot4")
    names = (*fleet.names, STATION)
    computers = Computers(names, BAD, domain_id=DOMAIN, clocks=drawn_clocks(names, CLOCK_SPREAD_MIN, seed=4))
    with computers, FleetOnComputers(fleet, computers, limit_s=LIMIT_S, start_parts=start_parts) as bodies:
        operator = Operator(fleet, computers)
        try:
            parts(fleet, computers)
            active = set()

            def all_were_active():
                active.update(name for name, mode in operator.modes.items() if mode == "active")
                return len(active) == count

            bodies.wait(all_were_active, f"not all started: {operator.modes}", START_S)
            computers.part((*fleet.names[: count // 2], STATION), fleet.names[count // 2 :])
            time.sleep(5.0)
            computers.part()
            bodies.wait(lambda: bodies.outcome or restarts(operator), "the run did not end", LIMIT_S)
            assert (bodies.outcome, bodies.contacts) == ("arrived", []), (bodies.state, operator.changes)

            figures = tmp_path / "status.json"
            shown = typed(computers, "status", "--fleet", fleet.file, "--json", figures)
            assert shown.returncode == 0, shown.stdout + shown.stderr
            assert all(name in figures.read_text() for name in fleet.names)
            stop = typed(computers, "estop", fleet.file)
            assert stop.returncode == 0, stop.stdout + stop.stderr
            bodies.wait(lambda: set(operator.modes.values()) == {"stopped"}, f"not all stopped: {operator.modes}", 15)
        finally:
            operator.close()
        end()
    assert not bodies.contacts
    assert computers.counts["cut"] > 0
    assert computers.counts["lost"] > 0.08 * (computers.counts["frames"] - computers.counts["cut"])


def typed(computers, *words):
    """Run a verb at the station."""
    return computers.run(STATION, [PROGRAM, *map(str, words)])


def restarts(operator):
    """Arm and start robots that went idle, as happens where the machine stalls."""
    if [name for name in operator.modes if operator.restart(name)]:
        time.sleep(1.0)


def test_four_robots_on_four_computers_swap_places_and_obey_the_station_on_a_fifth(tmp_path):
    swap_on_computers(tmp_path, 4, lambda *_: None, lambda: None, start_parts=True)


@pytest.mark.skipif(bool(NO_LAUNCH), reason=f"not installed: {', '.join(NO_LAUNCH)}")
def test_the_same_by_the_launch_files_of_robot_and_station(launched, tmp_path):
    begun = []

    def parts(fleet, computers):
        common = {"fleet": fleet.file, "backend": "hw"}
        begun.append(launched("station", computers.all[STATION], run_folder=tmp_path / "run", **common))
        for name in fleet.names:
            begun.append(launched("robot", computers.all[name], robot=name, **common))
            begun[-1].wait_for(f"[{name}.policy]")
            assert running(begun[-1].process.pid) == {
                (part.executable, f"/{part.namespace}", part.name)
                for part in plan(fleet, run_folder=None, backend="hw", robot=name)
            }

    def end():
        for item in begun:
            item.stop()
        for item in begun:
            assert item.wait() == (0, True), item.said()
            assert "has died" not in item.said()

    swap_on_computers(tmp_path, 2, parts, end, start_parts=False)


THIEF = """
import rclpy
from geometry_msgs.msg import TwistStamped
rclpy.init()
node = rclpy.create_node("thief")
publisher = node.create_publisher(TwistStamped, "/r0/cmd_vel", 1)
print("here", flush=True)
rclpy.spin(node)
"""


LISTENER = """
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from testudo_nodes.common.messages import status_values
from testudo_nodes.common.qos import REQUESTED
rclpy.init()
node = rclpy.create_node("listener")
def say(message):
    print(status_values(message)["code"], flush=True)
node.create_subscription(DiagnosticStatus, "/r0/guard_status", say, REQUESTED["guard_status"])
rclpy.spin(node)
"""


@pytest.mark.parametrize("discovery", DISCOVERIES)
def test_a_guard_finds_a_second_publisher_of_commands_on_another_computer(tmp_path, discovery):
    fleet = make_tiny_fleet(tmp_path, 1)
    guard = next(part for part in plan(fleet, run_folder=None, backend="hw", robot="r0") if part.name == "guard")
    computers = Computers(("r0", "other", STATION), BAD, domain_id=DOMAIN, discovery=discovery)
    with (tmp_path / "codes.txt").open("w+") as said, computers, PartProcesses(computers, [guard]):

        def codes():
            said.seek(0)
            return said.read().split()

        begun = [computers.start(STATION, [sys.executable, "-c", LISTENER], stdout=said)]
        try:
            wait_for(lambda: "silence" in codes() or "starting" in codes(), codes)
            assert "second_publisher" not in codes()
            begun.append(computers.start("other", [sys.executable, "-c", THIEF], stdout=subprocess.DEVNULL))
            wait_for(lambda: "second_publisher" in codes(), codes)
        finally:
            for process in begun:
                process.kill()


def wait_for(condition, seen):
    end_s = time.monotonic() + 40.0
    while not condition():
        assert time.monotonic() < end_s, seen()
        time.sleep(0.1)
