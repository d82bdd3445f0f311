"""Two drones by radio fly to their goals: policies, guards, drivers, `cflib`, and two simulated Crazyflies."""

import os
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec

import numpy as np
import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_crazyflie.firmware.firmware_supervisor import State
from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import CrazyflieServer
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.skipif(find_spec("cflib") is None, reason="the extra crazyflie is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(300),
]


STANDS_S = 10.0
"""The firmware's velocity controller creeps where a drone stands: no watch may take that for a fault."""


@pytest.fixture(autouse=True)
def in_time():
    """Let the vehicles keep time on a busy machine, too: they are in this process, the nodes ask for it themselves."""
    before = os.sched_getscheduler(0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    yield
    with suppress(OSError):
        os.sched_setscheduler(0, before, os.sched_param(0))


def look(server):
    with server.craft() as craft:
        return craft.vehicle.position.copy(), craft.supervisor.state, craft.vehicle.motors_on


def test_two_drones_take_off_fly_to_their_goals_and_land_when_the_fleet_is_stopped(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 2, "crazyflie_2x", lane_m=1.0, walls=False)
    tables = yaml.safe_load(fleet.file.read_text())
    with ExitStack() as stack:
        servers = []
        for robot in tables["robots"].values():
            x, y, _ = robot["initial_position"]
            servers.append(
                stack.enter_context(
                    CrazyflieServer(SimulatedCrazyflieSettings.create(position_world=(x, y, 0.0), onboard_brake=True))
                )
            )
            robot["link"] = {"profile": "crazyflie_radio", "uri": servers[-1].uri, "onboard_brake": True}
        fleet.file.write_text(yaml.safe_dump(tables))
        fleet = load_fleet(fleet.file)
        goals = [np.array(robot.goal_world) for robot in fleet.robots]
        nearest, states, lines = np.inf, set(), []
        with FleetProcesses(plan(fleet, run_folder=None, backend="hw")) as processes:
            end_s = time.monotonic() + 150.0
            while time.monotonic() < end_s:
                event = processes.next_event(0.05)
                if event is not None and event.kind in ("error_line", "ended"):
                    lines.append((event.process, event.values))
                seen = [look(server) for server in servers]
                states |= {state for _, state, _ in seen}
                nearest = min(nearest, np.linalg.norm(seen[0][0] - seen[1][0]))
                if all(np.linalg.norm(place - goal) < 0.1 for (place, *_), goal in zip(seen, goals, strict=True)):
                    break
            else:
                pytest.fail(f"not at their goals: {seen}; {lines}")
            stands_until_s = time.monotonic() + STANDS_S
            while time.monotonic() < stands_until_s:
                event = processes.next_event(0.05)
                assert event is None or event.values.get("mode") not in ("emergency", "land"), event
            places = [look(server)[0] for server in servers]
            assert all(np.linalg.norm(place - goal) < 0.15 for place, goal in zip(places, goals, strict=True))
        end_s = time.monotonic() + 15.0
        while any(motors for *_, motors in seen):
            assert time.monotonic() < end_s, "they land when the fleet is stopped"
            time.sleep(0.05)
            seen = [look(server) for server in servers]
        states |= {state for _, state, _ in seen}
    assert all(place[2] < 0.02 for place, *_ in seen)
    assert nearest > 2 * fleet.robots[0].spec.body_radius_m
    assert not states & {State.LEVEL_OUT, State.FREE_FALL, State.LOCKED, State.CRASHED}
