"""The brax view of a scenario: the same worlds, robot by robot, with brax's way to tell ends apart."""

from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.envs.base import Env
from brax.envs.wrappers.training import EvalWrapper
from brax.training.acting import generate_unroll
from brax.training.agents.ppo.losses import compute_gae
from tests.policies.quick import TINY, unshielded

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.brax_env import BraxEnvironment, identity_wrapper
from testudo_policies.adapters.team_view import ObservationLayout, TeamView
from testudo_policies.learning.builder import build
from testudo_policies.networks.observation_encoding import Features

pytestmark = pytest.mark.usefixtures("quick")

WORLDS, TEAM = 3, 2
NEVER, AT_ONCE = -1.0, 10.0
"""Tolerances with which the task is never done, and done in the first decision."""


def plain_environment(tolerance_m):
    """Return an environment of episodes of two decisions."""
    plain = build(replace(TINY, team_size=TEAM)).environment
    decision_s = plain.scenario.decision_ticks * plain.team.model.spec.control_period_s
    scenario = replace(plain.scenario, tolerance_m=tolerance_m, horizon_s=2.01 * decision_s)
    return unshielded(replace(plain, scenario=scenario))


@jax.jit
def step_with(tolerance_m, state, action):
    """Return the step of the brax view: one program for every tolerance."""
    return BraxEnvironment(plain_environment(tolerance_m)).step(state, action)


class Adapted:
    """An environment of episodes of two decisions, and its brax view, compiled."""

    def __init__(self, tolerance_m):
        self.plain = plain_environment(tolerance_m)
        self.brax = BraxEnvironment(self.plain)
        self.reset = jax.jit(self.brax.reset)
        self.step = partial(step_with, tolerance_m)
        self.plain_step = jax.jit(self.plain.step)
        self.velocity_world = jax.jit(self.brax.view.command)

    def start(self):
        return self.reset(jax.random.split(jax.random.PRNGKey(0), WORLDS * TEAM))


@pytest.fixture(scope="module")
def endless(quick):
    return Adapted(NEVER)


@pytest.fixture(scope="module")
def instant(quick):
    return Adapted(AT_ONCE)


def np_tree(tree):
    return jax.tree.map(np.asarray, tree)


def actions(index):
    return jax.random.uniform(jax.random.key(index), (WORLDS * TEAM, 2), minval=-1.0)


def test_it_is_a_brax_environment_of_flat_observations(endless):
    assert isinstance(endless.brax, Env)
    state = endless.start()
    assert state.obs.shape == (WORLDS * TEAM, endless.brax.observation_size)
    assert state.obs.dtype == jnp.float32
    assert (endless.brax.action_size, endless.brax.backend) == (2, "kinematic")
    assert not state.done.any()
    assert jax.tree.structure(state) == jax.tree.structure(endless.step(state, actions(0)))
    for leaf in jax.tree_util.tree_leaves(endless.start()):
        assert not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def test_a_single_key_is_one_world_and_half_a_world_is_refused(endless):
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert jax.eval_shape(endless.brax.reset, key).obs.shape[0] == TEAM
    with pytest.raises(TestudoError, match="a batch of 3 robots does not fill whole worlds of 2"):
        endless.brax.reset(jax.random.split(jax.random.PRNGKey(0), 3))


