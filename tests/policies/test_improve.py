"""A better policy out of a run: where it begins, what is learnt from, when it is exported."""

import json
import shutil
from dataclasses import replace
from importlib import resources

import jax
import numpy as np
import onnx
import pytest
from tests.policies.quick import TINY
from tests.sim.recorded_run import record_run

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands import improve as improve_module
from testudo_policies.dataset.episodes import episodes_of
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.improve import steps as steps_module
from testudo_policies.improve.comparison import Comparison, Verdict
from testudo_policies.improve.discriminators import DiscriminatorConfig
from testudo_policies.improve.fine_tuning import FineTuner
from testudo_policies.improve.initial_policy import CHECKPOINT, GRAPH, find_initial_policy, matches, parameters_of_graph
from testudo_policies.improve.recorded_run import recorded_of, run_starts
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import save_config
from testudo_policies.learning.training_run import load_parameters

EVALUATION = Evaluation(4, 500, 0, 40.0, 0.5, 0.96, 0.94, 0.975, 0, 0, 0.006, 0.2, 0.2, 0.1, 0.0, 0, 15.0)


@pytest.fixture(scope="module")
def artefact(tiny_export):
    return PolicyArtefact.load(tiny_export.path)


@pytest.fixture(scope="module")
def run(artefact):
    return record_run(artefact, load_robot("gritsbot_x"), seconds=4.0, count=3)


@pytest.fixture(scope="module")
def robot_file(tmp_path_factory):
    """Return a robot that is slower and lags more than the one that the policy was trained for."""
    text = resources.files("testudo_hardware.robots").joinpath("gritsbot_x.toml").read_text()
    text = text.replace("interval = [0.064, 0.096]", "interval = [0.07, 0.14]")
    path = tmp_path_factory.mktemp("robot") / "identified.toml"
    path.write_text(text)
    return path


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def test_the_actor_comes_back_out_of_the_graph_bit_for_bit(quick, tiny_run, artefact):
    components = build(TINY)
    trained = load_parameters(components, tiny_run)
    blank = components.learner.start(jax.random.key(9)).parameters
    assert not matches(components.agent, blank, artefact.contract)
    found = parameters_of_graph(onnx.load(artefact.path), blank, 1000)
    assert same(found.actor, trained.actor)
    assert same(found.own_statistics.mean, trained.own_statistics.mean)
    assert same(found.neighbour_statistics.std, trained.neighbour_statistics.std)
    assert matches(components.agent, found, artefact.contract)


def test_it_begins_with_the_checkpoint_beside_the_artefact_else_with_the_graph(
    quick, tiny_run, artefact, tmp_path, robot_file
):
    beside = shutil.copytree(tiny_run, tmp_path / "run") / "policy.onnx"
    beside.write_bytes(artefact.path.read_bytes())
    found = find_initial_policy(PolicyArtefact.load(beside), robot_file)
    assert (found.source, found.config.robot, found.warm_up) == (CHECKPOINT, str(robot_file), 0)
    alone = tmp_path / "policy.onnx"
    alone.write_bytes(artefact.path.read_bytes())
    save_config(tmp_path, replace(TINY, algorithm="masac"))  # a run whose critic is of no use here
    found = find_initial_policy(PolicyArtefact.load(alone), robot_file)
    assert found.source == GRAPH
    assert found.warm_up > 0  # its critic is new
    assert replace(found.config, robot=TINY.robot) == TINY


def test_the_scenario_starts_where_the_run_was(run, artefact):
    starts = run_starts(run, artefact.contract, load_robot("gritsbot_x"))
    assert starts.horizon_s == starts.inner.horizon_s  # all else is the scenario's
    drawn = jax.jit(jax.vmap(lambda key: starts.start(key, 3)))(jax.random.split(jax.random.key(0), 50))
    truth = np.stack([run.truth[name].position_world[:, :2] for name in run.robots])
    for place in np.asarray(drawn.position_world):
        distance = np.linalg.norm(truth - place.T[:, None], axis=-1)  # robot, sample
        assert (distance.min(axis=1) < 5e-3).all()  # between two samples
    assert len({tuple(x) for x in np.asarray(drawn.yaw).tolist()}) > 2
    np.testing.assert_allclose(
        np.asarray(drawn.task.goal_world)[0].T, [robot.goal_world for robot in run.fleet.robots], atol=1e-6
    )


