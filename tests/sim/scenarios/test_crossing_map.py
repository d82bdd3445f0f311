"""`crossing_map`: starts and goals are where a robot can be and arrive, progress is along the way, maps scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.scenarios.compiled import starts_of_keys

from testudo_deploy.shield.arena import clearances
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import GoalTask
from testudo_sim.scenarios.scenario import make_scenario

pytestmark = pytest.mark.usefixtures("quick")


def scenario_of(name, robot="gritsbot_x"):
    spec = load_robot(robot)
    scenario = make_scenario("crossing_map", spec, projection_parameters(spec))
    return scenario.with_obstacles(scenario.map_obstacles(name)) if name else scenario


@pytest.mark.parametrize("robot", ["gritsbot_x", "robomaster_s1"])
def test_32_robots_start_and_arrive_apart_and_away_from_obstacles(robot):
    """And in a corridor of one cell two robots pass each other."""
    scenario, shield = scenario_of("camar_labmaze_65", robot), projection_parameters(load_robot(robot))
    begin = starts_of_keys(scenario, 32, jax.random.split(jax.random.key(0), 20))
    for points in (np.asarray(begin.position_world), np.asarray(begin.task.goal_world)):
        apart = np.linalg.norm(points[:, :, None] - points[:, None], axis=0) + 1e3 * np.eye(32)[..., None]
        assert apart.min() >= shield.separation_m
        assert clearances(scenario.arena.groups, points)[0].min() >= scenario.room_m
    assert scenario.cell_m > shield.separation_m + 2 * shield.wall_m


def test_progress_is_along_the_way_and_arrivals_are_counted():
    """A robot behind a wall goes away from its goal in a straight line, and towards it on its way."""
    scenario = scenario_of("camar_labmaze_40")
    ways = scenario.ways
    cells, left = ways.nodes_world[ways.goals], ways.left_m[:, ways.goals]
    straight = np.linalg.norm(cells[:, None] - cells[None], axis=-1)
    goal, start = np.unravel_index(np.argmax(left - 3 * straight), left.shape)
    task = GoalTask(jnp.asarray(cells[goal][:, None, None]))

    def at(place):
        position = jnp.asarray(place, jnp.float32).reshape(2, 1, 1)
        return Scene(MotionState(position, jnp.zeros((1, 1)), 0 * position))

    before = at(cells[start])
    velocity = jax.jit(scenario.nominal_world)(task, before)
    speed = scenario.spec.control_point_speed_m_s
    assert float(jnp.linalg.norm(velocity)) == pytest.approx(speed, rel=1e-3)
    after = at(np.asarray(before.robots.position_world + velocity / speed * scenario.full_step_m))
    advance = jax.jit(scenario.advance)
    step = advance(task, before, after, jax.random.split(jax.random.key(0), 1))
    assert float(step.terms["progress"][0, 0]) == pytest.approx(1.0, abs=0.05)
    assert float(step.metrics["arrived"][0]) == 0
    there = advance(task, after, at(cells[goal]), jax.random.split(jax.random.key(0), 1))
    assert float(there.metrics["arrived"][0]) == 1
    assert bool(there.success[0])


def test_signals_of_a_map_are_declared_and_in_reach():
    scenario = scenario_of("camar_random_grid_60")
    begin = starts_of_keys(scenario, 4, jax.random.split(jax.random.key(0), 5))
    scene = Scene(MotionState(begin.position_world, begin.yaw, 0 * begin.position_world))
    named = jax.jit(scenario.signals)(begin.task, scene)
    declared = {signal.name: (*reversed(signal.shape), 4, 5) for signal in scenario.task_signals}
    assert {name: value.shape for name, value in named.items()} == declared
    assert 0 <= named["ranges"].min() < named["ranges"].max() <= 2.5
    assert named["obstacle_valid"].mean() > 0.3


def test_what_flies_and_a_team_that_does_not_fit_are_refused():
    with pytest.raises(TestudoError, match="crossing_map: found crazyflie_2x, which flies"):
        scenario_of("", "crazyflie_2x")
    with pytest.raises(TestudoError, match=r"crossing_map: 500 robots do not fit: \d+ free cells"):
        scenario_of("camar_labmaze_40").start(jax.random.key(0), 500)
