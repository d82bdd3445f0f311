"""Layer 1 gives the same command in training and on the robot, and simulated worlds measure wrong velocities."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena, Ball
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import draw_parameters
from testudo_sim.team.team_tick import SimulatedTeam, layer1, measure

ROBOTS = ("gritsbot_x", "turtlebot4", "robomaster_s1", "crazyflie_2x")
CLOSE = 2e-4  # [m/s], [rad/s] per m/s: rounding of single precision, and of rows that are almost parallel


def random_states(spec, rng, count, peers, half=1.5):
    """Return (D, count) states, tables (D, peers, count) and wishes, many of them near walls, obstacle and peers."""
    size = spec.dimension
    position = rng.uniform(-half, half, (size, count))
    velocity = rng.uniform(-1, 1, (size, count)) * spec.speed_limit_m_s
    state = MotionState(position, rng.uniform(-3, 3, count), velocity)
    offset = rng.uniform(-half, half, (size, peers, count))
    speed = spec.control_point_speed_m_s
    table = PeerTable(
        position[:, None] + offset,
        rng.uniform(-0.5, 0.5, offset.shape) * speed,
        rng.uniform(0, 0.2, offset.shape[1:]),
        rng.uniform(size=offset.shape[1:]) < 0.9,
    )
    return state, table, rng.uniform(-1.5, 1.5, (size, count)) * speed


# more peers than rows for every robot, and fewer for one that turns and one that does not
@pytest.mark.parametrize(("name", "peers"), [*((name, 10) for name in ROBOTS), ("gritsbot_x", 3), ("crazyflie_2x", 3)])
def test_training_and_robot_compute_the_same_command(name, peers):
    """Random states, also faster than the limits, near walls and an obstacle."""
    spec, rng = load_robot(name), np.random.default_rng(peers)
    model, size = motion_model(spec), spec.dimension
    parameters = projection_parameters(spec)
    # room for commands that pass: a base that drives on for half a second keeps twice the distance of the others
    half = max(1.5, 3 * parameters.separation_m)
    arena = Arena((-half,) * size, (half,) * size, (Ball((0.4,) * size, 0.2),))
    state, table, wanted = random_states(spec, rng, 2000, peers, half)
    team = SimulatedTeam(model, parameters, arena, KinematicPhysics(model, arena), peers + 1)
    stop = model.stopping_point(state)
    trained = jax.jit(lambda *values: layer1(team, *values))(*jax.tree.map(jnp.asarray, (stop, table, wanted)))
    robot = Shield(model, parameters, stop_tube_parameters(spec), arena).layer1(stop, table, wanted)
    off = np.abs(np.asarray(trained.control_velocity_world) - robot.control_velocity_world).max(axis=0)
    assert (off < CLOSE).mean() > 0.999
    assert (np.asarray(trained.status) == robot.status).mean() > 0.999
    assert np.unique(robot.status).size > 1


@pytest.mark.parametrize("name", ROBOTS)
def test_measured_velocities_are_wrong_within_the_bound_of_the_file(name):
    seed, spec = 1, load_robot(name)
    model = motion_model(spec)
    team = SimulatedTeam(model, projection_parameters(spec), None, KinematicPhysics(model, None), 2)
    size = spec.dimension
    still = jnp.zeros((size, 2, 400))
    error = np.asarray(_measured(team, MotionState(still, still[0], still), seed))
    if spec.kind == DIFFERENTIAL_DRIVE:
        turn = spec.wheel_base_m / 2 * error[1]
        error = np.stack([error[0] + turn, error[0] - turn])
    bound = spec.velocity_error_m_s
    assert np.abs(error).max() <= bound
    assert error.std() == pytest.approx(bound / 3, rel=0.1)
    exact = dataclasses.replace(team, model=motion_model(dataclasses.replace(spec, velocity_error_m_s=0.0)))
    assert not np.any(_measured(exact, MotionState(still, still[0], still), seed))


def _measured(team, state, seed):
    @jax.jit
    def run(state):
        keys = jax.random.split(jax.random.key(1), state.yaw.shape[1])
        parameters = draw_parameters(keys, team.model.spec, team.channels)
        past = jax.tree.map(lambda x: jnp.stack([x] * parameters.age_weights.shape[0]), state)
        return measure(team, past, parameters, jax.random.key(seed)).velocity

    return run(state)
