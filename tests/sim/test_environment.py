"""An environment: restarts, ends told apart, the same again from the same keys, what each signal is."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.contract.contract import policy_signals, robot_signals
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.environment import Environment, to_batch
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.scenarios.scenario import StartState, TaskStep, make_scenario
from testudo_sim.team.team_tick import SimulatedTeam

pytestmark = pytest.mark.usefixtures("quick")

WORLDS, SIZE = 6, 3


@dataclasses.dataclass(frozen=True)
class Line:
    """A scenario for tests: robots start on a line and succeed once the first has gone ``success_m``."""

    success_m: Any
    horizon_s: float = 1.4
    arena: Arena = Arena((-4.0, -4.0), (4.0, 4.0))
    decision_ticks: int = 10
    name: str = "line"
    task_signals: tuple = ()
    boxes: tuple = ()

    def start(self, key, team_size):
        place = jnp.stack([jnp.zeros(team_size), jnp.arange(team_size) * 1.0])
        return StartState(place, jnp.zeros(team_size), jax.random.uniform(key, (team_size,)))

    def signals(self, task, scene):
        return {"mark": task[None]}

    def advance(self, task, before, after, keys):
        way = after.robots.position_world[0] - before.robots.position_world[0]
        there = after.robots.position_world[0, 0] > jnp.asarray(self.success_m)
        return TaskStep(task, {"way": way, "tax": jnp.full(way.shape, -0.25)}, there)


def environment_of(name="gritsbot_x", scenario=None, size=SIZE, **options):
    spec = load_robot(name)
    shield = projection_parameters(spec)
    scenario = scenario or make_scenario("navigation", spec, shield)
    model = motion_model(spec)
    team = SimulatedTeam(model, shield, scenario.arena, KinematicPhysics(model, scenario.arena), size, Channels())
    return Environment(scenario, team, **options)


def keys_of(seed=0, worlds=WORLDS):
    return jax.random.split(jax.random.key(seed), worlds)


def forward(environment, worlds=WORLDS, share=1.0):
    """Return full speed along x for all robots (E, N, D)."""
    speed = environment.team.model.spec.control_point_speed_m_s * share
    size = environment.team.model.spec.dimension
    velocity = np.zeros((worlds, environment.team.size, size), np.float32)
    velocity[..., 0] = speed
    return velocity


def equal(one, two):
    # in NumPy: as JAX it would be two programs to compile for every shape
    return all(
        (np.asarray(a) == np.asarray(b)).all() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    )


@pytest.fixture(scope="module")
def line():
    """Worlds 0 to 2 can succeed, at 5, 20 cm and never; the others never; four decisions are all."""
    scenario = Line((0.05, 0.2) + (9.0,) * (WORLDS - 2))
    environment = environment_of(scenario=scenario, spread=0.0, change_price=0.5)
    return environment, jax.jit(environment.step), jax.jit(environment.reset)


@pytest.fixture(scope="module")
def navigation():
    """Without the shield, whose projection takes the compiler longest; tests of the shield take `line`."""
    plain = environment_of()
    environment = dataclasses.replace(plain, team=dataclasses.replace(plain.team, shielded=False))
    return environment, jax.jit(environment.step), jax.jit(environment.reset)


def test_the_horizon_is_a_number_of_decisions(line):
    environment, *_ = line
    assert environment.horizon == 4  # 1.4 s in decisions of 0.33 s


def test_success_ends_and_time_truncates_and_never_both(line):
    environment, step, reset = line
    state, ends = reset(keys_of()), []
    for number in range(4):
        state, result = step(state, forward(environment), jax.random.key(number))
        ends.append((np.asarray(result.terminated), np.asarray(result.truncated)))
        assert not (result.terminated & result.truncated).any()
    terminated, truncated = (np.stack(x) for x in zip(*ends, strict=True))
    # 0.066 m a decision but for the start: world 0 is there in the second, world 1 in the fourth and last
    assert terminated[:, 0].tolist() == [False, True, False, True]
    assert terminated[:, 1].tolist() == [False, False, False, True]
    assert not terminated[:, 2:].any()
    assert not truncated[:, 1].any()  # success in the last decision is no time-out
    assert truncated[:, 2:].tolist() == [[False] * 4] * 3 + [[True] * 4]


def test_a_finished_world_starts_again_and_the_others_go_on(line):
    environment, step, reset = line
    state = reset(keys_of())
    state, _ = step(state, forward(environment), jax.random.key(0))
    state, result = step(state, forward(environment), jax.random.key(1))
    assert result.terminated.tolist() == [True] + [False] * 5
    place = np.asarray(environment.scene(state).robots.position_world)
    last = np.asarray(environment.scene(result.last).robots.position_world)
    assert (place[0, :, 0] == 0).all()
    assert (last[0, :, 0] > 0.05).all()  # what the critic sees before the restart
    assert (place[..., 1:] == last[..., 1:]).all()
    assert state.elapsed.tolist() == [0] + [2] * 5
    assert result.last.elapsed.tolist() == [2] * 6
    fresh = reset(jax.random.split(jax.random.split(jax.random.key(1))[1], WORLDS))
    begun, expected = (jax.tree.map(lambda x: np.asarray(x)[..., 0], tree) for tree in (state, fresh))
    assert equal(begun, expected)


@pytest.mark.parametrize("share", [1.0, 10.0])
def test_rewards_are_terms_less_the_price_of_changes_before_the_restart(line, share):
    """Ten times what they can do is wanted: the shield takes most of it, at 0.5 for the full speed."""
    environment, step, reset = line
    state = reset(keys_of())
    state, _ = step(state, forward(environment), jax.random.key(0))
    before = environment.scene(state).robots.position_world[0]
    _, result = step(state, forward(environment, share=share), jax.random.key(1))
    after = environment.scene(result.last).robots.position_world[0]
    assert result.terminated[0]
    change = np.asarray(result.metrics.change_m_s)
    assert (np.abs(change - 0.2 * (share - 1)) < 0.1).all()
    expected = np.asarray(after - before) - 0.25 - 0.5 * change / 0.2
    assert np.asarray(result.reward) == pytest.approx(expected, abs=1e-5)
    assert np.asarray(sum(result.terms.values())) == pytest.approx(expected, abs=1e-5)


def test_the_same_keys_give_the_same_again(line):
    environment, step, reset = line
    state = reset(keys_of())
    assert equal(reset(keys_of()), state)
    first, second = (step(state, forward(environment), jax.random.key(5)) for _ in range(2))
    assert equal(first, second)
    other = step(state, forward(environment), jax.random.key(6))
    assert not equal(first[0].team.estimate, other[0].team.estimate)


def test_a_world_begins_as_its_key_says_whatever_the_others_are(navigation):
    _, _, reset = navigation
    state = reset(keys_of())
    for world in (0, 4):
        alone = reset(keys_of()[world : world + 1])
        assert equal(jax.tree.map(lambda x, w=world: np.asarray(x)[..., w : w + 1], state), alone)


def test_nothing_is_lost_when_no_world_has_ended(line):
    environment, step, reset = line
    state = reset(keys_of())
    after, result = step(state, forward(environment, share=0.2), jax.random.key(0))
    going = ~np.asarray(result.terminated | result.truncated)
    assert going.any()
    for now, last in zip(jax.tree.leaves(after), jax.tree.leaves(result.last), strict=True):
        assert (np.asarray(now)[..., going] == np.asarray(last)[..., going]).all()


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
def test_signals_are_those_of_the_contract(name):
    environment = environment_of(name)
    spec, state = environment.team.model.spec, jax.jit(environment.reset)(keys_of())
    signals = jax.jit(environment.signals)(state)
    expected = {
        signal.name: (WORLDS, SIZE, *(SIZE - 1 if axis == "neighbours" else axis for axis in signal.shape))
        for signal in (*robot_signals(spec), *environment.scenario.task_signals)
    }
    assert {key: value.shape for key, value in signals.items()} == expected
    assert all(np.isfinite(value).all() for value in signals.values())
    assert (signals["goal_world"] == to_batch(state.task.goal_world)).all()


def test_signals_come_from_the_robots_own_code(navigation):
    """World 2, robot 1: what the robot's function makes of its own numbers, in NumPy."""
    environment, step, reset = navigation
    state = reset(keys_of())
    for number in range(3):
        state, _ = step(state, forward(environment), jax.random.key(number))
    team = environment.team

    def own(tree):
        return jax.tree.map(lambda x: np.asarray(x[..., 1, 2], np.float64), tree)

    table, estimate = own(state.team.table), own(state.team.estimate)
    table = dataclasses.replace(table, valid=table.valid > 0)
    stop = team.model.stopping_point(estimate)
    expected = policy_signals(estimate, stop, table, team.shield.hold_s, {"goal_world": own(state.task).goal_world})
    signals = jax.jit(environment.signals)(state)
    assert set(signals) == set(expected)
    for name, value in expected.items():
        assert np.asarray(signals[name][2, 1]) == pytest.approx(value.T, abs=1e-5), name


