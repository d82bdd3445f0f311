"""`unmapped`: ranges see bars and peers, the shield's rows keep robots off what no map has, and both tasks are one."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena, Ball
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.sensed_bodies import KnownPeers, RangeErrors, nearest_in_sectors, sensed_bodies
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_policies.learning.builder import make_environment
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import make_scenario
from testudo_sim.scenarios.unmapped import BARS, RAYS, Unmapped, UnmappedTask

SPEC = load_robot("gritsbot_x")
SHIELD = projection_parameters(SPEC)


def scenario(name="unmapped"):
    return make_scenario(name, SPEC, SHIELD)


def at(*places, yaw=0.0):
    place = np.array(places, np.float32).T[..., None]
    return Scene(MotionState(place, np.full(place.shape[1:], yaw, np.float32), 0 * place))


def bars(*middles):
    """Bars that lie across the x axis, one world; the others far outside."""
    middle = np.array([*middles, *[(9.0, 9.0)] * (BARS - len(middles))], np.float32).T[..., None]
    across = np.full((BARS, 1), math.pi / 2, np.float32)
    return UnmappedTask(np.zeros((2, 2, 1), np.float32), middle, across, np.zeros(1, bool))


def test_ranges_see_bars_walls_and_the_other_robot_but_not_the_robot_itself():
    """At (1, 0): a bar of half a width 0.1 m at x = 0 behind, a wall at x = 2 ahead, a peer at y = 1 to the left."""
    found = np.asarray(jax.jit(scenario().ranges)(bars((0.0, 0.0)), at((1.0, 0.0), (1.0, 1.0))))[:, 0, 0]
    assert found[RAYS // 2] == pytest.approx(0.9, abs=1e-4)
    assert found[0] == pytest.approx(1.0, abs=1e-4)
    assert found[RAYS // 4] == pytest.approx(1.0 - SPEC.body_radius_m, abs=1e-4)
    assert found.max() == pytest.approx(1.5)


def test_only_what_no_map_and_no_peer_explains_is_a_row_of_the_shield():
    seen = jax.jit(scenario().sensed)(bars((0.0, 0.0)), at((0.6, 0.0), (1.2, 0.0)))
    points = np.asarray(seen.point_world)[:, np.asarray(seen.there)[:, 0, 0], 0, 0]
    far = np.hypot(points[0] - 0.6, points[1]) > 1.49  # no echo: there a body may begin
    points = points[:, ~far]
    assert np.abs(points[0]).min() < 0.11, "the bar"
    assert (np.hypot(points[0] - 1.2, points[1]) > SPEC.body_radius_m + 0.05).all(), "not the peer"
    assert (np.abs(points) < 1.9).all(), "not the walls"


def test_robots_and_training_find_the_same_bodies():
    arena, rng = Arena((-2.0, -2.0), (2.0, 2.0), (Ball((0.5, 0.5), 0.2),)), np.random.default_rng(0)
    peers = KnownPeers(rng.uniform(-1, 1, (2, 2, 3)), 0.2)
    origin, angle = rng.uniform(-1, 1, 2), np.linspace(0, 2 * math.pi, 32, endpoint=False)
    ranges = rng.uniform(0, 2.5, 32)

    def found(xp, compiled=lambda function: function):
        return compiled(lambda: seen(xp))()

    def seen(xp):
        known = replace(peers, segments_world=xp.asarray(peers.segments_world))
        values = map(xp.asarray, (origin, angle, ranges))
        return sensed_bodies(arena, known, *values, 2.0, RangeErrors(0.02, 0.03), xp.asarray(0.1), 1.0)

    robot, trained = found(np), found(jnp, jax.jit)
    assert np.asarray(trained.point_world) == pytest.approx(robot.point_world, abs=1e-5)
    assert (np.asarray(trained.there) == robot.there).all()
    assert 0 < robot.there.sum() < 32
    nearest = nearest_in_sectors(robot, origin, 8)
    inside = np.where(robot.there, np.linalg.norm(robot.point_world - origin[:, None], axis=0), np.inf).min()
    assert np.linalg.norm(nearest.point_world - origin[:, None], axis=0)[nearest.there].min() == pytest.approx(inside)


def test_the_teacher_has_the_same_task_and_other_signals_and_what_does_not_fit_is_refused():
    key = jax.random.key(0)
    starts = [scenario(name).start(key, 3) for name in ("unmapped", "unmapped_seen")]
    assert all(np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, starts), strict=True))
    names = [{signal.name for signal in scenario(name).task_signals} for name in ("unmapped", "unmapped_seen")]
    assert names == [{"goal_world", "ranges"}, {"goal_world", "bar_position_world", "bar_yaw"}]
    with pytest.raises(TestudoError, match="unmapped: 10 robots do not fit: 25 cells; at most 9"):
        scenario().start(key, 10)
    with pytest.raises(TestudoError, match="its bars are in no map"):
        scenario().with_obstacles(())


class Blind(Unmapped):
    """Without what the shield sees."""

    sensed = property()  # `hasattr` is false


@pytest.mark.slow
def test_by_hand_no_robot_touches_a_bar_and_without_rows_from_ranges_they_do():
    environment, worlds = make_environment("unmapped", SPEC, SHIELD, 3), 64

    @jax.jit
    def bumps(environment_key):
        def decide(state, key):
            wanted = task.nominal_world(state.task, made.scene(state))
            state, result = made.step(state, jnp.transpose(wanted, (2, 1, 0)), key)
            return state, result.counts["bumps"]

        keys = jax.random.split(environment_key, worlds)
        return jnp.sum(jax.lax.scan(decide, made.reset(keys), jax.random.split(environment_key, 120))[1])

    task = environment.scenario
    made = environment
    assert float(bumps(jax.random.key(0))) == 0
    task = Blind(**vars(environment.scenario))
    made = replace(environment, scenario=task)
    jax.clear_caches()
    assert float(jax.jit(bumps.__wrapped__)(jax.random.key(0))) > 100
