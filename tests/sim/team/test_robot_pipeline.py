"""The robot's control loop and the simulated robot: the same numbers at every tick."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team.deployed_team import DeployedTeam, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.team_tick import SimulatedTeam, measure

pytestmark = pytest.mark.usefixtures("quick")

# in step, without noise and loss: what is left is the same on both sides
CHANNELS = Channels(message_ticks=(1, 1), message_loss=(0.0, 0.0), noise_share=0.0)


class Driven:
    """What a `ControlLoop` uses of an artefact; the wanted velocity is set from outside."""

    def __init__(self, contract):
        self.contract, self.wanted = contract, None

    def step(self, signals, hidden):
        return self.wanted, hidden


def pair_of(name):
    """Return a team of two in an arena, and their starts (D, 2, 1) and yaws (2, 1)."""
    spec = load_robot(name)
    shield, model, size = projection_parameters(spec), motion_model(spec), spec.dimension
    arena = Arena((-2.0,) * size, (2.0,) * size)
    place = np.zeros((size, 2, 1))
    place[0, :, 0] = 0.6 * shield.separation_m * np.array([1, -1])
    yaw = np.array([[2.5], [0.4]]) * (size == 2)
    return SimulatedTeam(model, shield, arena, KinematicPhysics(model, arena), 2, CHANNELS), place, yaw


def first_messages(stop, body_world, contract, now_s):
    """Return what each robot said one period ago: where it stands, and that it heard the other."""
    period = contract.control_period_s
    for i in range(2):
        point = tuple(np.asarray(stop.position_world, float)[:, i, 0].tolist())
        zero = (0.0,) * len(point)
        echoes = {f"r{1 - i}": (f"e{1 - i}", now_s - 2 * period, -1)}
        yield PeerMessage(
            f"r{i}",
            f"e{i}",
            0,
            now_s - period,
            0.0,
            point,
            zero,
            point,
            0.0,
            contract.contract_hash,
            (place := tuple(np.asarray(body_world, float)[:, i, 0].tolist()), place),
            (place, place),
            echoes,
        )


@pytest.mark.parametrize(
    "name", ["gritsbot_x", *(pytest.param(name, marks=pytest.mark.slow) for name in ("crazyflie_2x", "robomaster_s1"))]
)
def test_a_robot_does_what_the_simulation_did(name, make_artefact):
    """Two control loops with real messages, fed with the simulation's own measurements.

    Estimate, stopping point, neighbour table, shielded velocity and command are the same at each tick,
    with a lag, delay and scale that the robots do not know.
    """
    team, place, yaw = pair_of(name)
    spec, size, now_s = team.model.spec, place.shape[0], 100.0
    contract = make_artefact(name, 0).contract
    contract = contract.replace(arena=team.arena, shield=team.shield, decision_ticks=1)
    parameters = jax.jit(lambda keys: draw_parameters(keys, spec, CHANNELS))(jax.random.split(jax.random.key(4), 1))
    ages = jnp.arange(len(parameters.age_weights)) @ parameters.age_weights
    age_s = float(ages[0]) * spec.control_period_s
    shield = Shield(team.model, team.shield, stop_tube_parameters(spec), team.arena)
    deployment = DeployedTeam(shield, longest_message_ticks=1)
    faults = no_faults(size, 2, 1, driver_ticks=4)
    begin = jax.jit(lambda place, yaw: start_deployed(team, deployment, place, yaw, parameters, faults))
    state = begin(jnp.asarray(place, jnp.float32), jnp.asarray(yaw, jnp.float32))
    advance = jax.jit(lambda state, wanted: tick_deployed(team, deployment, state, wanted, jax.random.key(0)))
    stopping = jax.jit(lambda state: team.model.stopping_point(state.estimate))
    seen = jax.jit(lambda past: measure(team, past, parameters, jax.random.key(0)))
    policies = [Driven(contract) for _ in range(2)]
    loops = [
        ControlLoop(policy, spec, robot=f"r{i}", peers=(f"r{1 - i}",), goal_world=(0.0,) * size, epoch=f"e{i}")
        for i, policy in enumerate(policies)
    ]
    told = list(first_messages(stopping(state), place, contract, now_s))
    measured = MotionState(place, yaw, np.zeros(place.shape))
    rng = np.random.default_rng(1)
    for _ in range(40):
        wanted = 0.3 * rng.standard_normal((size, 2))
        wanted[:2] += [[-1.0, 1.0], [0.3, 0.2]]  # towards each other, and beside
        wanted *= spec.control_point_speed_m_s
        stop, table, estimate = stopping(state), state.table, state.estimate
        state, result = advance(state, jnp.asarray(wanted[..., None], jnp.float32))
        for i, loop in enumerate(loops):
            policies[i].wanted = wanted[:, i]
            loop.on_peer(told[1 - i], now_s)
            position, turned, velocity = (np.asarray(x, float)[..., i, 0].tolist() for x in vars(measured).values())
            loop.on_odometry(now_s - age_s, now_s, tuple(position), turned, tuple(velocity))
        records = [loop.tick(now_s) for loop in loops]
        told = [loop.announcement(now_s) for loop in loops]
        for i, record in enumerate(records):
            assert record.reason == ""
            for simulated, real in (
                (estimate.position_world, record.estimate_position_world),
                (estimate.velocity, record.estimate_velocity),
                (estimate.yaw, record.estimate_yaw),
                (stop.position_world, record.control_point_world),
                (table.control_point_world[:, 0], record.neighbour_control_point_world[0]),
                (table.control_velocity_world[:, 0], record.neighbour_control_velocity_world[0]),
                (table.age_s[0], record.neighbour_age_s[0]),
                (result.control_velocity_world, record.shielded_world),
                (result.command, record.sent_command),
            ):
                assert np.asarray(simulated)[..., i, 0] == pytest.approx(np.asarray(real), abs=2e-4)
        measured = seen(state.past)
        now_s += spec.control_period_s
