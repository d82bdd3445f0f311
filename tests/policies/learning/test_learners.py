"""The learners beside PPO: they take the reward of a team apart, and a stopped run goes on as if it had not stopped."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.learning.two_places_task import components_of
from tests.policies.quick import TINY, assert_equal_trees

from testudo_policies.evaluation.evaluation import evaluate_policy
from testudo_policies.learning import training_run
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters, train_run
from testudo_policies.train_config import ALGORITHMS, suggested

pytestmark = pytest.mark.usefixtures("quick")


def success(components, updates):
    """Train, and return the share of held-out episodes in which both robots arrive."""
    learner = components.learner
    state, update = learner.start(jax.random.key(0)), jax.jit(learner.update)
    for _ in range(updates):
        state, _ = update(state)
    policy = jax.jit(components.agent.policy(state.parameters))
    return evaluate_policy(components.environment, policy, components.config.memory, episodes=64).success


@pytest.mark.parametrize(
    ("algorithm", "updates"),
    [
        ("pqn-vdn", 30),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("vdn", 40), ("qmix", 40), ("maddpg", 60), ("hasac", 40), ("masac", 40)]
        ),
    ],
)
def test_two_robots_learn_their_parts_from_the_reward_of_the_team(algorithm, updates):
    options, _ = suggested(replace(TINY, algorithm=algorithm))
    chosen = {name: getattr(options, name) for name in ("command", "trace", "epochs")}
    assert success(components_of(algorithm, **{**chosen, "epochs": max(2, options.epochs)}), updates) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_learner_goes_on_bit_for_bit(algorithm, tmp_path):
    config, _ = suggested(replace(TINY, algorithm=algorithm, replay=64))
    components = build(config)
    train_run(components, tmp_path / "whole")
    assert not train_run(components, tmp_path / "parts", stop_at_two).finished
    assert train_run(components, tmp_path / "parts").updates == 4
    assert_equal_trees(*(load_parameters(components, tmp_path / name) for name in ("whole", "parts")))


def stop_at_two(progress):
    if progress.update == 2:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def components(quick):
    """Return a tiny run with all parts: replay, memory, target networks and a mixing network."""
    return build(replace(TINY, algorithm="qmix", command="waypoints", replay=64, memory=4))


@pytest.fixture(scope="module")
def update(components):
    """Return the compiled update."""
    state = components.learner.start.eval_shape(jax.random.key(0))
    return jax.jit(components.learner.update).lower(state).compile()


@pytest.mark.slow
def test_a_stopped_run_from_replay_goes_on_bit_for_bit(components, update, tmp_path, monkeypatch):
    """Target networks, replay and mixing network are in the checkpoint; two of four updates, then the rest."""
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    train_run(components, tmp_path / "whole")
    assert not train_run(components, tmp_path / "parts", stop_at_two).finished
    assert train_run(components, tmp_path / "parts").updates == 4
    assert_equal_trees(*(load_parameters(components, tmp_path / name) for name in ("whole", "parts")))


@pytest.mark.slow
def test_a_diverged_world_does_not_touch_what_is_learned_or_kept(components, update):
    state = components.learner.start(jax.random.key(0))
    physics = state.rollout.worlds.team.physics
    poisoned = replace(physics, position_world=physics.position_world.at[:, :, 0].set(jnp.nan))
    worlds = replace(state.rollout.worlds, team=replace(state.rollout.worlds.team, physics=poisoned))
    state, metrics = update(replace(state, rollout=replace(state.rollout, worlds=worlds)))
    assert metrics["train/not_counted"] > 0
    for leaf in jax.tree.leaves((state.parameters, state.optimiser, state.replay)):
        assert jnp.all(jnp.isfinite(leaf))


def test_the_mixed_value_never_falls_with_that_of_a_robot(components):
    learner = components.learner
    state = learner.start(jax.random.key(1))

    @jax.jit
    def slopes_of(state, key):
        central = learner.agent.encode_central(learner.environment.central_signals(state.rollout.worlds))
        batch = SimpleNamespace(central=jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), central))
        values = jax.random.normal(key, (1, TINY.worlds, TINY.team_size))

        def world_value(values):
            return jnp.sum(learner.mixed(state.parameters, values, batch, jnp.ones(values.shape, bool)))

        return jax.grad(world_value)(values)

    slopes = np.asarray(slopes_of(state, jax.random.key(2)))
    assert (slopes >= 0).all()
    assert (slopes > 0).any()


def test_an_algorithm_sets_the_options_that_were_left():
    config, hint = suggested(replace(TINY, algorithm="pqn-vdn", trace=0.8))
    assert (config.command, config.trace, config.max_gradient) == ("waypoints", 0.8, 10.0)
    assert "--command waypoints" in hint
