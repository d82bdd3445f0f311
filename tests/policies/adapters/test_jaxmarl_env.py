"""The JaxMARL view of a scenario: dicts by agent, and JaxMARL's own way to train on them."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from tests.policies.quick import TINY

from testudo_policies.adapters.jaxmarl_env import HAS_JAXMARL, BoxSpace, MultiAgentTeam
from testudo_policies.learning.builder import build

pytestmark = pytest.mark.usefixtures("quick")

NEVER, AT_ONCE = -1.0, 10.0
"""Tolerances with which the task is never done, and done in the first decision."""


def adapted(tolerance_m):
    """Return episodes of two decisions as JaxMARL sees them."""
    plain = build(replace(TINY, team_size=3)).environment
    decision_s = plain.scenario.decision_ticks * plain.team.model.spec.control_period_s
    scenario = replace(plain.scenario, tolerance_m=tolerance_m, horizon_s=2.01 * decision_s)
    return MultiAgentTeam(replace(plain, scenario=scenario))


@pytest.fixture(scope="module")
def team(quick):
    return adapted(NEVER)


@pytest.fixture(scope="module")
def reset(team):
    return jax.jit(team.reset)


def actions_of(team, index):
    keys = jax.random.split(jax.random.key(index), team.num_agents)
    return {agent: team.action_space(agent).sample(key) for agent, key in zip(team.agents, keys, strict=True)}


def test_it_names_its_agents_and_their_spaces(team, reset):
    assert team.agents == ["agent_0", "agent_1", "agent_2"]
    assert (team.num_agents, team.name) == (3, "navigation")
    assert team.agent_classes == {"robot": team.agents}
    observations, state = reset(jax.random.PRNGKey(0))
    assert list(observations) == team.agents
    for agent in team.agents:
        assert observations[agent].shape == team.observation_space(agent).shape
        assert team.observation_space(agent).contains(observations[agent])
        assert team.action_space(agent).shape == (2,)
        assert team.get_avail_actions(state)[agent].all()


def test_a_plain_box_is_sampled_within_its_bounds():
    box = BoxSpace(-1.0, 1.0, (3,))
    drawn = box.sample(jax.random.key(0))
    assert drawn.shape == (3,)
    assert box.contains(drawn)
    assert not box.contains(drawn + 2)


def test_way_points_are_discrete_actions():
    plain = build(replace(TINY, team_size=3, command="waypoints")).environment
    team = MultiAgentTeam(plain)
    space = team.action_space("agent_0")
    assert (space.n, tuple(space.shape)) == (5, ())
    drawn = space.sample(jax.random.key(0))
    assert space.contains(drawn)
    assert not space.contains(drawn + 5)
    state = jax.eval_shape(team.reset, jax.random.key(0))[1]
    assert team.get_avail_actions(state)["agent_0"].shape == (5,)
    for shape in ((), (1,)):  # as JaxMARL's scripts give them
        actions = dict.fromkeys(team.agents, jax.ShapeDtypeStruct(shape, jnp.int32))
        _, _, rewards, *_ = jax.eval_shape(team.step, jax.random.key(0), state, actions)
        assert rewards["agent_2"].shape == ()


def test_rewards_and_observations_are_those_of_our_environment(team, reset):
    _, state = reset(jax.random.key(0))
    actions, key = actions_of(team, 1), jax.random.key(2)
    observations, after, rewards, dones, infos = jax.jit(team.step_env)(key, state, actions)
    stacked = jnp.stack([actions[agent] for agent in team.agents])[None]

    @jax.jit
    def ours(state, stacked):
        result = team.view.environment.step(state, team.view.command(state, stacked), key)[1]
        return result, team.view.observe(result.last)[0]

    result, seen = ours(state, stacked)
    for index, agent in enumerate(team.agents):
        np.testing.assert_allclose(rewards[agent], result.reward[index, 0], atol=1e-5)
        np.testing.assert_allclose(observations[agent], seen[index], atol=1e-5)
        assert not dones[agent]
    assert set(dones) == {*team.agents, "__all__"}
    assert after.elapsed == 1
    assert {value.shape for value in infos.values()} == {(3,)}


def test_a_world_whose_time_is_up_starts_anew_inside_the_step(team, reset):
    observations, state = reset(jax.random.key(0))
    step = jax.jit(team.step)
    for index in range(2):
        observations, state, _, dones, infos = step(jax.random.key(index), state, actions_of(team, index))
        assert dones["__all__"] == (index == 1)
    assert infos["truncated"].all()
    assert not infos["terminated"].any()
    assert state.elapsed == 0
    _, fresh_key = jax.random.split(jax.random.key(1))
    fresh, _ = reset(fresh_key)
    for agent in team.agents:
        np.testing.assert_allclose(observations[agent], fresh[agent], atol=1e-6)


def test_a_success_is_told_apart_and_restarts_where_it_is_told(quick):
    team = adapted(AT_ONCE)
    reset = jax.jit(team.reset)
    _, state = reset(jax.random.key(0))
    wanted, other = reset(jax.random.key(5))
    observations, after, rewards, dones, infos = jax.jit(team.step)(
        jax.random.key(1), state, actions_of(team, 0), other
    )
    assert all(dones.values())
    assert infos["terminated"].all()
    assert not infos["truncated"].any()
    assert all(reward > 4 for reward in rewards.values())  # the success is worth 5
    assert after.elapsed == 0
    for agent in team.agents:
        np.testing.assert_allclose(observations[agent], wanted[agent], atol=1e-6)


def test_eight_worlds_at_once_are_eight_single_ones(team):
    keys = jax.random.split(jax.random.key(0), 8)
    _, states = jax.vmap(team.reset)(keys)
    actions = {agent: jnp.full((8, 2), 0.3) for agent in team.agents}
    several = jax.jit(jax.vmap(team.step))(keys, states, actions)
    assert several[3]["__all__"].shape == (8,)
    one = {agent: jnp.full(2, 0.3) for agent in team.agents}
    for index in (0, 7):
        single = team.step(keys[index], jax.tree.map(lambda x, i=index: x[i], states), one)
        for agent in team.agents:
            np.testing.assert_allclose(several[0][agent][index], single[0][agent], atol=1e-4)
            np.testing.assert_allclose(several[2][agent][index], single[2][agent], atol=1e-4)


# JaxMARL's feed-forward IPPO baseline for continuous actions, in short: wrapped environment, agents as
# a batch, one network for all


WORLDS, STEPS, DISCOUNT, TRACE, CLIP = 8, 6, 0.99, 0.95, 0.2


class ActorCritic(nn.Module):
    @nn.compact
    def __call__(self, x):
        mean = nn.Dense(2, kernel_init=nn.initializers.orthogonal(0.01))(nn.tanh(nn.Dense(16)(x)))
        log_std = self.param("log_std", nn.initializers.zeros, (2,))
        return mean, log_std, nn.Dense(1)(nn.tanh(nn.Dense(16)(x)))[..., 0]


class Transition(NamedTuple):
    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array
    info: dict


def batchify(values, agents):
    return jnp.stack([values[agent] for agent in agents]).reshape(len(agents) * WORLDS, -1)


def unbatchify(values, agents):
    return dict(zip(agents, values.reshape(len(agents), WORLDS, -1), strict=True))


def log_probability(mean, log_std, action):
    return -jnp.sum(((action - mean) / jnp.exp(log_std)) ** 2 / 2 + log_std, axis=-1)


def ippo(environment, updates):
    """Train, and return the parameters before and after, and the transitions of each update."""
    network, optimiser = ActorCritic(), optax.adam(1e-3)
    agents = environment.agents
    size = environment.observation_space(agents[0]).shape
    begin = network.init(jax.random.key(0), jnp.zeros(size))

    def act(carry, key):
        parameters, state, seen = carry
        noise_key, world_key = jax.random.split(key)
        batch = batchify(seen, agents)
        mean, log_std, value = network.apply(parameters, batch)
        action = mean + jnp.exp(log_std) * jax.random.normal(noise_key, mean.shape)
        seen, state, reward, done, info = jax.vmap(environment.step)(
            jax.random.split(world_key, WORLDS), state, unbatchify(action, agents)
        )
        info = jax.tree.map(lambda x: x.reshape(len(agents) * WORLDS), info)
        moment = Transition(
            batchify(done, agents)[:, 0], action, value, batchify(reward, agents)[:, 0],
            log_probability(mean, log_std, action), batch, info,
        )  # fmt: skip
        return (parameters, state, seen), moment

    def loss(parameters, moments, advantage):
        mean, log_std, value = network.apply(parameters, moments.obs)
        ratio = jnp.exp(log_probability(mean, log_std, moments.action) - moments.log_prob)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * scaled
        error = value - (advantage + moments.value)
        return jnp.mean(error**2) / 2 - jnp.mean(jnp.minimum(ratio * scaled, clipped))

    def update(carry, key):
        parameters, memory, state, seen = carry
        (_, state, seen), moments = jax.lax.scan(act, (parameters, state, seen), jax.random.split(key, STEPS))
        _, _, last = network.apply(parameters, batchify(seen, agents))

        def backwards(carry, moment):
            later, next_value = carry
            going_on = DISCOUNT * (1 - moment.done)
            now = moment.reward + going_on * (next_value + TRACE * later) - moment.value
            return (now, moment.value), now

        _, advantage = jax.lax.scan(backwards, (jnp.zeros_like(last), last), moments, reverse=True)
        gradient = jax.grad(loss)(parameters, moments, advantage)
        change, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(parameters, change), memory, state, seen), moments

    @jax.jit
    def train(key):
        start_key, key = jax.random.split(key)
        seen, state = jax.vmap(environment.reset)(jax.random.split(start_key, WORLDS))
        carry = (begin, optimiser.init(begin), state, seen)
        carry, moments = jax.lax.scan(update, carry, jax.random.split(key, updates))
        return carry[0], moments

    return begin, *train(jax.random.key(1))


def check_learning(before, after, moments):
    for old, new in zip(jax.tree_util.tree_leaves(before), jax.tree_util.tree_leaves(after), strict=True):
        assert np.isfinite(new).all()
        assert (old != new).any()
    assert np.isfinite(moments.reward).all()
    done = moments.done.reshape(-1, 3, WORLDS)  # decisions, agents, worlds
    np.testing.assert_array_equal(done.all((1, 2)), np.arange(len(done)) % 2 == 1)


def test_ippo_as_in_jaxmarl_runs_updates_on_the_dicts(team):
    before, after, moments = ippo(team, 3)
    check_learning(before, after, moments)
    np.testing.assert_array_equal(moments.info["truncated"], moments.done)


@pytest.mark.skipif(not HAS_JAXMARL, reason="jaxmarl is not installed: its gymnax wants JAX below 0.12")
def test_ippo_runs_updates_through_jaxmarls_own_wrapper(team):
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
    from jaxmarl.wrappers.baselines import LogWrapper

    assert isinstance(team, MultiAgentEnv)
    before, after, moments = ippo(LogWrapper(team), 3)
    check_learning(before, after, moments)
    lengths = moments.info["returned_episode_lengths"]
    np.testing.assert_array_equal(lengths[moments.info["returned_episode"]], 2)
