"""`gates`: what counts as passed and as missed, in the plane and in space, and where robots are placed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.gates import GATES, LANES, Gates, GateTask

ROBOTS = ("gritsbot_x", "crazyflie_2x")


def made(robot):
    spec = load_robot(robot)
    return Gates.create(spec, projection_parameters(spec))


def scene(place):
    return Scene(MotionState(jnp.asarray(place, jnp.float32), jnp.zeros(place.shape[1:]), jnp.zeros(place.shape)))


def decided(scenario, task, before, after):
    @jax.jit
    def advance(task, before, after):  # one program, not one for each operation
        keys = jax.random.split(jax.random.key(0), before.shape[-1])
        return scenario.advance(task, scene(before), scene(after), keys)

    return advance(task, before, after)


def two_robots(scenario):
    """Return a straight course, and the middle (D, 2, 1) of the first gate of two robots."""
    task = GateTask(jnp.zeros((scenario.spec.dimension - 1, GATES, 1)), jnp.zeros((2, 1)))
    return task, np.asarray(scenario.signals(task, scene(np.zeros((scenario.spec.dimension, 2, 1))))["goal_world"])


@pytest.mark.parametrize(("robot", "axis"), [("gritsbot_x", 1), ("crazyflie_2x", 1), ("crazyflie_2x", 2)])
def test_a_gate_counts_where_the_robot_comes_past_it_within_the_opening(robot, axis):
    scenario = made(robot)
    task, gate = two_robots(scenario)
    step = scenario.step_m
    before, after = gate.copy(), gate.copy()
    before[0] -= step / 2
    after[0] += step / 2
    # the first robot comes past at 0.45 of a step from the middle, the second at 0.55: halfway between both ends
    before[axis] += step * np.array([[0.0], [0.1]])
    after[axis] += step * np.array([[0.9], [1.0]])
    found = decided(scenario, task, before, after)
    assert found.metrics["gates"].tolist() == found.metrics["missed"].tolist() == [0.5]
    assert found.terms["passed"][:, 0].tolist() == [2.0, 0.0]
    assert found.terms["missed"][:, 0].tolist() == [0.0, -2.0]
    assert found.task.number[:, 0].tolist() == [1.0, 1.0]  # a missed gate is gone, too


def test_before_the_gate_and_behind_the_last_one_nothing_counts():
    scenario = made("gritsbot_x")
    task, gate = two_robots(scenario)
    before = gate - np.array([scenario.step_m, 0]).reshape(2, 1, 1)
    still = decided(scenario, task, before, before)
    assert still.task.number.tolist() == task.number.tolist()
    assert float(still.metrics["gates"][0] + still.metrics["missed"][0]) == 0
    done = GateTask(task.course, jnp.full((2, 1), float(GATES)))
    after = decided(scenario, done, before, gate + scenario.step_m)
    assert all(float(jnp.max(jnp.abs(value))) == 0 for value in after.terms.values())
    assert after.task.number.tolist() == done.number.tolist()


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_course_is_tight_and_stays_inside_the_arena(robot):
    scenario = made(robot)
    begin = jax.vmap(lambda key: scenario.start(key, LANES), out_axes=-1)(jax.random.split(jax.random.key(1), 50))
    course = np.asarray(begin.task.course) / scenario.step_m
    assert np.all(course[:, :-1] * course[:, 1:] < 0)  # left and right in turns
    assert np.all((np.abs(course) >= 1) & (np.abs(course) <= 2))
    for number in range(GATES + 1):
        task = GateTask(begin.task.course, jnp.full((LANES, 50), float(number)))
        for place in scenario.signals(task, scene(np.asarray(begin.position_world))).values():
            low, high = (np.reshape(x, (-1, 1, 1)) for x in (scenario.arena.low_world, scenario.arena.high_world))
            assert np.all((np.asarray(place) > low) & (np.asarray(place) < high))


def test_more_robots_than_lanes_are_refused():
    with pytest.raises(TestudoError, match=f"gates: found {LANES + 1} robots, expected at most {LANES}"):
        made("gritsbot_x").start(jax.random.key(0), LANES + 1)
