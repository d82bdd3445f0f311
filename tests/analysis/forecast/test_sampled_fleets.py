"""Simulated fleets have the motion noise of each robot's own file, and the nominal ones none."""

import copy
import tomllib

import numpy as np
import pytest
from tests.hardware.motion.test_motion_noise import section

from testudo_analysis.forecast.sampled_fleets import FleetSimulator, SampledTeam, TeamStart
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.spec import load_robot, parse_robot, robot_files
from testudo_sim.go_to_goal import write_go_to_goal_policy

PLAIN = load_robot("gritsbot_x")
DEVIATION_M_S, CORRELATION_S = 0.05, 0.2


def noisy_file():
    """Return a robot file whose robot drifts along, and does nothing else unasked."""
    table = section("along", "across", "turn")
    for key, entry in table.items():
        entry["value"] = CORRELATION_S if key.endswith("correlation") else 0.0
    table["along_deviation"]["value"] = DEVIATION_M_S
    tables = copy.deepcopy(tomllib.loads(robot_files()["gritsbot_x"].read_text())) | {"motion_noise": table}
    return parse_robot(tables, "noisy.toml")


def test_only_the_robot_with_noise_in_its_file_drifts_and_no_nominal_one(tmp_path):
    write_go_to_goal_policy(tmp_path / "policy.onnx", PLAIN, team_size=2)
    artefact = PolicyArtefact.load(tmp_path / "policy.onnx")
    team = SampledTeam(("r0", "r1"), PLAIN, (noisy_file(), PLAIN), artefact, None, 2.0)
    simulator = FleetSimulator(team, optimised=False)
    start = TeamStart(np.array([[0.0, 0.0], [0.0, 1.0]]), np.zeros(2), np.array([[5.0, 5.0], [0.0, 1.0]]))
    worlds = simulator.drawn(0, 20, [start]).and_also(simulator.nominal(1, 2, [start]))

    def idle(signals, hidden):
        return np.zeros_like(signals["goal_world"]), hidden

    series = simulator.run(worlds, idle, 0)
    last = series.position_world[-1, 0]  # (N, E) along x
    drawn, nominal = last[:, :20], last[:, 20:]
    # integral of the process over a time much longer than its correlation
    expected_m = DEVIATION_M_S * np.sqrt(2 * CORRELATION_S * (2.0 - CORRELATION_S))
    assert drawn[0].std() == pytest.approx(expected_m, rel=0.5)
    assert np.abs(drawn[1]).max() < 0.1 * expected_m
    assert np.abs(nominal).max() < 0.1 * expected_m
