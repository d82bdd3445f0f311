"""brax's own trainers on our scenarios: they learn, and what they learn is a policy like ours."""

import json
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY, TINY_OPTIONS, assert_equal_trees

from testudo_deploy.artefact import Artefact
from testudo_deploy.cli import main
from testudo_hardware.errors import TestudoError
from testudo_policies import brax_trainers
from testudo_policies.adapters.team_view import TeamView
from testudo_policies.brax_networks import BraxNetworks, pooled
from testudo_policies.brax_parts import running_statistics, specs
from testudo_policies.brax_trainers import prepared, train_run_with_brax
from testudo_policies.build import build
from testudo_policies.checkpoints import CheckpointError, load_config
from testudo_policies.encoding import encode
from testudo_policies.evaluation import evaluate_policy
from testudo_policies.packaging import package_policy
from testudo_policies.parity import random_inputs
from testudo_policies.subject import load_subject
from testudo_policies.training import load_parameters

pytestmark = pytest.mark.usefixtures("quick")

TINY_PPO = replace(TINY, trainer="brax-ppo")
TINY_SAC = replace(TINY, trainer="brax-sac", algorithm="ippo")


def logged(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def finite(tree):
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree_util.tree_leaves(tree))


@pytest.fixture(scope="module")
def ppo_run(quick, tmp_path_factory):
    """Return the folder of a tiny run by brax's PPO, made by the program itself."""
    folder = tmp_path_factory.mktemp("brax") / "run"
    words = ["train", "--trainer", "brax-ppo", "--run", str(folder), *TINY_OPTIONS]
    assert main(words) == 0
    return folder


def networks_of(config):
    workshop = build(config)
    view = TeamView(workshop.environment, central=config.network.central_critic)
    return workshop, view, BraxNetworks.of(workshop.agent, view)


