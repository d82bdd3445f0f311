"""The artefact of a run: a complete contract, loops of 500 steps, the file that a robot loads."""

import itertools
import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tests.policies.exporting.evaluations import EVALUATION
from tests.policies.quick import TINY

from testudo_deploy.contract.contract import HOLD_RULE, VERSION, Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import HIDDEN, graph_inputs
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot, robot_files
from testudo_policies.commands.export import saved_evaluations
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED
from testudo_policies.exporting import packaging, parity
from testudo_policies.exporting.onnx_export import export_policy
from testudo_policies.exporting.packaging import closed_loops, make_contract, write_fleet
from testudo_policies.exporting.parity import call_step
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.train_config import TrainConfig
from testudo_sim.online_task.task_state import task_of

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def components():
    return build(TINY)


def test_the_contract_says_all_that_a_robot_and_a_reader_ask(tiny_export, components):
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
    assert contract.arena == components.environment.scenario.arena
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
    assert set(provenance) == {"config", "updates", "task", "world_sha256", "git", "python", "versions"}


def test_parity_covers_ten_thousand_inputs_and_loops_of_500_steps(tiny_export):
    parity = tiny_export.contract.parity
    assert parity == json.loads(json.dumps(tiny_export.parity.to_dict()))
    assert parity["inputs"] >= 10_000
    assert parity["loop_steps"] == 500
    assert parity["loops"] == 4 * TINY.team_size  # robots of four worlds
    assert parity["max_error"] <= parity["tolerance"] == 1e-5
    assert parity["teacher_forced_error"] <= 1e-5


def test_closed_loops_are_what_robots_see_when_the_policy_drives(components, tiny_run, tiny_export):
    step = components.agent.policy(jax.device_get(load_parameters(components, tiny_run)))
    loops = closed_loops(components, step, 500, 4)  # as the export does
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
    np.testing.assert_allclose(vector.outputs["command"], call_step(jax.jit(step), rows)["command"], atol=1e-6)


def test_the_robot_runs_what_was_trained(components, tiny_run, tiny_export):
    artefact = PolicyArtefact.load(tiny_export.path, robot=load_robot("gritsbot_x"), sha256=tiny_export.sha256)
    step = components.agent.policy(jax.device_get(load_parameters(components, tiny_run)))
    rows = {name: np.array(value, np.float32) for name, value in artefact.contract.test_vector.inputs.items()}
    expected = call_step(jax.jit(step), rows)["command"]
    for index, command in enumerate(expected):
        signals = {name: value[index] for name, value in rows.items() if name != HIDDEN}
        found, _ = artefact.step(signals, artefact.initial_hidden())
        np.testing.assert_allclose(found, command, atol=1e-5)


def test_evaluations_stand_in_the_contract_by_team_size(components):
    other = replace(EVALUATION, team_size=6, success=1.0)
    contract = make_contract(components, [EVALUATION, other])
    assert set(contract.evaluation) == {"4", "6"}
    assert contract.evaluation["4"]["time_to_success_s"] is None  # JSON has no NaN
    assert contract.evaluation["6"]["success"] == 1.0
    assert Contract.to_json(contract)


def test_a_policy_with_memory_in_space_has_its_own_contract():
    components = build(replace(TINY, robot="crazyflie_2x", memory=8, team_size=3, worlds=2))
    contract = make_contract(components, [])
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
        with pytest.raises(TestudoError, match="expected the output of `testudo evaluate --json`"):
            saved_evaluations(tmp_path)


@pytest.fixture(scope="module")
def fleet(tiny_export, components, tmp_path_factory, quick):
    folder = tmp_path_factory.mktemp("fleet") / "new"
    return load_fleet(write_fleet(components, tiny_export, folder / "fleet.yaml", 0))


def test_it_pins_the_file_and_names_it_relative_to_itself(fleet, tiny_export):
    assert fleet.policy_sha256 == tiny_export.sha256
    assert fleet.policy.samefile(tiny_export.path)
    assert f"policy_sha256: {tiny_export.sha256}" in fleet.file.read_text()
    assert str(tiny_export.path.parent) not in fleet.file.read_text()
    for robot in fleet.robots:
        PolicyArtefact.load(fleet.policy, robot=robot.spec, sha256=fleet.policy_sha256)


