"""Actor and critic: any number of neighbours in any order, a memory that is a plain recurrence."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.team_signals import (
    bound_to_the_world,
    random_signals,
    rotate,
    rotated,
    with_entry,
    with_slots,
)

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.networks import observation_encoding
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_sim.scenarios.scenario import Observation

pytestmark = pytest.mark.usefixtures("quick")
TO_GOAL = Observation("goal_world", "goal_world")
encoded = jax.jit(partial(observation_encoding.encode, observation=TO_GOAL))


def encode(signals):
    """Encode with NumPy in and out: see `team_signals`."""
    return jax.tree.map(np.asarray, encoded(signals))


CASES = [*(pytest.param(("gritsbot_x", size), marks=pytest.mark.slow) for size in (0, 6)), ("crazyflie_2x", 6)]
SIZE = 6
STEPS = 5


class Setup:
    """An agent whose parameters are far from their start, so that everything has an effect."""

    def __init__(self, robot, memory):
        self.spec = load_robot(robot)
        config = NetworkConfig(width=12, memory=memory)
        self.agent = Agent(config, self.spec.dimension, self.spec.control_point_speed_m_s, TO_GOAL)
        self.signals = random_signals(self.spec, SIZE)
        features = encode(self.signals)
        fresh = jax.jit(self.agent.init)(jax.random.key(0), features, features)
        self.policy = jax.jit(lambda parameters, *seen: self.agent.policy(parameters)(*seen))
        rng = np.random.default_rng(1)
        actor = jax.tree.map(lambda x: np.asarray(x) + rng.normal(0, 0.3, x.shape).astype(np.float32), fresh.actor)
        self.parameters = replace(fresh, actor=actor)
        self.hidden = rng.normal(0, 0.5, (SIZE, memory)).astype(np.float32)

    def command(self, signals, parameters=None):
        """Return velocity and memory for signals."""
        return tuple(map(np.asarray, self.policy(parameters or self.parameters, signals, self.hidden)))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def setup(request, quick):
    return Setup(*request.param)


def assert_same(first, second, tolerance=1e-6):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


def test_the_order_of_neighbours_changes_nothing(setup):
    for order in ([3, 2, 1, 0], [1, 3, 0, 2]):
        assert_same(setup.command(with_slots(setup.signals, order)), setup.command(setup.signals))


def test_neighbours_matter(setup):
    fewer = with_slots(setup.signals, [0])
    assert np.abs(setup.command(fewer)[0] - setup.command(setup.signals)[0]).max() > 1e-3


def test_an_absent_neighbour_equals_one_beyond_sight_and_none_at_all(setup):
    signals = setup.signals
    absent = {**signals, "neighbour_valid": with_entry(signals["neighbour_valid"], np.s_[:, 2], 0.0)}
    place = signals["neighbour_position_world"]
    away = with_entry(place, np.s_[:, 2, 0], place[:, 2, 0] + 40.0)
    beyond = {**signals, "neighbour_position_world": away}
    without = setup.command(with_slots(signals, [0, 1, 3]))
    assert_same(setup.command(absent), without)
    assert_same(setup.command(beyond), without)


@pytest.mark.parametrize("slots", [1, 2, 7, 30])
def test_the_same_parameters_take_any_number_of_neighbours(setup, slots):
    velocity, hidden = setup.command(random_signals(setup.spec, SIZE, slots))
    assert velocity.shape == (SIZE, setup.spec.dimension)
    assert hidden.shape == setup.hidden.shape
    assert np.isfinite(velocity).all()


def test_a_neighbour_that_stands_twice_counts_once(setup):
    twice = with_slots(setup.signals, [0, 1, 2, 3, 3, 1])
    assert_same(setup.command(twice), setup.command(setup.signals))


def test_no_command_is_faster_than_the_control_point(setup):
    limit = setup.agent.speed_limit_m_s
    wild = jax.tree.map(lambda x: 50 * np.asarray(x), setup.parameters.actor)
    velocity, _ = setup.command(setup.signals, replace(setup.parameters, actor=wild))
    speed = np.linalg.norm(velocity, axis=-1)
    assert (speed <= limit * (1 + 1e-5)).all()
    assert speed.max() > 0.9 * limit


def test_without_the_features_of_the_place_the_command_turns_with_the_world(setup):
    # walls are seen only through the place in the arena; with that cut off nothing but the scene
    # itself is left, and the command must turn with it
    joined = setup.parameters.actor["params"]["encoder"]["joined"]
    kernel = with_entry(joined["kernel"], bound_to_the_world(setup.spec), 0.0)
    actor = jax.tree.map(lambda x: x, setup.parameters.actor)
    actor["params"]["encoder"]["joined"] = {**joined, "kernel": kernel}
    placeless = replace(setup.parameters, actor=actor)
    for angle in (0.4, 2.1, np.pi):
        turned = rotated(setup.signals, setup.spec, angle)
        velocity, hidden = setup.command(setup.signals, placeless)
        assert_same(setup.command(turned, placeless), (rotate(velocity, angle), hidden), 1e-5)
        expected = rotate(setup.command(setup.signals)[0], angle)
        assert np.abs(setup.command(turned)[0] - expected).max() > 1e-3


@pytest.mark.parametrize("robot", [pytest.param("gritsbot_x", marks=pytest.mark.slow), "crazyflie_2x"])
def test_memory_over_time_is_the_step_repeated(robot):
    setup = Setup(robot, 6)
    scenes = [random_signals(setup.spec, SIZE, seed=seed) for seed in range(STEPS)]
    features = jax.tree.map(lambda *x: np.stack(x), *map(encode, scenes))
    never = np.zeros((STEPS, SIZE), bool)

    @jax.jit
    def velocity_of(scene, now):
        return setup.agent.velocity_world(encoded(scene), setup.agent.distribution.mode(now))

    logits, last = jax.jit(setup.agent.act)(setup.parameters, features, setup.hidden, never)
    hidden = setup.hidden
    for scene, now in zip(scenes, np.asarray(logits), strict=True):
        velocity, hidden = setup.policy(setup.parameters, scene, hidden)
        np.testing.assert_allclose(velocity, velocity_of(scene, now), atol=1e-6)
    np.testing.assert_allclose(hidden, last, atol=1e-6)


def test_memory_is_cleared_where_an_episode_is_fresh_and_nowhere_else():
    setup = Setup("gritsbot_x", 6)
    scenes = [encode(random_signals(setup.spec, SIZE, seed=seed)) for seed in range(STEPS)]
    features = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
    fresh = jnp.zeros((STEPS, SIZE), bool).at[2, 1].set(True)

    run = jax.jit(setup.agent.act)

    def act(part, hidden, marks):
        chosen = jax.tree.map(lambda x: x[part], features)
        return run(setup.parameters, chosen, hidden, marks[part])

    marked, _ = act(slice(None), setup.hidden, fresh)
    plain, _ = act(slice(None), setup.hidden, jnp.zeros_like(fresh))
    blank = setup.agent.blank_memory(SIZE)
    restarted, _ = act(slice(2, None), blank, jnp.zeros_like(fresh))
    np.testing.assert_allclose(marked[2:, 1], restarted[:, 1], atol=1e-6)
    others = np.array([0, 2, 3, 4, 5])
    np.testing.assert_allclose(marked[:, others], plain[:, others], atol=1e-6)
    np.testing.assert_allclose(marked[:2], plain[:2], atol=1e-6)
    assert np.abs(marked[2:, 1] - plain[2:, 1]).max() > 1e-3


def test_the_first_policy_drives_straight_to_the_goal():
    # learning begins there: the last layer starts almost at zero, and the pull does the rest
    spec = load_robot("crazyflie_2x")
    agent = Agent(NetworkConfig(), 3, spec.control_point_speed_m_s, TO_GOAL)
    signals = random_signals(spec)
    features = encode(signals)
    parameters = jax.jit(agent.init)(jax.random.key(0), features, features)
    velocity, _ = jax.jit(agent.policy(parameters))(signals, agent.blank_memory(SIZE))
    offset = signals["goal_world"] - signals["control_point_world"]
    cosine = jnp.sum(velocity * offset, -1) / (jnp.linalg.norm(velocity, axis=-1) * jnp.linalg.norm(offset, axis=-1))
    assert (cosine > 0.95).all()


def test_normalisation_is_part_of_the_policy():
    # statistics of features shifted and stretched by known amounts give zero mean and unit variance
    setup = Setup("gritsbot_x", 0)
    scenes = [encode(random_signals(setup.spec, 50, seed=seed)) for seed in range(4)]
    features = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
    seen = setup.agent.observe(setup.parameters, features, jnp.ones(features.own.shape[:2], bool))
    normal = setup.agent.normalise(seen, features)
    for values in (normal.own, normal.neighbours):
        flat = np.asarray(values).reshape(-1, values.shape[-1])
        np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-2)
        spread = flat.std(axis=0)
        assert ((spread > 0.9) & (spread < 1.1) | (spread < 0.1)).all()
    assert np.abs(setup.command(setup.signals, seen)[0] - setup.command(setup.signals)[0]).max() > 0


def test_entities_that_are_not_there_change_nothing_and_the_order_of_the_others_neither(quick):
    """Also where the absent one has features so large that its weight would be all."""
    spec = load_robot("gritsbot_x")
    agent = Agent(NetworkConfig(width=8), 2, spec.control_point_speed_m_s, Observation())
    signals = random_signals(spec, SIZE)
    place, valid = jnp.arange(SIZE * 6.0).reshape(SIZE, 3, 2) / 30, jnp.ones((SIZE, 3, 1)).at[:, 1].set(0.0)
    named = signals | {"mark_position_world": place, "mark_valid": valid}
    features = jax.jit(agent.encode)(named)
    parameters = jax.jit(agent.init)(jax.random.key(0), features, features)
    rng = np.random.default_rng(1)
    actor = jax.tree.map(lambda x: x + rng.normal(0, 0.3, x.shape).astype(np.float32), parameters.actor)
    policy = jax.jit(agent.policy(replace(parameters, actor=actor)))
    hidden = jnp.zeros((SIZE, 0))
    first = policy(named, hidden)[0]
    far = policy(named | {"mark_position_world": place.at[:, 1].set(1e4)}, hidden)[0]
    turned = policy(named | {"mark_position_world": place[:, ::-1], "mark_valid": valid[:, ::-1]}, hidden)[0]
    moved = policy(named | {"mark_position_world": place.at[:, 0].add(1.0)}, hidden)[0]
    np.testing.assert_allclose(far, first, atol=1e-6)
    np.testing.assert_allclose(turned, first, atol=1e-6)
    assert np.abs(moved - first).max() > 1e-3
    none = policy(named | {"mark_valid": 0 * valid}, hidden)[0]
    assert np.isfinite(none).all()


def test_a_slow_robot_commands_its_share_of_full_speed():
    spec = load_robot("gritsbot_x")
    signals = random_signals(spec, batch=1) | {"speed_share": jnp.full((1, 1), 1 / 3)}
    slow, fast = (Agent(NetworkConfig(), 2, 0.2, Observation(speed=speed)) for speed in ("speed_share", ""))
    action = jnp.array([[3.0, 4.0]])
    np.testing.assert_allclose(slow.velocity_world(slow.encode(signals), action), [[0.04, 0.16 / 3]], atol=1e-6)
    np.testing.assert_allclose(fast.velocity_world(fast.encode(signals), action), [[0.12, 0.16]], atol=1e-6)
    with pytest.raises(TestudoError, match=r"speed_share is missing.*names it as speed"):
        slow.encode(random_signals(spec))
