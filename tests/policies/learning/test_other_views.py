"""Steps in the place of others: whose they are, what they weigh, and that the gradient is that of the paper."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY

from testudo_policies.learning.builder import build
from testudo_policies.learning.losses import ppo_loss
from testudo_policies.learning.other_views import shared_experience
from testudo_policies.learning.rollout import Kept, collect_rollout

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def lived(quick):
    """Return agent, parameters, a rollout of two robots with different policies, and it with shared experience."""
    components = build(replace(TINY, sharing="none", algorithm="ippo", shared_experience=True))
    agent, environment = components.agent, components.environment

    @jax.jit
    def run(key):
        state = components.learner.init(key)
        parameters = state.parameters
        bias = parameters.actor["params"]["mean"]["bias"] + jnp.array([[0.3, 0.0], [-0.3, 0.2]])
        mean = {**parameters.actor["params"]["mean"], "bias": bias}
        parameters = replace(parameters, actor={"params": {**parameters.actor["params"], "mean": mean}})
        _, batch, _ = collect_rollout(agent, environment, parameters, state.rollout, key, 4, kept=Kept(after=True))
        return parameters, batch, shared_experience(agent, parameters, batch, 2)

    return components, *run(jax.random.key(0))


def swapped(values):
    return values.reshape(*values.shape[:1], -1, 2, *values.shape[2:])[:, :, ::-1].reshape(values.shape)


def test_the_second_half_is_the_other_robots_experience_with_the_ratio_as_weight(lived):
    components, parameters, batch, shared = lived
    own, others = jax.tree.map(lambda x: x[:, :8], shared), jax.tree.map(lambda x: x[:, 8:], shared)
    np.testing.assert_array_equal(own.log_probability, batch.log_probability)
    np.testing.assert_array_equal(own.trust, 1.0)
    np.testing.assert_array_equal(others.action, swapped(batch.action))
    np.testing.assert_array_equal(others.reward, swapped(batch.reward))
    actor, critic = (jax.tree.map(lambda x: x[::-1], part) for part in (parameters.actor, parameters.critic))
    flipped, agent = replace(parameters, actor=actor, critic=critic), components.agent

    @jax.jit
    def seen():
        logits, _ = agent.act(flipped, batch.features, agent.blank_memory(8), batch.fresh)
        return agent.distribution.log_prob(logits, batch.action), agent.value(flipped, batch.central)

    said, value = map(np.asarray, seen())
    np.testing.assert_allclose(others.log_probability, swapped(said), atol=1e-4)
    np.testing.assert_allclose(others.value, swapped(value), atol=1e-4)
    weight = np.minimum(1, np.exp(said - batch.log_probability))
    np.testing.assert_allclose(others.trust, swapped(weight), rtol=1e-3)
    assert weight.min() < 0.9 < weight.max()


def test_the_push_on_the_policy_is_the_weighted_one_of_the_paper(lived):
    """Where the weight is below its bound: gradient of ratio x log pi x advantage, for the parameters of each robot."""
    components, parameters, _, shared = lived
    agent, config = components.agent, replace(components.config, value_weight=0.0)
    advantage = jax.random.normal(jax.random.key(1), shared.reward.shape)
    still = agent.blank_memory(16)

    @jax.jit
    def pushes():
        def ours(actor):
            trial = replace(parameters, actor=actor)
            return ppo_loss(trial, agent, config, shared, still, advantage * shared.trust, jax.random.key(0))[0]

        def papers(actor):
            logits, _ = agent.act(replace(parameters, actor=actor), shared.features, still, shared.fresh)
            said = agent.distribution.log_prob(logits, shared.action)
            weighted = shared.trust * advantage
            centred = weighted - shared.trust * jnp.sum(weighted) / jnp.sum(shared.trust)
            return -jnp.mean(said * centred) / jnp.sqrt(jnp.mean(centred**2))

        return jax.grad(ours)(parameters.actor), jax.grad(papers)(parameters.actor)

    for one, other in zip(*map(jax.tree.leaves, pushes()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
