"""`chase`: who is the prey and where it starts, what a catch and a step are worth to each side, who flees where."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.chase import Chase

SPEC = load_robot("gritsbot_x")
SHIELD = projection_parameters(SPEC)
CHASE = Chase.create(SPEC, SHIELD)


def scene(places):
    """Return one world with robots (x, y) at rest."""
    place = jnp.asarray(np.array(places, np.float32).T[..., None])
    return Scene(MotionState(place, jnp.zeros(place.shape[1:]), jnp.zeros((2, *place.shape[1:]))))


@partial(jax.jit, static_argnums=0)
def task(team):
    return jax.tree.map(lambda x: x[..., None], CHASE.start(jax.random.key(0), team).task)


@jax.jit
def advance(task, before, after):
    """One program: each operation for itself would be one to compile."""
    return CHASE.advance(task, before, after, jax.random.split(jax.random.key(0), 1))


def test_the_prey_is_the_last_robot_and_starts_where_it_is_most_alone():
    begin = jax.jit(lambda key: CHASE.start(key, 4))(jax.random.key(3))
    assert begin.task.traits["is_prey"].tolist() == [0, 0, 0, 1]
    place = np.asarray(begin.position_world)
    apart = np.linalg.norm(place[:, :, None] - place[:, None], axis=0) + 1e3 * np.eye(4)
    assert apart.min(axis=1).argmax() == 3


def test_a_shielded_predator_can_catch():
    assert CHASE.catch_m > SHIELD.separation_m + 0.05


def test_the_sides_have_opposite_rewards_and_a_catch_ends_the_episode():
    before = scene([(0.0, 0.0), (0.0, 0.8), (1.0, 0.0)])
    near = scene([(0.7, 0.0), (0.0, 0.8), (1.0, 0.0)])
    step = advance(task(3), before, near)
    assert np.asarray(step.success).tolist() == [True]
    assert step.terms["caught"][:, 0].tolist() == [2, 2, -2]
    np.testing.assert_allclose(step.terms["nearer"][:, 0], [0.14, 0, -0.07], atol=1e-6)
    step = advance(task(3), before, before)
    assert np.asarray(step.success).tolist() == [False]
    np.testing.assert_allclose(step.terms["time"][:, 0], [-1 / 60, -1 / 60, 1 / 60], atol=1e-7)
    assert not any(np.asarray(step.terms[name]).any() for name in ("caught", "nearer"))


def test_each_side_knows_its_rival_and_drives_by_hand_to_or_from_it():
    world = scene([(-0.6, 0.0), (-1.2, 0.5), (0.2, 0.0)])
    rival = CHASE.signals(task(3), world)["rival_position_world"][..., 0].T
    np.testing.assert_allclose(rival, [(0.2, 0), (0.2, 0), (-0.6, 0)], atol=1e-6)
    velocity = np.asarray(CHASE.nominal_world(task(3), world))[..., 0]
    np.testing.assert_allclose(np.linalg.norm(velocity, axis=0), [0.1, 0.1, 0.2], rtol=1e-4)
    assert velocity[0, 0] == pytest.approx(0.1, rel=1e-4)
    assert velocity[0, 2] > 0.19
