"""`pursuit`: its filters against a textbook Kalman filter in float64, what a robot sees, and what it reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.scenarios.compiled import CompiledScenario, starts_of_keys

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.pursuit import SLOTS, Pursuit, PursuitTask
from testudo_sim.scenarios.target_beliefs import (
    BEARING_SD_RAD,
    RANGE_SD,
    TargetBeliefs,
    acceleration_noise,
    measured,
    transition,
)

pytestmark = pytest.mark.usefixtures("quick")
SPEC = load_robot("gritsbot_x")
TASK = CompiledScenario(Pursuit.create(SPEC, projection_parameters(SPEC)))
KEYS = jax.random.split(jax.random.key(0), 1)
log_det = jax.jit(lambda beliefs: beliefs.log_det)


def scene(*robots):
    """Return robots at rest at (x, y, yaw), in metres of the paper, one world."""
    state = np.array(robots, np.float32).T[..., None]
    return Scene(MotionState(TASK.step_m * state[:2], state[2], 0 * state[:2]))


def task_of(*targets, believed=None):
    """Return targets at rest at (x, y), believed there with unit covariance, one world."""
    place = np.array(targets, np.float32).T[..., None]
    mean = np.array(targets if believed is None else believed, np.float32).T[..., None]
    count = place.shape[1]
    covariance = np.broadcast_to(np.eye(4, dtype=np.float32)[..., None, None], (4, 4, count, 1))
    return PursuitTask(place, 0 * place, np.concatenate([mean, 0 * mean]), covariance, np.zeros((count, 1), np.float32))


def test_two_robots_that_see_a_target_update_it_like_two_textbook_updates_in_turn():
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=4) * 5, rng.normal(size=(4, 4))
    covariance = root @ root.T + np.eye(4)
    robots, place = np.array([[1.0, 2.0], [-3.0, 4.0]]), np.array([3.0, 1.0])
    noise = rng.normal(size=(2, 2))
    move = transition(0.5).astype(float)
    mean_after = move @ mean
    covariance_after = move @ covariance @ move.T + 0.001 * acceleration_noise(0.5)
    for robot, one in zip(robots, noise, strict=True):
        line = place - robot
        far = np.hypot(*line)
        turn = np.array([[line[0], -line[1]], [line[1], line[0]]]) / far
        deviation = np.array([RANGE_SD, BEARING_SD_RAD * far])
        found, error = place + turn @ (deviation * one), turn @ np.diag(deviation**2) @ turn.T
        pick = np.eye(2, 4)
        gain = covariance_after @ pick.T @ np.linalg.inv(pick @ covariance_after @ pick.T + error)
        mean_after = mean_after + gain @ (found - pick @ mean_after)
        covariance_after = (np.eye(4) - gain @ pick) @ covariance_after

    @jax.jit
    def updated(seen):
        beliefs = TargetBeliefs(*(jnp.array(x, jnp.float32)[None, None] for x in (mean, covariance)))
        values = measured(jnp.array(place)[None, None], jnp.array(robots)[:, None], jnp.array(noise)[:, None, None])
        after = beliefs.predicted(0.5).updated(*values, seen)
        return after, after.log_det

    both, both_log_det = updated(np.ones((2, 1, 1), bool))
    np.testing.assert_allclose(both.mean[0, 0], mean_after, atol=2e-3)
    np.testing.assert_allclose(both.covariance[0, 0], covariance_after, atol=2e-3)
    assert float(both_log_det[0, 0]) == pytest.approx(np.linalg.slogdet(covariance_after)[1], abs=0.02)
    unseen, _ = updated(np.zeros((2, 1, 1), bool))
    np.testing.assert_allclose(unseen.mean[0, 0], move @ mean, atol=1e-3)


@pytest.mark.parametrize(
    ("target", "sees"),
    [((9.5, 0.0), 1), ((10.5, 0.0), 0), ((5.0, 4.8), 1), ((5.0, 5.2), 0), ((5.0, -5.2), 0), ((-5.0, 0.0), 0)],
)
def test_a_robot_sees_targets_within_10_m_and_45_degrees_of_its_heading(target, sees):
    """Targets at rest move by a few millimetres in the decision."""
    there = scene((0.0, 0.0, 0.0))
    step = TASK.advance(task_of(target), there, there, KEYS)
    assert float(step.task.seen[0, 0]) == sees
    assert step.success is None
    assert float(step.terms["uncertainty"][0, 0]) == pytest.approx(-0.1 * float(log_det(step.task.beliefs)[0, 0]))


def test_what_nobody_sees_becomes_more_uncertain_and_what_is_seen_less():
    there = scene((0.0, 0.0, 0.0))
    step = TASK.advance(task_of((5.0, 0.0), (-5.0, 0.0)), there, there, KEYS)
    seen, unseen = np.asarray(log_det(step.task.beliefs))[:, 0]
    assert float(seen) < 0 < float(unseen)


def test_targets_bounce_off_the_walls_and_never_exceed_their_speed():
    begin = starts_of_keys(TASK, 6, jax.random.split(jax.random.key(1), 20))
    there, task = Scene(MotionState(begin.position_world, begin.yaw, 0 * begin.position_world)), begin.task
    for number in range(60):
        task = TASK.advance(task, there, there, jax.random.split(jax.random.key(number), 20)).task
        assert np.hypot(*np.asarray(task.velocity)).max() <= 2.0 + 1e-5
    high = np.array(TASK.arena.high_world)[:, None, None] / TASK.step_m
    assert (np.abs(task.place) <= high + 1e-5).all()
    assert np.isfinite(log_det(task.beliefs)).all()


def test_a_robot_reads_the_four_targets_that_are_believed_nearest_to_it():
    """Not where they are: the first is believed far away."""
    targets = [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0), (5.0, 0.0)]
    named = TASK.signals(
        task_of(*targets, believed=[(9.0, 0.0), *targets[1:]]), scene((0.0, 0.0, 0.0), (10.0, 0.0, 0.0))
    )
    places = np.asarray(named["target_position_world"])[0, ..., 0] / TASK.step_m
    np.testing.assert_allclose(places[:, 0], [2, 3, 4, 5], atol=1e-4)
    np.testing.assert_allclose(places[:, 1], [9, 5, 4, 3], atol=1e-4)
    few = TASK.signals(task_of(targets[0]), scene((0.0, 0.0, 0.0)))
    assert np.asarray(few["target_valid"])[0, :, 0, 0].tolist() == [1.0] + [0.0] * (SLOTS - 1)


def test_the_hand_written_robots_watch_different_targets():
    wanted = TASK.nominal_world(task_of((8.0, 0.0), (-9.0, 0.0)), scene((0.0, 0.0, 0.0), (0.5, 0.0, 0.0)))
    wanted = np.asarray(wanted)[..., 0]
    assert float(wanted[0, 0]) > 0 > float(wanted[0, 1])
