"""One update: what it changes, that it repeats, that it vectorises, that it learns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY, assert_equal_trees

from testudo_policies.learning.builder import build
from testudo_policies.learning.rollout import collect_rollout

pytestmark = pytest.mark.usefixtures("quick")

# every factor both ways; all their combinations with the slow tests, as each compiles an update of its own
CASES = [
    ("mappo", 0, "gritsbot_x"),
    ("ippo", 8, "crazyflie_2x"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in [
            ("mappo", 8, "crazyflie_2x"),
            ("ippo", 0, "crazyflie_2x"),
            ("ippo", 8, "gritsbot_x"),
            ("mappo", 0, "crazyflie_2x"),
            ("mappo", 8, "gritsbot_x"),
            ("ippo", 0, "gritsbot_x"),
        ]
    ),
]


class Learner:
    """A tiny run with its update compiled."""

    def __init__(self, **changes):
        self.components = build(replace(TINY, **changes))
        self.init = self.components.learner.start
        self.update = jax.jit(self.components.learner.update)


@pytest.fixture(scope="module")
def tiny(quick):
    return Learner()


def changed(before, after):
    """Return the paths of the leaves that differ."""
    before, after = jax.device_get((before, after))
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree_util.tree_leaves(after), strict=True)
    return {jax.tree_util.keystr(path) for (path, old), new in pairs if (old != new).any()}


@pytest.mark.parametrize(("algorithm", "memory", "robot"), CASES)
def test_one_update_changes_actor_critic_and_statistics(algorithm, memory, robot, tiny):
    changes = {"algorithm": algorithm, "memory": memory, "robot": robot}
    learner = tiny if tiny.components.config == replace(TINY, **changes) else Learner(**changes)
    before = learner.init(jax.random.key(0))
    after, metrics = learner.update(before)
    assert int(after.updates) == 1
    old, new = before.parameters, after.parameters
    for part in ("actor", "critic"):
        assert changed(getattr(old, part), getattr(new, part)), f"{part} did not learn"
    touched = changed(old.actor, new.actor)
    for layer in ("encoder", "head", "mean", "scale") + ("memory",) * (memory > 0):
        assert any(f"['{layer}']" in path for path in touched), f"{layer} did not learn"
    samples = TINY.worlds * TINY.team_size * TINY.rollout
    assert new.own_statistics.count.to_numpy() == samples
    assert new.neighbour_statistics.count.to_numpy() == samples * (TINY.team_size - 1)
    assert (jax.random.key_data(before.key) != jax.random.key_data(after.key)).any()
    assert after.rollout.hidden.shape == (TINY.worlds * TINY.team_size, memory)
    assert not memory or (after.rollout.hidden != 0).any()
    for name, value in metrics.items():
        assert np.isfinite(value), name
    finite = jax.tree.map(lambda x: bool(jnp.isfinite(x).all()), (new.actor, new.critic))
    assert all(jax.tree_util.tree_leaves(finite))


def test_the_central_critic_reads_the_peers_goals_and_the_other_does_not():
    def critic_inputs(algorithm):
        learner = Learner(algorithm=algorithm)
        shapes = jax.eval_shape(learner.components.learner.init, jax.random.key(0)).parameters
        encoder = {name: part["params"] for name, part in vars(shapes).items() if name in ("actor", "critic")}
        actor = encoder["actor"]["encoder"]["neighbour_1"]["kernel"].shape[0]
        critic = encoder["critic"]["TeamEncoder_0"]["neighbour_1"]["kernel"].shape[0]
        return critic - actor

    assert critic_inputs("mappo") == 2
    assert critic_inputs("ippo") == 0


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(tiny):
    def run(seed):
        state, _ = tiny.update(tiny.init(jax.random.key(seed)))
        return tiny.update(state)

    first, again, other = run(0), run(0), run(1)
    assert_equal_trees(first, again)
    assert changed(first[0].parameters.actor, other[0].parameters.actor)


def test_one_jitted_update_of_two_seeds_equals_two_single_updates(tiny):
    begin = [tiny.init(jax.random.key(seed)) for seed in (3, 4)]
    both = jax.tree.map(lambda *x: jnp.stack(x), *begin)
    together, metrics = jax.jit(jax.vmap(tiny.components.learner.update))(both)
    for index, state in enumerate(begin):
        single, values = tiny.update(state)
        for old, new, vectorised in zip(
            jax.tree_util.tree_leaves((state.parameters.actor, state.parameters.critic)),
            jax.tree_util.tree_leaves((single.parameters.actor, single.parameters.critic)),
            jax.tree_util.tree_leaves((together.parameters.actor, together.parameters.critic)),
            strict=True,
        ):
            # Adam divides by the gradient's own size, so that rounding counts where it is almost
            # zero: far less than the step that is made
            np.testing.assert_allclose(vectorised[index], new, atol=1e-4)
            assert np.abs(new - old).max() < 3 * TINY.learning_rate
        position = together.rollout.worlds.team.physics.position_world[index]
        np.testing.assert_allclose(position, single.rollout.worlds.team.physics.position_world, atol=1e-4)
        np.testing.assert_allclose(metrics["train/reward"][index], values["train/reward"], atol=1e-4)


def test_the_rollout_goes_on_where_the_last_one_ended(tiny):
    # 4 decisions an update: a world is 4, then 8 decisions old, unless it began anew meanwhile
    state = tiny.init(jax.random.key(0))
    assert state.rollout.fresh.all()
    ended = 0
    for decisions in (4, 8):
        state, metrics = tiny.update(state)
        elapsed = state.rollout.worlds.elapsed
        ended += int(metrics["train/episodes"])
        assert (elapsed == decisions).any()
        assert (elapsed <= decisions).all()
        assert (elapsed < decisions).sum() <= ended
        np.testing.assert_array_equal(state.rollout.fresh, elapsed == 0)


def test_learning_raises_the_return():
    # the untrained policy drives straight to the goal, which is almost good; with a bias against
    # that it comes to rest far away, and there is all to learn again
    learner = Learner(
        team_size=3, worlds=64, rollout=16, width=32, epochs=2, minibatches=4, learning_rate=3e-3,
        decisions=64 * 16 * 30,
    )  # fmt: skip
    state = learner.init(jax.random.key(0))
    parameters = state.parameters.actor["params"]
    bias = {**parameters["mean"], "bias": jnp.array([-1.0, 0.0])}
    actor = {"params": {**parameters, "mean": bias}}
    state = replace(state, parameters=replace(state.parameters, actor=actor))
    rewards = []
    for _ in range(24):
        state, metrics = learner.update(state)
        rewards.append(float(metrics["train/reward"]))
    # eight updates are one episode to its time limit; without learning both are about 0.05
    assert np.mean(rewards[:8]) < 0.1
    assert np.mean(rewards[-8:]) > 0.2


def test_a_rollout_says_which_robots_stood_and_an_update_with_failures_keeps_its_state():
    """All robots fail at some time: while they stand they earn nothing."""
    ppo = build(replace(TINY, failures=1.0)).learner
    state = jax.jit(ppo.init)(jax.random.key(0))

    def rollout(state):
        given = (state.parameters, state.rollout, jax.random.key(1), 3 * ppo.environment.horizon // 2)
        return collect_rollout(ppo.agent, ppo.environment, *given)[1]

    batch = jax.device_get(jax.jit(rollout)(state))
    stood = ~batch.counted
    assert 0.2 < stood.mean() < 0.8
    assert (batch.reward[stood] == 0).all()
    assert (batch.reward[~stood] != 0).any()
    assert not (batch.left & stood).any()
    done = batch.terminated | batch.truncated
    begins = stood[1:] & ~stood[:-1] & ~done[:-1]
    np.testing.assert_array_equal(batch.left[:-1][~done[:-1]], begins[~done[:-1]])
    after, _ = jax.eval_shape(ppo.update, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)


def test_a_world_that_diverges_teaches_nothing(tiny):
    """One NaN would otherwise come through the means into every parameter."""
    begin = tiny.init(jax.random.key(0))
    physics = begin.rollout.worlds.team.physics
    poisoned = replace(physics, position_world=physics.position_world.at[:, :, 0].set(jnp.nan))
    team = replace(begin.rollout.worlds.team, physics=poisoned)
    state = replace(begin, rollout=replace(begin.rollout, worlds=replace(begin.rollout.worlds, team=team)))
    after, metrics = tiny.update(state)
    lost = int(metrics["train/not_counted"])
    assert 0 < lost <= TINY.rollout * TINY.team_size
    assert changed(state.parameters.actor, after.parameters.actor)
    again, later = tiny.update(after)
    assert later["train/not_counted"] == 0  # the world began anew
    for parts in (after, again):
        whole = jax.device_get((parts.parameters, parts.optimiser))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(whole) if np.issubdtype(leaf.dtype, np.floating))
    robots = TINY.worlds * TINY.team_size
    assert after.parameters.own_statistics.count.to_numpy() == robots * TINY.rollout - lost


def test_the_critic_learns_in_units_of_the_returns(tiny):
    """Its unit is the deviation of the returns; its values are in units of reward."""
    state = tiny.init(jax.random.key(0))
    assert tiny.components.agent.value_scale(state.parameters) == 1.0
    after, _ = tiny.update(state)
    statistics = after.parameters.value_statistics
    assert statistics.count.to_numpy() == TINY.worlds * TINY.team_size * TINY.rollout
    agent, environment = tiny.components.agent, tiny.components.learner.environment

    @jax.jit
    def value(parameters, worlds):
        return agent.value(parameters, agent.encode(environment.central_signals(worlds)))

    one = replace(after.parameters, value_statistics=state.parameters.value_statistics)
    scaled, found = (value(parameters, after.rollout.worlds) for parameters in (one, after.parameters))
    np.testing.assert_allclose(found, statistics.mean[0] + statistics.std[0] * scaled, rtol=1e-5)
