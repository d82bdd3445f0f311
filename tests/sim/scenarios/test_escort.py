"""`escort`: leaders go on, goals with them, and success needs both; only drones can do it."""

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
from testudo_sim.scenarios.escort import Escort, EscortTask

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("crazyflie_2x")
SCENARIO = CompiledScenario(Escort.create(SPEC, projection_parameters(SPEC)))


def task_of(leader, goal, speed):
    return EscortTask(
        *(jnp.array(values, float)[..., None] for values in (leader, goal)), jnp.array(speed, float)[:, None]
    )


def above(*places):
    """Return the scene of drones at rest at the height of the task, one world."""
    place = jnp.array([[x, y, SCENARIO.height_m] for x, y in places]).T[..., None]
    return Scene(MotionState(place, 0 * place[0], 0 * place))


def advanced(task, before, after):
    return SCENARIO.advance(task, before, after, jax.random.split(jax.random.key(0), 1))


def test_leaders_drive_straight_at_their_speed_and_stop_at_their_goals():
    task = task_of([[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.03], [0.0, 0.0]], [0.1, 0.2])
    here = above((0.0, 0.0), (0.0, 0.0))
    after = advanced(task, here, here)
    step_m = 0.1 * SCENARIO.decision_s
    assert after.task.leader_world[0, 0, 0] == pytest.approx(step_m)
    assert after.task.leader_world[0, 1, 0] == pytest.approx(0.03)
    # a drone that stays falls behind by what its leader drives
    full_step_m = SCENARIO.speed_m_s * SCENARIO.decision_s
    assert after.terms["progress"][0, 0] == pytest.approx(-step_m / full_step_m, rel=1e-4)
    stays = advanced(after.task, here, here)
    assert np.all(stays.task.leader_world[:, 1] == after.task.leader_world[:, 1])


def test_a_drone_begins_above_its_leader_and_its_goal_is_there():
    begin = starts_of_keys(SCENARIO, 4, jax.random.split(jax.random.key(0), 50))
    scene = Scene(MotionState(begin.position_world, begin.yaw, 0 * begin.position_world))
    assert np.allclose(SCENARIO.signals(begin.task, scene)["goal_world"], begin.position_world)
    assert np.allclose(SCENARIO.distance(begin.task, scene.robots), 0)
    low, high = (np.array(side)[:, None, None] for side in (SCENARIO.arena.low_world, SCENARIO.arena.high_world))
    assert np.all((begin.position_world > low) & (begin.position_world < high))


@pytest.mark.parametrize(("leader_x", "drone_x", "done"), [(1.0, 1.1, True), (0.9, 0.9, False), (1.0, 0.7, False)])
def test_success_needs_the_leader_at_its_goal_and_the_drone_above_it(leader_x, drone_x, done):
    task = task_of([[leader_x], [0.0]], [[1.0], [0.0]], [0.1])
    scene = above((drone_x, 0.0))
    assert bool(advanced(task, scene, scene).success[0]) is done


def test_robots_on_the_ground_are_refused():
    spec = load_robot("gritsbot_x")
    with pytest.raises(TestudoError, match="escort: found gritsbot_x, which drives on the ground"):
        Escort.create(spec, projection_parameters(spec))