def test_a_run_leaves_configuration_metrics_and_parameters_like_ours(ppo_run):
    assert load_config(ppo_run) == TINY_PPO
    rows = logged(ppo_run)
    assert [row["update"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["decisions"] == TINY.decisions
    assert all(np.isfinite(value) for value in rows[-1].values())
    workshop = build(TINY_PPO)
    parameters = load_parameters(workshop, ppo_run)
    shapes = jax.eval_shape(workshop.ppo.init, jax.random.key(0)).parameters
    assert jax.tree.structure(parameters) == jax.tree.structure(shapes)
    assert finite(parameters)
    assert parameters.own_statistics.count.to_numpy() == TINY.decisions * TINY.team_size
    assert (parameters.own_statistics.std != 1).any()


def test_the_same_seed_gives_the_same_bits(ppo_run, tmp_path):
    workshop = build(TINY_PPO)
    again = train_run_with_brax(workshop, tmp_path)
    assert again.finished
    assert_equal_trees(again.parameters, load_parameters(workshop, ppo_run))


def test_what_brax_saw_of_the_features_is_what_our_agent_keeps(quick):
    # the same rollout through brax's statistics of flat observations and through our own
    workshop, view, _ = networks_of(replace(TINY_PPO, team_size=4))
    worlds = workshop.environment.reset(jax.random.split(jax.random.key(0), 40))
    observation = view.observe(worlds)
    flat = running_statistics.init_state(specs.Array(observation.shape[-1:], jnp.float32))
    features = encode(workshop.environment.signals(worlds))
    central = encode(workshop.environment.central_signals(worlds))
    ours = workshop.agent.init(jax.random.key(0), features, central)
    for part in (slice(0, 10), slice(10, 40)):
        flat = running_statistics.update(flat, observation[part])
        ours = workshop.agent.observe(ours, jax.tree.map(lambda x, p=part: x[p], features))
    wanted = (ours.own_statistics, ours.neighbour_statistics)
    for found, expected in zip(pooled(flat, view.layouts[0]), wanted, strict=True):
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("algorithm", ["mappo", "ippo"])
def test_brax_acts_and_values_as_our_agent_does(algorithm):
    workshop, view, networks = networks_of(replace(TINY_PPO, algorithm=algorithm))
    worlds = workshop.environment.reset(jax.random.split(jax.random.key(0), 5))
    observation = view.observe(worlds)
    flat = running_statistics.init_state(specs.Array(observation.shape[-1:], jnp.float32))
    statistics = running_statistics.update(flat, observation)
    theirs = networks.for_ppo(observation.shape[-1], 2)
    actor = theirs.policy_network.init(jax.random.key(1))
    critic = theirs.value_network.init(jax.random.key(2))
    logits = theirs.policy_network.apply(statistics, actor, observation)
    value = theirs.value_network.apply(statistics, critic, observation)
    of_action = networks.for_sac(observation.shape[-1], 2).q_network
    estimates = of_action.apply(
        statistics, of_action.init(jax.random.key(3)), observation, logits[..., :2]
    )
    assert estimates.shape == (5, TINY.team_size, 2)  # two critics that differ
    assert (estimates[..., 0] != estimates[..., 1]).all()
    agent, parameters = workshop.agent, networks.parameters(statistics, actor, critic)
    signals = workshop.environment.signals(worlds)
    velocity, _ = agent.policy(parameters)(signals, jnp.zeros((5, 0)))
    action = theirs.parametric_action_distribution.mode(logits)
    np.testing.assert_allclose(view.velocity_world(worlds, action), velocity, atol=1e-5)
    features = encode(signals)
    seen = (
        encode(workshop.environment.central_signals(worlds))
        if algorithm == "mappo"
        else agent.normalise(parameters, features)
    )
    np.testing.assert_allclose(value, agent.value(parameters, seen), atol=1e-5)


def test_a_brax_run_is_exported_like_any_other(ppo_run):
    assert main(["export", str(ppo_run), "--json", str(ppo_run / "export.json")]) == 0
    numbers = json.loads((ppo_run / "export.json").read_text())
    assert numbers["parity"]["max_error"] <= 1e-5
    assert Artefact.load(ppo_run / "policy.onnx").contract.hidden_size == 0
    saved = load_parameters(build(TINY_PPO), ppo_run)
    signals = random_inputs(Artefact.load(ppo_run / "policy.onnx").contract, 4, 3, np.random.default_rng(0))
    hidden = jnp.zeros((4, 0))
    ours, _ = build(TINY_PPO).agent.policy(saved)(signals, hidden)
    file, _ = load_subject(ppo_run / "policy.onnx").policy(signals, hidden)
    np.testing.assert_allclose(file, ours, atol=1e-5)


def test_a_finished_run_is_left_as_it_is(ppo_run, capsys, monkeypatch):
    monkeypatch.setattr(brax_trainers, "train_ppo", None)
    assert main(["train", "--run", str(ppo_run)]) == 0
    assert "finished: 4 of 4 updates" in capsys.readouterr().out
    assert len(logged(ppo_run)) == 4


def test_ctrl_c_keeps_what_was_reached_and_going_on_is_refused(tmp_path, monkeypatch, capsys):
    seen = []

    def stop_after_two(progress):
        seen.append(progress)
        if progress.update == 2:
            raise KeyboardInterrupt

    workshop = build(TINY_PPO)
    result = train_run_with_brax(workshop, tmp_path, stop_after_two)
    assert (result.finished, result.updates) == (False, 2)
    assert [item.decisions for item in seen] == [16, 32]
    kept = load_parameters(workshop, tmp_path)
    assert_equal_trees(result.parameters, kept)
    assert kept.own_statistics.count.to_numpy() == 32 * TINY.team_size
    with pytest.raises(CheckpointError, match="stopped at update 2 of 4 and cannot go on"):
        train_run_with_brax(workshop, tmp_path)
    assert main(["train", "--run", str(tmp_path)]) == 2
    assert "train into another folder" in capsys.readouterr().err


def test_ctrl_c_before_the_first_update_leaves_a_folder_to_start_in(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(brax_trainers, "train_ppo", stopped)
    with pytest.raises(KeyboardInterrupt):
        train_run_with_brax(build(TINY_PPO), tmp_path)
    assert not hasattr(jax, "device_put_replicated")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        load_parameters(build(TINY_PPO), tmp_path)


def test_a_policy_with_memory_is_not_for_brax():
    fitted, note = prepared(replace(TINY_PPO, memory=32))
    assert fitted == TINY_PPO
    assert note == "brax-ppo trains policies without memory: --memory is 0 in this run"
    assert prepared(TINY) == (TINY, "")
    assert prepared(replace(TINY, memory=8)) == (replace(TINY, memory=8), "")
    with pytest.raises(TestudoError, match="--memory: found 8, brax-sac trains policies without"):
        train_run_with_brax(build(replace(TINY_SAC, memory=8)), None)


def test_another_trainer_is_refused_in_one_sentence(capsys):
    assert main(["train", "--trainer", "dreamer"]) == 2
    said = capsys.readouterr().err
    assert "--trainer: found 'dreamer', expected one of testudo, brax-ppo, brax-sac" in said


def test_worlds_are_not_torn_between_devices(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 3)
    with pytest.raises(TestudoError, match="--worlds: found 4, brax-ppo shares them evenly"):
        train_run_with_brax(build(TINY_PPO), None)


@pytest.mark.slow  # brax's SAC is four programs to compile
def test_sac_runs_updates_without_a_nan_and_its_actor_is_exported(tmp_path):
    workshop = build(TINY_SAC)
    first = workshop.agent.init(jax.random.key(0), *[blank_features(workshop)] * 2)
    result = train_run_with_brax(workshop, tmp_path)
    assert result.finished
    rows = logged(tmp_path)
    assert rows[-1]["update"] == 4
    for name in ("train/return", "train/success", "loss/critic_loss", "loss/actor_loss"):
        assert all(np.isfinite(row[name]) for row in rows), name
    parameters = load_parameters(workshop, tmp_path)
    assert finite(parameters)
    learned = jax.tree.map(lambda old, new: bool((old != new).any()), first.actor, parameters.actor)
    assert all(jax.tree_util.tree_leaves(learned))
    report = package_policy(workshop, parameters, tmp_path / "policy.onnx", [])
    assert report.parity.max_error <= 1e-5
    assert load_subject(report.path).memory == 0


def blank_features(workshop):
    worlds = workshop.environment.reset(jax.random.split(jax.random.key(0), 1))
    return jax.tree.map(lambda x: x[0], encode(workshop.environment.signals(worlds)))


@dataclass(frozen=True)
class Misled(BraxNetworks):
    """Networks whose first policy drives backwards: untrained, ours goes straight to the goal."""

    def _init(self, key):
        parameters = super()._init(key)
        layers = parameters.actor["params"]
        bias = {**layers["mean"], "bias": jnp.array([-1.5, 0.0])}
        return replace(parameters, actor={"params": {**layers, "mean": bias}})


LEARNING = replace(
    TINY_PPO, team_size=3, worlds=64, rollout=16, width=32, epochs=2, minibatches=4,
    learning_rate=3e-3, decisions=64 * 16 * 30,
)  # fmt: skip


def test_ppo_of_brax_raises_the_return(tmp_path, monkeypatch):
    monkeypatch.setattr(brax_trainers, "BraxNetworks", Misled)
    workshop = build(LEARNING)
    scenario = workshop.environment.scenario.with_horizon(10.0)  # so that many episodes end
    workshop = replace(workshop, environment=replace(workshop.environment, scenario=scenario))
    assert train_run_with_brax(workshop, tmp_path).finished
    returns = [row["train/return"] for row in logged(tmp_path) if "train/return" in row]
    # episodes of ten seconds at full speed to the goal are worth about 12; backwards, less than 0
    assert np.mean(returns[1:4]) < 0
    assert np.mean(returns[-6:]) > 4


@pytest.mark.slow
def test_ppo_of_brax_learns_navigation(tmp_path, monkeypatch):
    monkeypatch.setattr(brax_trainers, "BraxNetworks", Misled)
    workshop = build(replace(LEARNING, rollout=32, width=64, decisions=300_000))
    result = train_run_with_brax(workshop, tmp_path)
    rows = [row for row in logged(tmp_path) if "train/return" in row]
    assert rows[4]["train/success"] < 0.1
    assert rows[4]["train/return"] < 0
    policy = jax.jit(workshop.agent.policy(result.parameters))
    after = evaluate_policy(workshop.environment, policy, 0, 100)
    assert after.success >= 0.8
    assert after.contacts == 0
