"""Drones that take off, fly, are stopped and land, through all nodes on the plant, in rounds of simulated time."""

import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(400),
]

from mcap.reader import make_reader  # noqa: E402
from tests.deploy.tiny_fleet import make_tiny_fleet  # noqa: E402

from testudo_analysis.replay.reinference import reinfer  # noqa: E402
from testudo_deploy.contract.policy_artefact import PolicyArtefact  # noqa: E402
from testudo_deploy.fleet.fleet import load_fleet  # noqa: E402
from testudo_deploy.fleet.fleet_writer import save_fleet  # noqa: E402
from testudo_deploy.fleet.robot_links import LinkChoice  # noqa: E402
from testudo_deploy.guard.flight_messages import FlightRequestMessage  # noqa: E402
from testudo_deploy.launch.child_processes import FleetProcesses  # noqa: E402
from testudo_deploy.launch.fleet_run import run_fleet  # noqa: E402
from testudo_deploy.launch.launch_plan import plan  # noqa: E402
from testudo_hardware.links.link_profile import load_link  # noqa: E402
from testudo_nodes.common.messages import raw_envelope_bytes  # noqa: E402
from testudo_runs.run_reader import read_run  # noqa: E402

PATIENCE_S = 300.0


def fleet_on_the_ground(folder, **where):
    """Return a fleet of two drones of the plant that have to take off."""
    fleet = make_tiny_fleet(folder, 2, "crazyflie_2x", **where)
    link = LinkChoice("testudo_flight", load_link("testudo_flight"), onboard_brake=True)
    robots = tuple(replace(robot, link=link) for robot in fleet.robots)
    save_fleet(replace(fleet, robots=robots), fleet.file)
    return load_fleet(fleet.file)


def asked(folder, robot):
    """Return what the vehicle of a robot was asked in a run."""
    with (folder / "run_0.mcap").open("rb") as file:
        return [
            FlightRequestMessage.decode(raw_envelope_bytes(message.data)).act
            for _, _, message in make_reader(file).iter_messages(topics=[f"/{robot}/flight_request"])
        ]


def test_drones_take_off_fly_to_their_goals_and_the_run_is_computed_again(tmp_path):
    fleet = fleet_on_the_ground(tmp_path, start_x=-0.4, goal_x=0.4, lane_m=0.7)
    assert all(robot.has_flight_phases for robot in fleet.robots)
    state = run_fleet(fleet, run_folder=tmp_path / "run", duration_s=30.0, lock_step=True)
    assert (state.outcome, state.contacts, state.lines) == ("arrived", 0, [])
    run = read_run(tmp_path / "run")
    for name in fleet.names:
        assert asked(tmp_path / "run", name)[:3] == ["arm", "notify_setpoints_stop", "take_off"]
        ticks = run.ticks[name]
        assert ticks[5].measured_position_world[2] < 0.15  # it stood on the ground
        modes = [tick.reason.partition(":")[0] for tick in ticks]
        order = [
            mode
            for k, mode in enumerate(modes)
            if mode in ("disarmed", "take_off", "") and (k == 0 or modes[k - 1] != mode)
        ]
        assert order == ["disarmed", "take_off", ""]
    verdict = reinfer(run, PolicyArtefact.load(fleet.policy))
    assert verdict.passed, verdict.error


def test_an_emergency_stop_of_flying_drones_lands_them(tmp_path):
    fleet = fleet_on_the_ground(tmp_path, start_x=-0.4, goal_x=40.0, lane_m=0.7, walls=False)
    modes = {name: [] for name in fleet.names}
    pressed, end_s = None, time.monotonic() + PATIENCE_S
    with FleetProcesses(plan(fleet, run_folder=None, duration_s=600.0, lock_step=True)) as processes:
        while time.monotonic() < end_s and not all(
            "emergency" in seen and seen[-1] == "disarmed" for seen in modes.values()
        ):
            event = processes.next_event(1.0)
            if event is not None and event.kind == "mode":
                modes[event.values["robot"]].append(event.values["mode"])
            if pressed is None and all("active" in seen for seen in modes.values()):
                words = [
                    sys.executable,
                    "-m",
                    "testudo_deploy.cli",
                    "estop",
                    "--wait",
                    "30",
                    "--local",
                    "--domain",
                    str(processes.domain_id),
                ]
                pressed = subprocess.Popen(words, env=processes.environment(), stdout=subprocess.DEVNULL)
        assert pressed is not None, modes
        assert pressed.wait(60) == 0
    for seen in modes.values():
        assert [mode for k, mode in enumerate(seen) if k == 0 or seen[k - 1] != mode][-3:] == [
            "active",
            "emergency",
            "disarmed",
        ]
