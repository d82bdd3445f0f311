"""Speed lost in turns: one law in model, simulation and plant, none for robots without it, margins that hold it."""

import copy
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.monitoring.actuation_monitor import actuation_limits
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import RETREAT_SHARE
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_model import apply_turn_slip, effective_command, slip_ratio, turn_slip_m_s
from testudo_hardware.spec import load_robot, parse_robot, robot_files
from testudo_plant.worlds.world_builder import PlantParameters
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team.team_tick import SimulatedTeam, start, tick

pytestmark = pytest.mark.usefixtures("quick")

SLIP = 2.0


def slipping(name="irobot_create", value=SLIP, low=1.6, high=2.4, **scales):
    """Return a robot with a turn slip, and other scales than one if given."""
    tables = copy.deepcopy(tomllib.loads(robot_files()[name].read_text()))
    tables["dynamics"]["turn_slip"] = {"value": value, "unit": "s/rad", "source": "test", "interval": [low, high]}
    for key, scale in scales.items():
        tables["dynamics"][key] |= {"value": scale, "interval": [scale - 0.02, scale + 0.02]}
    return parse_robot(tables, "slipping")


def test_forward_speed_is_lost_in_turns_and_only_there():
    model = motion_model(slipping())
    command = np.array([[0.1, 0.1, 0.1, -0.1], [0.0, 0.5, -0.5, 0.5]])
    found = effective_command(model, command)
    assert np.allclose(found[0], [0.1, 0.05, 0.05, -0.05])  # half at 1/k
    assert np.array_equal(found[1], command[1])
    plain = motion_model(load_robot("irobot_create"))
    assert apply_turn_slip(command, plain.spec) is command
    assert apply_turn_slip(command, load_robot("crazyflie_2x")) is command


def test_the_loss_is_bounded_by_what_the_margins_take():
    spec = slipping()
    rng = np.random.default_rng(0)
    command = motion_model(spec).limit_command(rng.uniform(-1, 1, (2, 20000)) * [[0.6], [4.0]])
    for slip in (0.0, 1.6, 2.4):
        lost = np.abs(command[0]) * (1 - 1 / (1 + (slip * command[1]) ** 2))
        assert lost.max() * spec.quantities["dynamics.speed_scale"].high <= turn_slip_m_s(spec) * (1 + 1e-5)
    low, high = slip_ratio(spec)
    described, least, most = (1 / (1 + (k * command[1]) ** 2) for k in (SLIP, 2.4, 1.6))
    assert np.all(least / described >= low - 1e-12)
    assert np.all(most / described <= high + 1e-12)


def test_margins_and_watches_widen_and_without_slip_are_what_they_were():
    plain, slips = load_robot("irobot_create"), slipping()
    before, after = projection_parameters(plain), projection_parameters(slips)
    assert [term.name for term in after.terms] == [*(term.name for term in before.terms), "turn slip"]
    assert after.separation_m > before.separation_m + 2 * 0.9 * turn_slip_m_s(slips) * plain.command_delay_s
    assert after.wall_m > before.wall_m
    assert np.isclose(sum(term.value_m for term in after.terms), after.separation_m)
    assert stop_tube_parameters(slips).tube_error_m > stop_tube_parameters(plain).tube_error_m
    ours, theirs = (actuation_limits(spec, np.zeros(1)) for spec in (slips, plain))
    assert ours.low[0, 0] < theirs.low[0, 0]
    assert ours.high[0, 0] > theirs.high[0, 0]
    assert turn_slip_m_s(plain) == 0
    assert slip_ratio(plain) == (1.0, 1.0)


def test_a_retreat_can_be_less_than_what_a_turn_costs():
    """Why docs/shield.md says of robots that slip that they are tested, not proven; if it fails, that changes."""
    slips = slipping()
    retreat_m_s = RETREAT_SHARE * slips.control_point_speed_m_s
    assert retreat_m_s == pytest.approx(0.15, abs=0.001)
    assert turn_slip_m_s(slips) == pytest.approx(0.294, abs=0.001)


