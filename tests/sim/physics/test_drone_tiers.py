"""The tiers `attitude` and `rotors`: they are the hardware's models, count contacts at every step, and draw worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import attitude_drone, firmware_controllers, motion_model
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters
from testudo_hardware.motion.firmware_controllers import CascadeParameters
from testudo_hardware.spec import load_robot
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.physics.drone_tier import make_drone_tier
from testudo_sim.physics.world_parameters import Channels, Slots, draw_parameters, uncertain
from testudo_sim.physics_choice import PhysicsChoice, make_physics

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("crazyflie_2x")
MODEL = motion_model(SPEC)
HISTORY = Slots.create(SPEC, Channels()).commands
TIERS = ("attitude", "rotors")


def nominal(worlds, spread=0.0, seed=0):
    keys = jax.random.split(jax.random.key(seed), worlds)
    return jax.jit(lambda keys: draw_parameters(keys, SPEC, Channels(), spread))(keys)


def at(*places):
    """Return positions (3, N, 1)."""
    return np.array(places, np.float32).T[:, :, None]


def flown(tier, place, velocity, ticks, parameters, yaw=None):
    """Return states (T, ...) under velocity commands (3, N, E), sent in every tick."""
    yaw = np.zeros(place.shape[1:], np.float32) if yaw is None else yaw

    def tick(carry, _):
        state, past = carry
        past = jnp.concatenate([velocity[None], past[:-1]])
        state = tier.advance(state, past, parameters)
        return (state, past), (tier.scene(state).robots, tier.watch(state))

    @jax.jit
    def fly(place, yaw):
        begin = (tier.reset(place, yaw, None), jnp.zeros((HISTORY, *place.shape)))
        return jax.lax.scan(tick, begin, length=ticks)[1]

    return jax.tree.map(np.asarray, fly(place, yaw))


@pytest.mark.parametrize("name", TIERS)
def test_a_hover_stays_whatever_the_world(name):
    tier = make_drone_tier(name, MODEL, None)
    place = np.broadcast_to(at((0, 0, 2)), (3, 1, 8))
    motion, _ = flown(tier, place, np.zeros_like(place), 100, nominal(8, 1.0))
    assert float(np.abs(motion.position_world - place).max()) < 2e-3


@pytest.mark.parametrize("name", TIERS)
def test_velocity_commands_in_the_world_are_reached(name):
    tier = make_drone_tier(name, MODEL, None)
    velocity = np.float32([(0.6, 0, 0), (0, -0.6, 0.3), (0, 0, -0.6)]).T[:, None]  # (3, 1, E), one in each world
    place = np.broadcast_to(at((0, 0, 5)), velocity.shape)
    motion, _ = flown(tier, place, velocity, 150, nominal(3), yaw=np.full((1, 3), 0.8, np.float32))
    np.testing.assert_allclose(np.asarray(motion.velocity)[-1], velocity, atol=0.08)
    np.testing.assert_allclose(np.asarray(motion.yaw)[-1], 0.8, atol=0.03)


def test_the_fitted_tier_is_the_hardware_model():
    parameters = AttitudeDroneParameters.from_spec(SPEC)
    cascade = CascadeParameters.from_spec(SPEC)
    velocity, ticks = (0.7, -0.4, 0.3), 25
    tier = make_drone_tier("attitude", MODEL, None)
    motion, _ = flown(tier, at((0, 0, 2)), at(velocity), ticks, nominal(1))
    state = attitude_drone.resting(np.array([[0.0], [0.0], [2.0]]), np.zeros(1), parameters)
    memory = firmware_controllers.settled(cascade, parameters.hover_thrust_n, np.zeros(1))
    late = round(SPEC.attitude["attitude.link_delay"].value / cascade.period_s)
    for run in range(2 * ticks):
        wanted = np.array(velocity)[:, None] / SPEC.speed_scale * (run >= late)  # tiers are given what it tends to
        command, memory = firmware_controllers.attitude_command(cascade, state, memory, wanted, np.zeros(1), 0.01)
        for _ in range(5):
            state = attitude_drone.step(parameters, state, command, 0.002)
    np.testing.assert_allclose(np.asarray(motion.position_world[-1, :, 0]), state.position_world, atol=2e-5)


def test_contacts_and_least_separation_count_at_every_step():
    tier = make_drone_tier("attitude", MODEL, None)
    place = at((-0.5, 0, 2), (0.5, 0, 2.02))
    motion, watch = flown(tier, place, at((1, 0, 0), (-1, 0, 0)), 60, nominal(1))
    closest = float(watch.separation_m.min())
    at_ticks = float(np.linalg.norm(motion.position_world[:, :, 0] - motion.position_world[:, :, 1], axis=1).min())
    assert closest < at_ticks
    assert int(watch.contacts.max()) == 10  # all steps of a tick
    assert int(watch.contacts.sum()) > 10


def test_walls_count_too():
    arena = Arena((-2.0, -2.0, 0.0), (2.0, 2.0, 3.0))
    tier = make_drone_tier("attitude", MODEL, arena)
    _, watch = flown(tier, at((0, 0, 0.5)), at((0, 0, -1)), 60, nominal(1))
    assert int(watch.contacts.sum()) > 0


@pytest.mark.parametrize("name", TIERS)
def test_a_drone_below_another_is_pushed_down(name):
    place = at((0, 0, 2.6), (0, 0, 2.0))
    found = {}
    for downwash in (True, False):
        tier = make_drone_tier(name, MODEL, None, with_downwash=downwash)
        motion, _ = flown(tier, place, np.zeros_like(place), 50, nominal(1))
        found[downwash] = np.asarray(motion.position_world[:, 2, :, 0] - place[2, :, 0])
    assert found[True][:, 1].min() < -0.05
    assert np.abs(found[True][:, 0]).max() < 1e-3
    assert np.abs(found[False]).max() < 1e-3


def test_worlds_differ_within_the_intervals_and_no_further():
    drawn = jax.tree.map(np.asarray, nominal(200, 1.0).drone)
    assert set(drawn) == set(uncertain(SPEC))
    for key, values in drawn.items():
        quantity = uncertain(SPEC)[key]
        slack = 1e-5 * max(abs(quantity.low), abs(quantity.high))
        assert float(values.min()) >= quantity.low - slack
        assert float(values.max()) <= quantity.high + slack
        assert float(values.max() - values.min()) > 0.9 * (quantity.high - quantity.low)
    lag = SPEC.attitude["attitude.thrust_lag"]
    assert lag.high / lag.low == pytest.approx(38, rel=0.02)
    square = SPEC.propellers["propellers.thrust_square"]
    assert (square.high - square.low) / (square.high + square.low) == pytest.approx(0.25, abs=0.01)


def test_nominal_worlds_are_the_file():
    for key, values in nominal(3).drone.items():
        np.testing.assert_allclose(np.asarray(values), uncertain(SPEC)[key].value, rtol=1e-6)


def test_ground_robots_draw_no_drones():
    spec = load_robot("gritsbot_x")
    keys = jax.random.split(jax.random.key(0), 2)
    assert jax.eval_shape(lambda keys: draw_parameters(keys, spec, Channels()), keys).drone is None


def test_what_cannot_fly_is_refused():
    with pytest.raises(TestudoError, match=r"--physics attitude: gritsbot_x is no drone"):
        make_physics(PhysicsChoice("attitude"), motion_model(load_robot("gritsbot_x")), None, 2)
    with pytest.raises(TestudoError, match=r"--physics rotors: this scenario has boxes that robots push"):
        make_physics(PhysicsChoice("rotors"), MODEL, None, 2, (Box("b", (0.1, 0.1, 0.1), 0.1),))


def test_a_team_may_begin_in_flight():
    tier = make_drone_tier("attitude", MODEL, None)
    place, velocity = at((0, 0, 2)), at((0.5, 0, 0))
    state = tier.reset(place, jnp.zeros((1, 1)), None, velocity)
    np.testing.assert_allclose(np.asarray(tier.scene(state).robots.velocity), np.asarray(velocity))