def test_central_signals_are_the_truth(navigation):
    environment, step, reset = navigation
    state = reset(keys_of())
    state, _ = step(state, forward(environment), jax.random.key(0))
    central, local = jax.jit(environment.central_signals)(state), jax.jit(environment.signals)(state)
    assert set(central) == set(local) | {"neighbour_goal_world"}
    true = to_batch(environment.scene(state).robots.position_world)
    assert (central["position_world"] == true).all()
    assert (central["neighbour_age"] == 0).all()
    assert not (local["position_world"] == true).all()
    # neighbour slot k of robot i is robot i + 1 + k
    points = central["control_point_world"]
    for robot in range(SIZE):
        for slot in range(SIZE - 1):
            peer = (robot + 1 + slot) % SIZE
            assert (central["neighbour_position_world"][:, robot, slot] == points[:, peer]).all()
            goals = central["neighbour_goal_world"][:, robot, slot]
            assert (goals == central["goal_world"][:, peer]).all()


def test_metrics_count_every_tick_and_not_only_the_last():
    """Unshielded robots drive through each other and are apart again when the decision ends."""
    scenario = dataclasses.replace(Line((9.0,) * WORLDS), decision_ticks=170)
    environment = environment_of(scenario=scenario, size=2, spread=0.0)
    team = dataclasses.replace(environment.team, shielded=False)
    environment = dataclasses.replace(environment, team=team)
    # one ahead to the left, the other back: they meet after 1 m and pass each other
    wanted = jnp.zeros((2, 2, WORLDS)).at[1, 0].set(0.18).at[1, 1].set(-0.19)
    state = jax.jit(environment.reset)(keys_of())
    after, metrics = jax.jit(environment.run_ticks)(state, wanted, jax.random.key(0))
    place = environment.team.physics.scene(after.physics).robots.position_world
    apart = np.linalg.norm(np.asarray(place[:, 0] - place[:, 1]), axis=0)
    touching = 2 * team.model.spec.body_radius_m
    assert (apart > touching).all()
    assert (place[1, 0] > place[1, 1]).all()
    assert (np.asarray(metrics.contacts) > 0).all()
    assert (np.asarray(metrics.separation_m) < touching).all()
    assert (np.asarray(metrics.interventions) == 0).all()