def test_recorded_transitions_are_what_a_rollout_would_hold(quick, run, artefact, tiny_run):
    components = build(TINY)
    parameters = load_parameters(components, tiny_run)
    (episode,) = episodes_of(run, artefact.contract)
    recorded = recorded_of([episode], components, parameters)
    length = TINY.rollout
    sequences = -(-len(episode) // length)
    assert recorded.weight.shape == (length, sequences * 3 + sequences * 3 % TINY.minibatches)
    assert int(recorded.weight[:, : sequences * 3].sum()) == episode.valid.sum()
    # a deployed policy sends its most probable action: the actor finds it there again
    velocity_world = jax.jit(components.agent.velocity_world)
    logits, _ = jax.jit(components.agent.act)(
        parameters, recorded.batch.features, recorded.hidden, recorded.batch.fresh
    )
    mean = np.asarray(logits[..., :2])
    sure = np.asarray(recorded.weight) > 0
    wanted = velocity_world(recorded.batch.features, np.tanh(mean))
    told = velocity_world(recorded.batch.features, np.tanh(recorded.batch.action))
    np.testing.assert_allclose(np.asarray(told)[sure], np.asarray(wanted)[sure], atol=2e-3)
    np.testing.assert_allclose(recorded.batch.reward[0, :3], episode.rewards[0], atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ()),
        ({"success": 0.945}, ()),
        ({"success": 0.93}, ("success 0.930 is below",)),
        ({"episodes_with_contact": 9}, ("contacts in 9 of 500",)),
        ({"time_to_success_s": 17.0}, ("17.0 s",)),
        ({"success": 1.0, "time_to_success_s": float("nan")}, ()),
    ],
)
def test_a_new_policy_is_worse_only_beyond_the_old_ones_interval(change, words):
    regressions = Comparison("there", EVALUATION, replace(EVALUATION, **change)).regressions()
    assert len(regressions) == len(words)
    assert all(word in text for word, text in zip(words, regressions, strict=True))


@pytest.mark.parametrize(
    ("gained", "change", "name"),
    [
        (0.1, {}, "better"),
        (0.1, {"success": 0.5}, "worse"),  # better in most episodes is not enough
        (0.0, {}, "not worse"),
    ],
)
def test_only_a_policy_that_the_paired_test_calls_better_ships(gained, change, name):
    values = gained + 0.2 * np.random.default_rng(0).standard_normal(300)
    values -= values.mean() - gained
    verdict = Verdict.of([Comparison("there", EVALUATION, replace(EVALUATION, **change), np.clip(values, -1, 1))])
    assert verdict.name == name
    assert verdict.text.startswith(f"the new policy is {name}")
    assert Verdict.of([Comparison("there", EVALUATION, EVALUATION)]).name == "not worse"  # without any episode