def test_it_holds_the_team_within_the_arena_and_apart(fleet, components):
    spec = load_robot("gritsbot_x")
    assert fleet.names == ("r0", "r1")
    arena, shield = components.environment.scenario.arena, components.shield
    for robot in fleet.robots:
        assert (robot.type, robot.spec) == ("gritsbot_x", spec)
        assert abs(robot.initial_yaw) <= math.pi
        for place in (robot.initial_position_world, robot.goal_world):
            for low, value, high in zip(arena.low_world, place, arena.high_world, strict=True):
                assert low + shield.wall_m < value < high - shield.wall_m
    for one, other in itertools.combinations(fleet.robots, 2):
        for key in ("initial_position_world", "goal_world"):
            gap = math.dist(getattr(one, key), getattr(other, key))
            assert gap >= shield.separation_m + 0.1 - 1e-3


def test_straight_paths_cross_in_it(fleet):
    def side(a, b, point):
        return (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])

    (a, b), (c, d) = ((robot.initial_position_world, robot.goal_world) for robot in fleet.robots)
    assert side(a, b, c) * side(a, b, d) < 0
    assert side(c, d, a) * side(c, d, b) < 0


def test_another_seed_is_another_start_and_the_same_seed_the_same_file(fleet, components, tiny_export, tmp_path):
    again = write_fleet(components, tiny_export, fleet.file.parent / "again.yaml", 0)
    assert again.read_text() == fleet.file.read_text()
    other = load_fleet(write_fleet(components, tiny_export, tmp_path / "other.yaml", 100))
    assert other.robots[0].goal_world != fleet.robots[0].goal_world


@pytest.mark.parametrize("seed", [-1, 2**31 - HELD_OUT_SEED])
def test_a_seed_beyond_the_held_out_ones_is_refused(seed, components, tiny_export, tmp_path):
    with pytest.raises(TestudoError, match=f"--seed: found {seed}, expected 0 to"):
        write_fleet(components, tiny_export, tmp_path / "fleet.yaml", seed)
    assert not list(tmp_path.iterdir())


def test_the_fleet_file_of_a_task_holds_its_start_and_no_goals(tmp_path):
    components = build(replace(TINY, scenario="foraging", team_size=3))
    report = SimpleNamespace(path=tmp_path / "policy.onnx", sha256="0" * 64)
    path = write_fleet(components, report, tmp_path / "fleet.yaml", 0)
    fleet, scenario = load_fleet(path), components.environment.scenario
    assert "goal" not in path.read_text()
    first = jax.device_get(jax.jit(lambda key: scenario.start(key, 3))(jax.random.key(HELD_OUT_SEED)))
    made = task_of(scenario, fleet)
    jax.tree.map(
        lambda found, expected: np.testing.assert_allclose(found[..., 0], expected, atol=1e-6), made, first.task
    )
    place = np.array([robot.initial_position_world for robot in fleet.robots]).T
    assert np.allclose(place, first.position_world, atol=1e-4)


def test_an_own_robot_in_space_is_named_relative_to_the_file(tmp_path):
    own = tmp_path / "robots" / "own_drone.toml"
    own.parent.mkdir()
    own.write_text(robot_files()["crazyflie_2x"].read_text().replace("crazyflie_2x", "own_drone"))
    components = build(replace(TINY, robot=str(own), team_size=3))
    report = SimpleNamespace(path=tmp_path / "policy.onnx", sha256="0" * 64)
    fleet = load_fleet(write_fleet(components, report, tmp_path / "fleets" / "fleet.yaml", 0))
    assert {robot.type for robot in fleet.robots} == {"../robots/own_drone.toml"}
    assert {robot.spec.name for robot in fleet.robots} == {"own_drone"}
    for robot in fleet.robots:
        assert len(robot.initial_position_world) == len(robot.goal_world) == 3
        assert robot.initial_yaw == 0


def test_a_best_response_is_not_exported_because_its_other_role_has_learnt_nothing(tmp_path):
    components = build(TrainConfig(scenario="chase", sharing="role", against="runs/play", role="prey"))
    parameters = jax.eval_shape(components.learner.init, jax.random.key(0)).parameters
    with pytest.raises(
        TestudoError, match="a best response to runs/play, in which only prey has learnt; expected a run"
    ):
        packaging.package_policy(components, parameters, tmp_path / "policy.onnx", [])
    assert not (tmp_path / "policy.onnx").exists()


def test_the_file_sees_as_many_neighbours_as_the_policy_and_the_same_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(parity, "SLOTS", (1, 3, 8))
    components = build(replace(TINY, most_neighbours=2))
    agent, contract = components.agent, make_contract(components, [])
    inputs = parity.random_inputs(contract, 8, 8, np.random.default_rng(0))
    features = agent.encode(inputs)
    parameters = jax.device_get(agent.init(jax.random.key(0), features, features))
    report = export_policy(agent.policy(parameters), contract, inputs, tmp_path / "policy.onnx")
    assert report.parity.inputs > 10_000
    assert report.parity.max_error <= 1e-5  # 8 neighbours among them; others would be another command
