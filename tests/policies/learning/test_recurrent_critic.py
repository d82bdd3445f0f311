"""The central critic with memory: what it knows beside the state, and that learning sees the values of the rollout."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.learning.test_learners import success
from tests.policies.learning.two_places_task import components_of
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_policies.learning.rollout import collect_rollout, looked_at
from testudo_policies.train_config import for_fine_tuning

pytestmark = pytest.mark.usefixtures("quick")
KNOWING = replace(TINY, memory=4, critic_memory=6)


def test_the_values_over_time_are_those_of_the_rollout_and_know_what_was_drawn():
    components = build(KNOWING)
    agent, environment = components.agent, components.environment

    @jax.jit
    def run(key):
        state = components.learner.init(key)
        _, batch, _ = collect_rollout(agent, environment, state.parameters, state.rollout, key, 6)
        again, memory = agent.values(state.parameters, batch.central, state.rollout.critic_hidden, batch.fresh)
        plain = replace(agent, config=replace(agent.config, critic_memory=0))
        without = looked_at(plain, environment, state.parameters, state.rollout.worlds)[1]
        signals = environment.drawn_signals(state.rollout.worlds)
        drawn = state.rollout.worlds.team.parameters
        # the same state in other worlds: only what was drawn differs
        other = replace(batch.central, own=batch.central.own.at[..., without.own.shape[-1] :].add(1.0))
        moved, _ = agent.values(state.parameters, other, state.rollout.critic_hidden, batch.fresh)
        return batch, again, memory, without.own.shape[-1], signals, drawn, moved

    batch, again, memory, size, signals, drawn, moved = run(jax.random.key(0))
    np.testing.assert_allclose(again, batch.value, atol=1e-5)
    goes_on = ~(batch.terminated | batch.truncated)[:-1]
    np.testing.assert_allclose(batch.next_value[:-1][goes_on], batch.value[1:][goes_on], atol=1e-5)
    assert memory.shape == (TINY.worlds * TINY.team_size, 6)
    assert batch.central.own.shape[-1] == size + len(signals)
    period_s = components.spec.control_period_s
    np.testing.assert_allclose(signals["drawn_lag"][:, 0, 0] * period_s, drawn.velocity_lag_s, rtol=1e-5)
    assert len(set(np.asarray(signals["drawn_delay"])[:, 0, 0].tolist())) > 1  # worlds differ
    np.testing.assert_array_equal(signals["drawn_message_loss"][:, 1, 0], drawn.message_loss)
    assert np.abs(moved - again).max() > 1e-4
    begin = components.learner.start.eval_shape(jax.random.key(0))
    after, _ = jax.eval_shape(components.learner.update, begin)  # in `make test-all` an update is compiled and run
    assert jax.tree.structure(after) == jax.tree.structure(begin)


def test_one_update_learns_actor_and_critic_through_their_memories():
    components = build(KNOWING)
    before = components.learner.start(jax.random.key(0))
    after, metrics = jax.jit(components.learner.update)(before)
    for part in ("actor", "critic"):
        old, new = (getattr(state.parameters, part)["params"]["memory"] for state in (before, after))
        assert any(jnp.any(a != b) for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)), part
    assert jnp.any(after.rollout.critic_hidden != 0)
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"algorithm": "ippo"}, "--critic-memory: found --algorithm ippo, expected mappo"),
        ({"sharing": "none"}, "--critic-memory: found --sharing none, expected shared"),
        ({"critic_memory": -1}, "--critic-memory: found -1, expected at least 0"),
    ],
)
def test_a_critic_that_cannot_have_a_memory_is_refused(changes, text):
    with pytest.raises(TestudoError, match=text):
        build(replace(KNOWING, **changes))


def test_fine_tuning_begins_with_a_critic_without_memory():
    assert for_fine_tuning(KNOWING).critic_memory == 0


@pytest.mark.slow
def test_two_places_are_learned_with_a_critic_with_memory():
    assert success(components_of("mappo", memory=0, critic_memory=16, epochs=4), 60) > 0.9