@pytest.fixture
def run_folder(run, artefact, tmp_path, monkeypatch):
    """Return a folder that reads as the run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "fleet.yaml").write_text("")
    (folder / "policy.onnx").write_bytes(artefact.path.read_bytes())
    monkeypatch.setattr(improve_module, "read_run", lambda _: replace(run, folder=folder))
    return folder


def improved(run_folder, tmp_path, robot_file, **options):
    given = {"episodes": 4, "decisions": 64, "robot": robot_file, "out": tmp_path / "better", **options}
    return improve_module.improve(run_folder, policy=run_folder / "policy.onnx", **given)


@pytest.mark.slow
def test_one_command_ships_a_policy_only_if_it_is_better_and_goes_on_where_it_stopped(
    quick, run_folder, tmp_path, robot_file, capsys, monkeypatch
):
    numbers = tmp_path / "numbers.json"
    with monkeypatch.context() as patch:
        patch.setattr(steps_module, "train_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            improved(run_folder, tmp_path, robot_file)
    status = improved(run_folder, tmp_path, robot_file, json=numbers)
    shown = " ".join(capsys.readouterr().out.split())
    values = json.loads(numbers.read_text())
    assert "resuming" in shown
    cells = " ".join(shown.replace("│", "").split())
    assert "dynamics.velocity_lag 0.08 [0.064, 0.096] s 0.08 [0.07, 0.14] s" in cells
    assert list(values["identified"]) == ["dynamics.velocity_lag"]
    assert values["begins_with"]["source"] == GRAPH
    assert values["trained"]["updates"] == 4
    assert [item["name"] for item in values["comparisons"]] == ["identified model", "starts of the run"]
    made = tmp_path / "better" / "policy.onnx"
    assert status == (0 if values["verdict"] == "better" else 1)
    assert (values["verdict"] == "worse") == bool(values["worse"])
    assert [len(item["success"]) for item in values["episodes"].values()] == [4] * 4
    assert made.is_file() == (status == 0)
    if status == 0:
        contract = PolicyArtefact.load(made).contract
        assert contract.robot_spec["dynamics"]["velocity_lag"]["interval"] == [0.07, 0.14]
    with pytest.raises(TestudoError, match="holds an improvement with other inputs"):
        improved(run_folder, tmp_path, robot_file, method="h2o")


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_worse_policy_is_not_exported(quick, run_folder, tmp_path, robot_file, capsys, monkeypatch):
    worse = Comparison("there", EVALUATION, replace(EVALUATION, success=0.5))
    monkeypatch.setattr(improve_module, "evaluate_step", lambda *_: (worse,))
    monkeypatch.setattr(improve_module, "train_step", lambda *_: None)
    assert improved(run_folder, tmp_path, robot_file) == 1
    assert "the new policy is worse, so the old one is kept" in capsys.readouterr().out
    assert not (tmp_path / "better" / "policy.onnx").exists()


def test_a_policy_that_is_only_not_worse_is_not_exported_and_called_so(
    quick, run_folder, tmp_path, robot_file, capsys, monkeypatch
):
    monkeypatch.setattr(improve_module, "evaluate_step", lambda *_: (Comparison("there", EVALUATION, EVALUATION),))
    monkeypatch.setattr(improve_module, "train_step", lambda *_: None)
    assert improved(run_folder, tmp_path, robot_file) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "the new policy is not worse, but not shown to be better (evidence 1.0, needed 20)" in shown
    assert json.loads((tmp_path / "better" / "improve.json").read_text())["verdict"] == "not worse"
    assert not (tmp_path / "better" / "policy.onnx").exists()


@pytest.mark.parametrize(
    "arm", [{}, *(pytest.param(arm, marks=pytest.mark.slow) for arm in ({"weighted": False}, {"simulate": False}))]
)
def test_a_tuner_learns_from_run_and_simulation_at_first_its_critic_alone(quick, run, artefact, tiny_run, arm):
    components = build(TINY)
    parameters = load_parameters(components, tiny_run)
    recorded = recorded_of(
        episodes_of(run, artefact.contract), components, parameters
    )  # three robots; training has two
    tuner = FineTuner(
        TINY,
        components.agent,
        components.environment,
        begin=parameters,
        recorded=recorded,
        discriminator_config=DiscriminatorConfig(width=8, steps=2, samples=16),
        warm_up=1,
        **arm,
    )
    update = jax.jit(tuner.update)
    state = jax.jit(tuner.init)(jax.random.key(0))
    assert same(state.parameters, parameters)
    once, metrics = update(state)
    assert not same(once.parameters.critic, parameters.critic)
    assert same(once.parameters.actor, parameters.actor)
    assert not same(update(once)[0].parameters.actor, parameters.actor)
    assert all(np.isfinite(value) for value in jax.tree.leaves(jax.device_get(metrics)))
    assert (metrics["h2o/loss"] > 0) == (not arm)  # the discriminators learn where they weigh
    assert 0 < metrics["h2o/trust"] <= 1


@pytest.mark.slow
def test_a_tuner_learns_without_a_run(quick, tiny_run):
    components = build(TINY)
    parameters = load_parameters(components, tiny_run)
    tuner = FineTuner(TINY, components.agent, components.environment, begin=parameters)
    once, _ = jax.jit(tuner.update)(jax.jit(tuner.init)(jax.random.key(0)))
    assert not same(once.parameters.actor, parameters.actor)
