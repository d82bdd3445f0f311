"""The artefact of a run: a complete contract, loops of 500 steps, the file that a robot loads."""

import json
from dataclasses import asdict, replace

import jax
import numpy as np
import pytest
from tests.policies.quick import TINY

from testudo_deploy.contract.contract import HOLD_RULE, VERSION, Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import HIDDEN, graph_inputs
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands.export import saved_evaluations
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.exporting import packaging
from testudo_policies.exporting.packaging import closed_loops, make_contract
from testudo_policies.exporting.parity import call_step
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters

pytestmark = pytest.mark.usefixtures("quick")

EVALUATION = Evaluation(
    team_size=4, episodes=10, first_seed=0, horizon_s=40.0, crossing_share=0.5, success=0.0,
    success_low=0.0, success_high=0.3, contacts=0, episodes_with_contact=0, contact_rate_high=0.3,
    minimum_separation_m=0.2, separation_p1_m=0.2, intervention_rate=0.1, brake_rate=0.0,
    deadlocks=10, time_to_success_s=float("nan"),
)  # fmt: skip


@pytest.fixture(scope="module")
def workshop():
    return build(TINY)


def test_the_contract_says_all_that_a_robot_and_a_reader_ask(tiny_export, workshop):
    contract = PolicyArtefact.load(tiny_export.path).contract
    spec = load_robot("gritsbot_x")
    assert contract == tiny_export.contract
    assert (contract.version, contract.hold_rule) == (VERSION, HOLD_RULE)
    assert (contract.scenario, contract.robot, contract.dimension) == (
        "navigation",
        "gritsbot_x",
        2,
    )
    assert contract.robot_spec == spec.to_dict()
    assert contract.robot_sha256 == spec.sha256
    assert (contract.control_period_s, contract.dead_man_s) == (spec.control_period_s, 0.1)
    assert contract.decision_ticks == 10
    assert contract.decision_period_s == pytest.approx(0.33)
    assert contract.command.limit == spec.control_point_speed_m_s
    assert contract.arena == workshop.environment.scenario.arena
    assert (contract.team_size, contract.hidden_size) == (2, 0)
    assert contract.shield == projection_parameters(spec)
    names = {signal.name for signal in contract.signals}
    assert names == set(graph_inputs(contract))
    assert names == {
        "position_world", "yaw", "velocity", "control_point_world", "goal_world",
        "neighbour_position_world", "neighbour_velocity_world", "neighbour_age", "neighbour_valid",
    }  # fmt: skip
    assert all(signal.unit is not None and signal.frame is not None for signal in contract.signals)


def test_the_provenance_says_how_to_do_it_again(tiny_export):
    provenance = tiny_export.contract.provenance
    assert provenance["config"] == asdict(TINY)
    assert provenance["updates"] == 4
    assert set(provenance["versions"]) == {"testudo", "jax", "flax", "onnx", "jax2onnx"}
    assert set(provenance) == {"config", "updates", "world_sha256", "git", "python", "versions"}


def test_parity_covers_ten_thousand_inputs_and_loops_of_500_steps(tiny_export):
    parity = tiny_export.contract.parity
    assert parity == json.loads(json.dumps(tiny_export.parity.to_dict()))
    assert parity["inputs"] >= 10_000
    assert parity["loop_steps"] == 500
    assert parity["loops"] == 4 * TINY.team_size  # robots of four worlds
    assert parity["max_error"] <= parity["tolerance"] == 1e-5
    assert parity["teacher_forced_error"] <= 1e-5


def test_closed_loops_are_what_robots_see_when_the_policy_drives(workshop, tiny_run, tiny_export):
    step = workshop.agent.policy(jax.device_get(load_parameters(workshop, tiny_run)))
    loops = closed_loops(workshop, step, 500, 4)  # as the export does
    assert set(loops) == {signal.name for signal in tiny_export.contract.signals}
    for name, value in loops.items():
        assert value.shape[:2] == (500, 8), name
        assert np.isfinite(value).all(), name
    # they move, they arrive, and then they get new goals
    position, goals = loops["position_world"], loops["goal_world"]
    assert np.abs(np.diff(position, axis=0)).max() > 0.01
    assert np.abs(np.diff(goals, axis=0)).max() > 0.1
    # the test vector is an early moment of these loops, and JAX's answer to it
    vector = tiny_export.contract.test_vector
    rows = {name: np.array(value, np.float32) for name, value in vector.inputs.items()}
    np.testing.assert_allclose(rows["goal_world"], goals[10, :4], atol=1e-6)
    np.testing.assert_allclose(vector.outputs["command"], call_step(step, rows)["command"], atol=1e-6)


def test_the_robot_runs_what_was_trained(workshop, tiny_run, tiny_export):
    artefact = PolicyArtefact.load(tiny_export.path, robot=load_robot("gritsbot_x"), sha256=tiny_export.sha256)
    step = workshop.agent.policy(load_parameters(workshop, tiny_run))
    rows = {name: np.array(value, np.float32) for name, value in artefact.contract.test_vector.inputs.items()}
    expected = call_step(step, rows)["command"]
    for index, command in enumerate(expected):
        signals = {name: value[index] for name, value in rows.items() if name != HIDDEN}
        found, _ = artefact.step(signals, artefact.initial_hidden())
        np.testing.assert_allclose(found, command, atol=1e-5)


def test_evaluations_stand_in_the_contract_by_team_size(workshop):
    other = replace(EVALUATION, team_size=6, success=1.0)
    contract = make_contract(workshop, [EVALUATION, other])
    assert set(contract.evaluation) == {"4", "6"}
    assert contract.evaluation["4"]["time_to_success_s"] is None  # JSON has no NaN
    assert contract.evaluation["6"]["success"] == 1.0
    assert Contract.to_json(contract)


def test_a_policy_with_memory_in_space_has_its_own_contract():
    workshop = build(replace(TINY, robot="crazyflie_2x", memory=8, team_size=3, worlds=2))
    contract = make_contract(workshop, [])
    assert (contract.dimension, contract.hidden_size, contract.team_size) == (3, 8, 3)
    assert graph_inputs(contract)[HIDDEN] == (8,)
    assert contract.decision_period_s == pytest.approx(0.33, abs=0.02)
    assert len(contract.arena.low_world) == 3


def test_outside_a_checkout_the_commit_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(packaging, "__file__", str(tmp_path / "packaging.py"))
    assert packaging._git_commit() == ""
    monkeypatch.setenv("PATH", "")
    assert packaging._git_commit() == ""


def test_saved_evaluations_are_read_and_what_is_none_is_refused(tmp_path):
    assert saved_evaluations(tmp_path) == []
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps([EVALUATION.to_dict()]))
    (found,) = saved_evaluations(tmp_path)
    assert np.isnan(found.time_to_success_s)
    assert found.to_dict() == EVALUATION.to_dict()
    for text in ("{", "3", '[{"success": 1.0}]', '["x"]', "{}x"):
        file.write_text(text)
        with pytest.raises(TestudoError, match="is not what `testudo evaluate --json` writes"):
            saved_evaluations(tmp_path)
