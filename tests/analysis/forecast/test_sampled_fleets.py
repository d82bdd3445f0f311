"""Simulated fleets have the motion noise of each robot's own file, and the nominal ones none; robots stand at goals."""

import copy
import tomllib

import numpy as np
import pytest
from tests.hardware.motion.test_motion_noise import section

from testudo_analysis.forecast.sampled_fleets import FleetSimulator, SampledTeam, TeamStart
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.goal_hold import HOLD_AFTER_S
from testudo_hardware.spec import load_robot, parse_robot, robot_files
from testudo_sim.go_to_goal import write_go_to_goal_policy

PLAIN = load_robot("gritsbot_x")
DEVIATION_M_S, CORRELATION_S, HORIZON_S = 0.05, 0.2, 2.6


def noisy_file():
    """Return a robot file whose robot drifts along, and does nothing else unasked."""
    table = section("along", "across", "turn")
    for key, entry in table.items():
        entry["value"] = CORRELATION_S if key.endswith("correlation") else 0.0
    table["along_deviation"]["value"] = DEVIATION_M_S
    tables = copy.deepcopy(tomllib.loads(robot_files()["gritsbot_x"].read_text())) | {"motion_noise": table}
    return parse_robot(tables, "noisy.toml")


@pytest.fixture(scope="module")
def fleets(tmp_path_factory):
    """Return a simulator, its drawn and nominal worlds; r1 is at its goal."""
    policy = tmp_path_factory.mktemp("fleets") / "policy.onnx"
    write_go_to_goal_policy(policy, PLAIN, team_size=2)
    team = SampledTeam(("r0", "r1"), PLAIN, (noisy_file(), PLAIN), PolicyArtefact.load(policy), None, HORIZON_S)
    simulator = FleetSimulator(team, optimised=False)
    start = TeamStart(np.array([[0.0, 0.0], [0.0, 1.0]]), np.zeros(2), np.array([[5.0, 0.0], [0.0, 1.0]]))
    return simulator, simulator.drawn(0, 20, [start]).and_also(simulator.nominal(1, 2, [start]))


def wants(speed_m_s):
    """Return a policy that wants to drive along x."""

    def policy(signals, hidden):
        return np.tile(np.array([speed_m_s, 0.0], np.float32), (len(signals["goal_world"]), 1)), hidden

    return policy


def test_only_the_robot_with_noise_in_its_file_drifts_and_no_nominal_one(fleets):
    series = fleets[0].run(fleets[1], wants(0.0), 0)
    last = series.position_world[-1, 0]  # (N, E) along x
    drawn, nominal = last[:, :20], last[:, 20:]
    # integral of the process over a time much longer than its correlation
    expected_m = DEVIATION_M_S * np.sqrt(2 * CORRELATION_S * (HORIZON_S - CORRELATION_S))
    assert drawn[0].std() == pytest.approx(expected_m, rel=0.5)
    assert np.abs(drawn[1]).max() < 0.1 * expected_m
    assert np.abs(nominal).max() < 0.1 * expected_m


def test_a_robot_at_its_goal_stands_after_two_seconds_and_one_on_its_way_drives_on(fleets):
    """As its control loop has it: what a forecast leaves out of that, every run with early arrivals shows otherwise."""
    simulator, worlds = fleets
    series = simulator.run(worlds, wants(0.02), 0)
    sent, ticks = np.abs(series.command[:, 0]), int(HOLD_AFTER_S / PLAIN.control_period_s)  # (T, N, E)
    assert (sent[10:ticks, 1] > 0).mean() > 0.9  # a lost message can hold it for a tick
    assert (sent[ticks + 3 :, 1] == 0).all()
    assert (sent[ticks + 3 :, 0] > 0).mean() > 0.9