def test_idle_says_that_nobody_moved(line):
    environment, step, reset = line
    state = reset(keys_of())
    _, result = step(state, 0 * forward(environment), jax.random.key(0))
    assert result.metrics.idle.all()
    assert (result.metrics.contacts == 0).all()
    _, result = step(state, forward(environment), jax.random.key(0))
    assert not result.metrics.idle.any()


def test_what_is_not_finite_stops_a_simulated_robot_too(line):
    """A policy that has diverged in training: the robots brake, and the world stays finite."""
    environment, step, reset = line
    state = reset(keys_of())
    wanted = forward(environment)
    wanted[1], wanted[2, 0, 1] = np.nan, np.inf
    after, result = step(state, wanted, jax.random.key(0))
    assert result.metrics.braked[1] == 1
    assert result.metrics.braked[2] == pytest.approx(1 / 3)
    assert (np.asarray(result.metrics.braked)[[0, 3, 4, 5]] == 0).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after) if jnp.issubdtype(leaf.dtype, jnp.floating))


def test_random_navigation_with_straight_commands_has_no_contact():
    """Forty seconds towards the goals, parameters from the whole intervals, noise, delay, loss."""
    environment = environment_of(size=4)
    state = jax.jit(environment.reset)(keys_of(worlds=200))

    @jax.jit
    def episode(state, key):
        def decide(current, step_key):
            signals = environment.signals(current)
            offset = signals["goal_world"] - signals["control_point_world"]
            distance = jnp.sqrt(jnp.sum(offset**2, axis=-1, keepdims=True)) + 1e-6
            wanted = offset / distance * jnp.minimum(0.2, distance)
            current, result = environment.step(current, wanted, step_key)
            return current, (result.metrics.contacts, result.terminated, result.metrics.separation_m)

        return jax.lax.scan(decide, state, jax.random.split(key, 60))[1]

    contacts, terminated, separation = episode(state, jax.random.key(1))
    assert int(contacts.sum()) == 0
    assert float(separation.min()) > 2 * environment.team.model.spec.body_radius_m
    assert terminated.any(axis=0).mean() > 0.3  # straight commands deadlock; many arrive all the same