def test_observations_rewards_and_restarts_are_those_of_our_environment(endless):
    state = endless.start()
    layout = endless.brax.view.layouts[0]
    features_of = jax.jit(lambda worlds: TeamView(endless.plain).agent.encode(endless.plain.signals(worlds)))
    for index in range(5):  # over two restarts
        before = state.pipeline_state
        features = features_of(before.worlds)
        seen = layout.features(np.asarray(state.obs).reshape(WORLDS, TEAM, -1))
        for one, other in zip(*map(jax.tree.leaves, (seen, features)), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
        action = actions(index)
        velocity = endless.velocity_world(before.worlds, action.reshape(WORLDS, TEAM, 2))
        key = jax.random.split(jax.random.wrap_key_data(before.key))[0]
        worlds, result = endless.plain_step(before.worlds, velocity, key)
        state = endless.step(state, action)
        np.testing.assert_allclose(state.reward.reshape(WORLDS, TEAM), result.reward.T, atol=1e-5)
        after = state.pipeline_state.worlds
        np.testing.assert_array_equal(after.elapsed, worlds.elapsed)
        np.testing.assert_allclose(after.team.physics.position_world, worlds.team.physics.position_world, atol=1e-5)


def test_full_actions_are_full_speed_towards_the_goal(endless):
    state = endless.start()
    worlds = state.pipeline_state.worlds
    ahead = jnp.tile(jnp.array([1.0, 0.0]), (WORLDS, TEAM, 1))
    velocity = endless.velocity_world(worlds, ahead)
    signals = jax.jit(endless.plain.signals)(worlds)
    way = np.asarray(signals["goal_world"]) - signals["control_point_world"]
    wanted = way / np.linalg.norm(way, axis=-1, keepdims=True)
    speed = endless.plain.team.model.spec.control_point_speed_m_s
    np.testing.assert_allclose(velocity, speed * wanted, atol=1e-4)
    longer = endless.velocity_world(worlds, 3 * ahead)
    np.testing.assert_allclose(longer, velocity, atol=1e-5)


def test_a_time_out_is_done_and_truncated_and_counting_begins_anew(endless):
    state = endless.start()
    seen = []
    for index in range(5):
        state = endless.step(state, actions(index))
        seen.append((state.done, state.info["truncation"], state.info["steps"]))
    for name, values in zip(("done", "truncation", "steps"), zip(*seen, strict=True), strict=True):
        expected = {"steps": [1, 2, 1, 2, 1]}.get(name, [0, 1, 0, 1, 0])
        for value, number in zip(values, expected, strict=True):
            np.testing.assert_array_equal(value, np.full(WORLDS * TEAM, number), err_msg=name)
    assert not state.metrics["success"].any()


def test_a_success_is_done_and_not_truncated(instant):
    state = instant.step(instant.start(), actions(0))
    assert state.done.all()
    assert not state.info["truncation"].any()
    assert state.metrics["success"].all()


def test_brax_learns_nothing_from_the_step_in_which_time_is_up(endless, instant):
    def advantages(adapted):
        state, steps = adapted.start(), []
        for index in range(3):
            state = adapted.step(state, actions(index))
            steps.append((state.reward, state.done, state.info["truncation"]))
        reward, done, truncation = (np.stack(part) for part in zip(*steps, strict=True))
        values = np.ones_like(reward)
        # as brax's loss does
        termination = done * (1 - truncation)
        _, advantage = jax.jit(compute_gae)(truncation, termination, reward, values, values[0], 0.0, 0.9)
        return reward, np.asarray(advantage)

    # without traces an advantage is reward + 0.9 * 1 - 1, at a success reward - 1, at a time-out 0
    reward, advantage = advantages(endless)
    np.testing.assert_allclose(advantage[0], reward[0] - 0.1, atol=1e-6)
    np.testing.assert_array_equal(advantage[1], 0)
    reward, advantage = advantages(instant)
    np.testing.assert_allclose(advantage, reward - 1, atol=1e-6)


def test_episode_metrics_add_up_and_stay_for_the_last_step(endless):
    state = endless.start()
    rewards = []
    for index in range(3):
        state = endless.step(state, actions(index))
        rewards.append(state.reward)
        totals = state.info["episode_metrics"]
        if index == 1:
            np.testing.assert_array_equal(totals["length"], 2)
            np.testing.assert_allclose(totals["sum_reward"], rewards[0] + rewards[1], atol=1e-6)
            assert state.info["episode_done"].all()
    np.testing.assert_array_equal(totals["length"], 1)
    np.testing.assert_allclose(totals["sum_reward"], rewards[2], atol=1e-6)


def test_brax_evaluates_one_episode_of_each_robot(endless):
    environment = EvalWrapper(endless.brax)

    def policy(observation, key):
        return actions(0), {}

    @jax.jit
    def episodes(key):
        state = environment.reset(jax.random.split(key, WORLDS * TEAM))
        return generate_unroll(environment, state, policy, key, 4)

    final, data = episodes(jax.random.PRNGKey(0))
    metrics = final.info["eval_metrics"]
    np.testing.assert_array_equal(metrics.episode_steps, 2)
    np.testing.assert_allclose(metrics.episode_metrics["reward"], data.reward[:2].sum(0), atol=1e-6)


def test_the_central_view_ends_with_what_our_central_critic_reads(endless):
    view = TeamView(endless.plain, central=True)
    first, second = view.layouts

    @jax.jit
    def look(keys):
        worlds = endless.plain.reset(keys)
        return view.observe(worlds), TeamView(endless.plain).agent.encode(endless.plain.central_signals(worlds))

    observation, central = map(np_tree, look(jax.random.split(jax.random.key(0), WORLDS)))
    assert observation.shape == (WORLDS, TEAM, first.size + second.size)
    seen = second.features(observation[..., first.size :])
    for one, other in zip(*map(jax.tree.leaves, (seen, central)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_layout_puts_together_what_it_took_apart():
    random = np.random.default_rng(0).normal
    features = Features(
        random(size=(4, 3, 11)), random(size=(4, 3, 5, 8)), random(size=(4, 3, 5)),
        random(size=(4, 3, 3)), random(size=(4, 3, 2)),
    )  # fmt: skip
    layout = ObservationLayout.of(features, 2)
    assert layout.size == 11 + 5 * 8 + 5 + 3 + 2
    again = layout.features(layout.flat(features))
    for one, other in zip(*map(jax.tree.leaves, (again, features)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


KINDS = {"push_box", "foraging"}
"""A scenario with a body and one with entities; the tests above hold navigation; all scenarios with the slow tests."""


@pytest.mark.parametrize(
    "scenario",
    [
        name if name in KINDS else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(point.name for point in entry_points(group="testudo.scenarios"))
    ],
)
def test_every_scenario_has_a_state_that_brax_can_carry(scenario):
    # shapes and types alone; MJX, which takes longest to trace, where a scenario holds bodies, and once without
    robot = "crazyflie_2x" if scenario == "escort" else TINY.robot
    team = 4 if scenario == "arctic_transport" else TEAM  # it has no other size
    physics = "mjx" if scenario in ("push_box", "navigation") else "kinematic"
    config = replace(TINY, scenario=scenario, robot=robot, physics=physics, team_size=team)
    environment = BraxEnvironment(build(config).environment, central=True)
    keys = jax.random.split(jax.random.PRNGKey(0), WORLDS * team)
    before = jax.eval_shape(environment.reset, keys)
    assert before.obs.shape == (WORLDS * team, environment.observation_size)
    some = jax.eval_shape(lambda: jax.numpy.zeros((WORLDS * team, environment.action_size)))
    assert jax.eval_shape(environment.step, before, some) == before


def test_way_points_are_refused_because_brax_chooses_none():
    with pytest.raises(TestudoError, match="brax: found a team that commands way-points, expected velocities"):
        BraxEnvironment(build(replace(TINY, command="waypoints")).environment)


@pytest.mark.parametrize("changes", [{"episode_length": 3}, {"action_repeat": 2}, {"randomization_fn": len}])
def test_what_the_scenario_decides_brax_cannot(endless, changes):
    given = {"episode_length": 2, "action_repeat": 1, "randomization_fn": None}
    assert identity_wrapper(endless.brax, **given) is endless.brax
    with pytest.raises(TestudoError, match="the scenario decides them, expected 2, 1 and None"):
        identity_wrapper(endless.brax, **(given | changes))