def test_worlds_draw_scales_and_slip_over_the_described_ones():
    """A robot file with scales that are not one moves by its scale once: at no spread, exactly as described."""
    spec = slipping(speed_scale=1.04, turn_scale=0.93)
    keys = jax.random.split(jax.random.key(0), 64)
    nominal = jax.jit(lambda keys: draw_parameters(keys, spec, Channels(), spread=0.0))(keys)
    assert np.allclose(nominal.scale, 1.0)
    model = motion_model(spec)
    physics = KinematicPhysics(model, None)
    command = jnp.full((2, 1, 64), 0.3).at[0].set(0.1)

    @jax.jit
    def driven(keys):
        parameters = draw_parameters(keys, spec, Channels())
        sent = jnp.broadcast_to(effective_command(model, command), (parameters.delay_weights.shape[0], 2, 1, 64))
        state = physics.reset(jnp.zeros((2, 1, 64)), jnp.zeros((1, 64)), None)
        return parameters, jax.lax.fori_loop(0, 40, lambda _, at: physics.advance(at, sent, parameters), state)

    parameters, state = driven(keys)
    slip = np.asarray(parameters.turn_slip[1]) * spec.turn_scale
    assert 1.6 <= slip.min() < 1.7
    assert 2.3 < slip.max() <= 2.4 + 1e-6
    wanted = 0.1 * 1.04 * np.asarray(parameters.scale[0]) / (1 + (slip * 0.3) ** 2)
    assert np.allclose(state.velocity[0, 0], wanted, rtol=2e-3)
    plain = load_robot("irobot_create")
    assert jax.eval_shape(lambda keys: draw_parameters(keys, plain, Channels()), keys).turn_slip is None


def test_the_plant_draws_it_within_its_interval():
    spec = slipping()
    assert PlantParameters.nominal(spec).turn_slip_s_rad == SLIP
    drawn = [PlantParameters.sample(spec, np.random.default_rng(k), 0.5).turn_slip_s_rad for k in range(50)]
    assert 1.6 <= min(drawn) < max(drawn) <= 2.4
    assert PlantParameters.nominal(load_robot("crazyflie_2x")).turn_slip_s_rad == 0.0


@pytest.mark.parametrize("slip", [(2.0, 1.6, 2.4), pytest.param((0.4, 0.0, 0.8), marks=pytest.mark.slow)])
def test_shielded_robots_that_slip_never_touch(slip):
    """Four robots that want through one another, any slip, lag, delay and scale of their intervals: no contact."""
    spec = slipping(value=slip[0], low=slip[1], high=slip[2])
    model, shield = motion_model(spec), projection_parameters(spec)
    channels = Channels()
    team = SimulatedTeam(model, shield, None, KinematicPhysics(model, None), 4, channels)
    worlds = 16
    corners = 1.3 * shield.separation_m * jnp.array([[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0]])
    place = jnp.broadcast_to(corners[..., None], (2, 4, worlds))
    yaw = jax.random.uniform(jax.random.key(2), (4, worlds), minval=-3.0, maxval=3.0)

    def drive(state, key):
        bend, noise = jax.random.split(key)
        away = jax.random.normal(noise, (2, 4, worlds))
        where = state.estimate.position_world
        wanted = 0.5 * (-where / (jnp.linalg.norm(where, axis=0) + 1e-6) + 0.7 * away)
        state, _ = tick(team, state, wanted, bend)
        return state, team.physics.watch(state.physics).separation_m

    @jax.jit
    def everything(keys):
        state = start(team, place, yaw, draw_parameters(keys, spec, channels))
        return jax.lax.scan(drive, state, jax.random.split(jax.random.key(3), 400))[1]

    least = everything(jax.random.split(jax.random.key(1), worlds))
    assert float(jnp.min(least)) > 2 * spec.body_radius_m
    assert float(jnp.median(least[-1])) < 2.2 * shield.separation_m  # they did come together
