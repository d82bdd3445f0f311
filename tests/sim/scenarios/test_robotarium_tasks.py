"""The tasks of the Robotarium suite: events, rewards and the prey's flight, computed by hand from the suite's rules."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.scenarios.compiled import CompiledScenario, starts_of_keys

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.discovery import LANDMARKS, Discovery, DiscoveryTask
from testudo_sim.scenarios.foraging import Foraging, ForagingTask
from testudo_sim.scenarios.predator_prey import PredatorPrey, PreyTask

pytestmark = pytest.mark.usefixtures("quick")
KINDS = (Foraging, Discovery, PredatorPrey)
SPEC = load_robot("gritsbot_x")
KEYS = jax.random.split(jax.random.key(0), 1)


@cache
def made(kind, robot="gritsbot_x"):
    spec = load_robot(robot)
    return CompiledScenario(kind.create(spec, projection_parameters(spec)))


def at(*places):
    """Return the scene of robots at rest at these places, one world."""
    position = np.array(places, np.float32).T[..., None]
    return Scene(MotionState(position, 0 * position[0], 0 * position))


@pytest.mark.parametrize("kind", KINDS)
def test_constants_are_those_of_the_suite_and_larger_in_proportion_for_a_larger_robot(kind):
    task, large = made(kind), made(kind, "robomaster_s1")
    assert (task.arena.low_world, task.arena.high_world) == ((-1.6, -1.0), (1.6, 1.0))
    assert (task.decision_ticks, task.scale) == (30, 1.0)
    assert task.step_m == pytest.approx(0.198)
    assert int(task.horizon_s / (30 * SPEC.control_period_s)) == 100
    assert large.arena.high_world[0] / 1.6 == pytest.approx(large.scale)
    assert large.scale > 2
    assert large.step_m / large.scale == pytest.approx(0.2, rel=0.1)
    with pytest.raises(TestudoError, match=f"{kind.name}: found crazyflie_2x, which flies"):
        made(kind, "crazyflie_2x")
    with pytest.raises(TestudoError, match=r"robots and landmarks do not fit|robots do not fit"):
        task.start(jax.random.key(0), 100)


def test_a_resource_is_foraged_once_by_robots_that_have_its_level_together():
    """Levels 1, 2, 3; the resources at the origin and at x = 1 need 5 and 6."""
    scenario = made(Foraging)
    place = jnp.array([[0.0, 1.0], [0.0, 0.0]])[..., None]
    levels = {"level": jnp.array([[1.0], [2.0], [3.0]])}
    task = ForagingTask(place, jnp.array([[5.0], [6.0]]), jnp.ones((2, 1)), levels)
    far = at((0.0, 0.9), (0.0, -0.9), (-1.0, 0.0))
    alone = scenario.advance(task, far, at((0.25, 0.0), (0.0, -0.9), (0.0, 0.25)), KEYS)  # 1 and 3
    assert (float(alone.terms["forage"][0, 0]), bool(alone.success[0])) == (0.0, False)
    both = scenario.advance(task, far, at((0.0, 0.9), (0.25, 0.0), (0.0, 0.25)), KEYS)  # 2 and 3
    assert both.terms["forage"][:, 0].tolist() == [5.0, 5.0, 5.0]
    assert both.metrics["foraged"].tolist() == [1.0]
    assert scenario.signals(both.task, far)["resource_valid"][0, :, 0, 0].tolist() == [0.0, 1.0]
    again = scenario.advance(both.task, far, at((0.0, 0.9), (0.25, 0.0), (0.0, 0.25)), KEYS)
    assert again.terms["forage"].sum() == 0
    last = scenario.advance(both.task, far, at((1.0, 0.2), (0.8, 0.0), (1.2, 0.0)), KEYS)
    assert last.terms["forage"][:, 0].tolist() == [6.0, 6.0, 6.0]
    assert bool(last.success[0])


def test_the_first_resource_needs_the_whole_team_and_the_second_all_but_the_first_robot():
    begin = starts_of_keys(made(Foraging), 3, jax.random.split(jax.random.key(1), 20))
    found = {tuple(column) for column in np.asarray(begin.task.level).T.tolist()}
    assert found == {(6.0, 5.0), (5.0, 6.0)}


def test_landmarks_are_sensed_by_the_first_robots_tagged_by_the_others_and_unknown_before():
    """Robots 0, 1 sense within 0.45 m, robots 2, 3 tag within 0.25 m, whether it was sensed or not."""
    scenario = made(Discovery)
    task = starts_of_keys(scenario, 4, KEYS).task
    x = jnp.linspace(-1.2, 1.2, LANDMARKS)
    task = DiscoveryTask(jnp.stack([x, 0 * x])[..., None], task.sensed, task.tagged, task.traits)
    far = at((-1.5, 0.9), (-1.0, 0.9), (-0.5, 0.9), (0.0, 0.9))
    assert scenario.signals(task, far)["landmark_valid"].sum() == 0
    assert jnp.abs(scenario.signals(task, far)["landmark_position_world"]).sum() == 0
    # robot 0 is 0.4 m from the first landmark, robot 3 0.2 m from the last; robot 2 is 0.3 m from the second
    step = scenario.advance(task, far, at((-1.2, 0.4), (-1.0, 0.9), (-0.72, 0.3), (1.2, 0.2)), KEYS)
    assert [float(step.terms[name][1, 0]) for name in ("sensed", "tagged", "waiting")] == pytest.approx([1, 5, -0.05])
    assert (float(step.metrics["sensed"][0]), float(step.metrics["tagged"][0])) == (1.0, 1.0)
    assert scenario.signals(step.task, far)["landmark_valid"][0, :, 0, 0].tolist() == [1, 0, 0, 0, 0, 0]
    again = scenario.advance(step.task, far, at((-1.2, 0.4), (-1.0, 0.9), (-0.72, 0.3), (1.2, 0.2)), KEYS)
    assert float(again.terms["sensed"][0, 0] + again.terms["tagged"][0, 0]) == 0
    done = DiscoveryTask(task.landmark_world, task.sensed, jnp.ones_like(task.tagged), task.traits)
    end = scenario.advance(done, far, far, KEYS)
    assert (bool(end.success[0]), float(end.terms["waiting"][0, 0])) == (True, 0.0)


def test_the_prey_takes_the_step_that_leads_away_from_the_nearest_predator_and_stays_inside():
    scenario = made(PredatorPrey)
    free = scenario.advance(PreyTask(jnp.zeros((2, 1))), at((-0.5, 0.0), (-1.0, 0.5)), at((-0.5, 0.0), (-1, 0.5)), KEYS)
    np.testing.assert_allclose(free.task.prey_world[:, 0], [0.3, 0.0], atol=1e-6)
    assert free.terms["tag"].sum() == 0
    # at 0.1 m from the wall there is no way on: along it, away from the predator
    wall = PreyTask(jnp.array([[1.5], [0.0]]))
    caught = scenario.advance(wall, at((1.2, -0.1), (-1.0, 0.5)), at((1.5, 0.15), (-1.0, 0.5)), KEYS)
    np.testing.assert_allclose(caught.task.prey_world[:, 0], [1.5, 0.3], atol=1e-6)
    # 0.15 m from where it fled to: tagged, the reward is that of all
    assert caught.terms["tag"][:, 0].tolist() == [10.0, 10.0]
    assert caught.metrics["tags"].tolist() == [1.0]
    assert caught.success is None
