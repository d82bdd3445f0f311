"""A fleet on several computers, by the commands that are typed on each: launch files, status, emergency stop.

The computers are network namespaces with clocks of their own; the network between them delays, loses, and falls into
two halves for five seconds. Bodies and drivers are the plant's (`testudo_bench.hosts`).
"""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.bringup.launched import NEEDS, Launched, running
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.launch_plan import plan

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.timeout(400)]
MISSING = [name for name in NEEDS if importlib.util.find_spec(name) is None]
if MISSING:
    pytest.skip(f"not installed: {', '.join(MISSING)}", allow_module_level=True)

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
LIMIT_S = 150.0


@pytest.fixture
def launched(install, tmp_path):
    """Return a starter of launch files on computers that leaves nothing behind."""
    begun = []

    def start(file, computer, **given):
        begun.append(Launched(install, tmp_path, DOMAIN, file, computer=computer, **given))
        return begun[-1]

    yield start
    for item in begun:
        item.kill()


def restarts(operator):
    """Arm and start robots that went idle, as happens where the machine stalls."""
    if [name for name in operator.modes if operator.restart(name)]:
        time.sleep(1.0)


def test_four_robots_on_four_computers_swap_places_and_obey_the_station_on_a_fifth(launched, tmp_path):
    fleet = write_swap(tmp_path, count=4, turn_rad=0.3, robot="turtlebot4")
    names = (*fleet.names, STATION)
    clocks = drawn_clocks(names, CLOCK_SPREAD_MIN, seed=4)
    computers = Computers(names, BAD, domain_id=DOMAIN, clocks=clocks)
    with computers, FleetOnComputers(fleet, computers, limit_s=LIMIT_S, start_parts=False) as bodies:
        common = {"fleet": fleet.file, "backend": "hw"}
        robots = {name: launched("robot", computers.all[name], robot=name, **common) for name in fleet.names}
        station = launched("station", computers.all[STATION], run_folder=tmp_path / "run", **common)
        operator = Operator(fleet, computers)
        try:
            for name, item in robots.items():
                item.wait_for(f"[{name}.policy]: active: active")
                assert running(item.process.pid) == {
                    (part.executable, f"/{part.namespace}", part.name)
                    for part in plan(fleet, run_folder=None, backend="hw", robot=name)
                }
            computers.part(("r0", "r1", STATION), ("r2", "r3"))
            time.sleep(5.0)
            computers.part()
            bodies.wait(lambda: bodies.outcome or restarts(operator), "the run did not end", LIMIT_S)
            assert (bodies.outcome, bodies.contacts) == ("arrived", [])

            figures = tmp_path / "status.json"
            words = ["status", "--fleet", str(fleet.file), "--json", str(figures)]
            shown = computers.run(STATION, [PROGRAM, *words])
            assert shown.returncode == 0, shown.stderr
            assert {name: one["mode"] for name, one in json.loads(figures.read_text())["robots"].items()} == {}
            stop = computers.run(STATION, [PROGRAM, "estop", str(fleet.file)])
            assert stop.returncode == 0, stop.stdout + stop.stderr
            bodies.wait(lambda: set(operator.modes.values()) == {"stopped"}, f"not all stopped: {operator.modes}", 10)
        finally:
            operator.close()
        for item in (*robots.values(), station):
            item.stop()
        for item in (*robots.values(), station):
            assert item.wait() == (0, True), item.said()
            assert "has died" not in item.said()
            assert "[ERROR]" not in item.said()
    assert not bodies.contacts
    assert computers.counts["cut"] > 0
    assert computers.counts["lost"] > 0.08 * (computers.counts["frames"] - computers.counts["cut"])


THIEF = """
import rclpy
from geometry_msgs.msg import TwistStamped
rclpy.init()
node = rclpy.create_node("thief")
publisher = node.create_publisher(TwistStamped, "/r0/cmd_vel", 1)
print("here", flush=True)
rclpy.spin(node)
"""


@pytest.mark.parametrize("discovery", DISCOVERIES)
def test_a_guard_finds_a_second_publisher_of_commands_on_another_computer(tmp_path, discovery):
    fleet = make_tiny_fleet(tmp_path, 1)
    guard = next(part for part in plan(fleet, run_folder=None, backend="hw", robot="r0") if part.name == "guard")
    computers = Computers(("r0", "other", STATION), BAD, domain_id=DOMAIN, discovery=discovery)
    with computers, PartProcesses(computers, [guard]):
        operator = Operator(fleet, computers)
        try:
            wait_for(lambda: "silence" in codes(operator))
            assert "second_publisher" not in codes(operator)
            with computers.start("other", [sys.executable, "-c", THIEF], stdout=subprocess.DEVNULL) as thief:
                try:
                    wait_for(lambda: "second_publisher" in codes(operator))
                finally:
                    thief.kill()
        finally:
            operator.close()


def codes(operator):
    return [code for _, of, _, code in operator.changes if of == "r0/guard"]


def wait_for(condition):
    end_s = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.1)
