"""Batteries in the tiers: one law with the plant, and thrust that falls with the voltage."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters
from testudo_hardware.motion.battery import HOVER_S, minimum_charge
from testudo_hardware.spec import load_robot
from testudo_plant.plant.drone_fleet import Battery, DroneOptions
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_sim.environment import Environment
from testudo_sim.physics.drone_bodies import Batteries
from testudo_sim.physics.drone_tier import make_drone_tier
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, Slots, draw_parameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.scenario import make_scenario
from testudo_sim.team.team_tick import SimulatedTeam

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("crazyflie_2x")
MODEL = motion_model(SPEC)
HISTORY = Slots.create(SPEC, Channels()).commands
TIERS = ("attitude", "rotors", "mujoco")
STEEP = SPEC.rotors["rotors.thrust_most_per_volt"].high


def world(charge, slope=STEEP):
    """Return a nominal world but for how thrust falls with the voltage, with one drone of this charge."""
    drawn = nominal().drone | {"rotors.thrust_most_per_volt": np.full(1, slope, np.float32)}
    return replace(nominal(), drone=drawn, charge=np.full((1, 1), charge, np.float32))


@cache
def nominal():
    """Return the parameters of a nominal world."""
    return jax.jit(lambda: draw_parameters(jax.random.split(jax.random.key(0), 1), SPEC, Channels(), 0.0))()


def tier_of(name, battery):
    if name == "mujoco":
        return make_physics(PhysicsChoice(name, battery=battery), MODEL, None, 1)
    return make_drone_tier(name, MODEL, None, with_battery=battery)


def flight(tier, climb, ticks):
    """Return a program that gives the state of drones of any parameters after ticks of a climb [m/s] from 2 m."""

    @jax.jit
    def fly(parameters):
        sent = jnp.broadcast_to(jnp.array([0.0, 0.0, climb])[:, None, None], (HISTORY, 3, 1, 1))
        state = tier.reset(jnp.array([0.0, 0.0, 2.0])[:, None, None], jnp.zeros((1, 1)), None)
        return jax.lax.scan(lambda state, _: (tier.advance(state, sent, parameters), None), state, length=ticks)[0]

    return fly


def height(tier, state):
    return float(tier.scene(state).robots.position_world[2, 0, 0])


@pytest.mark.parametrize("name", TIERS)
def test_a_nearly_empty_battery_makes_a_fast_climb_slower_and_a_full_one_does_not(name):
    without, tier = tier_of(name, battery=False), tier_of(name, battery=True)
    climb = flight(tier, 1.0, 25)
    free = height(without, flight(without, 1.0, 25)(world(1.0)))
    full, low = (height(tier, climb(world(charge))) for charge in (1.0, minimum_charge(SPEC)))
    assert full == pytest.approx(free, abs=1e-6)
    assert 0.003 < free - low < 0.05


@pytest.mark.parametrize("name", TIERS)
def test_plant_and_tier_drain_alike_in_hover(name):
    seconds = 2.0
    plant = Plant([PlantRobot("r0", SPEC, (0.0, 0.0, 2.0), 0.0)], None, 0, 0.0, drones=DroneOptions(downwash=False))
    while plant.time_s < seconds - 1e-9:
        now_s = plant.time_s + SPEC.control_period_s
        plant.step_to(now_s)
        plant.command("r0", (0.0, 0.0, 0.0), now_s, now_s)
    state = flight(tier_of(name, battery=True), 0.0, round(seconds / SPEC.control_period_s))(world(1.0))
    assert float(state.used[0, 0]) == pytest.approx(1 - plant.charge("r0"), rel=5e-3)
    assert float(state.used[0, 0]) == pytest.approx(seconds / HOVER_S, rel=2e-3)


def test_numpy_of_the_plant_and_jax_of_the_tiers_agree():
    hover_n = float(AttitudeDroneParameters.from_spec(SPEC).hover_thrust_n)
    battery, used = Battery(SPEC, hover_n), np.zeros((1, 1), np.float32)
    many = Batteries.create(SPEC, hover_n, world(1.0, SPEC.rotors["rotors.thrust_most_per_volt"].value))
    use = jax.jit(lambda thrust_n, used: many.use(thrust_n, used, 1.0))
    for thrust_n in np.linspace(-0.1, 2.0, 200) * hover_n:
        battery.use(thrust_n, 1.0)
        thrusts = np.full((1, 1), thrust_n, np.float32)
        most, after = use(thrusts, used)
        shown, _ = use(thrusts, after)
        assert float(shown[0, 0]) == pytest.approx(battery.thrust_most_n, rel=1e-4)
        assert float(most[0, 0]) >= float(shown[0, 0])
        assert 1 - float(after[0, 0]) == pytest.approx(battery.charge, abs=1e-4)
        used = after


def test_an_empty_battery_stays_empty():
    many = Batteries.create(SPEC, 0.33, world(0.2))
    use = jax.jit(lambda used: many.use(jnp.full((1, 1), 0.33), used, 0.01))
    empty, _ = use(np.full((1, 1), 0.2, np.float32))
    more, _ = use(np.full((1, 1), 0.9, np.float32))
    assert float(more[0, 0]) == float(empty[0, 0])
    full = replace(world(0.2), charge=None)
    assert Batteries.create(SPEC, 0.33, full).charge == 1.0


def environment(physics, size=3):
    shield = projection_parameters(SPEC)
    scenario = make_scenario("swap", SPEC, shield)
    return Environment(scenario, SimulatedTeam(MODEL, shield, scenario.arena, physics, size))


def test_every_drone_of_every_world_begins_with_a_charge_of_its_own():
    keys, least = jax.random.split(jax.random.key(0), 400), minimum_charge(SPEC)

    def parameters_of(one, keys):
        return jax.jit(lambda keys: one.reset(keys).team.parameters)(keys)

    drawn = parameters_of(environment(make_drone_tier("attitude", MODEL, None, with_battery=True)), keys)
    charge = np.asarray(drawn.charge)
    assert charge.shape == (3, 400)
    assert least < charge.min() < least + 0.01
    assert 0.99 < charge.max() <= 1
    assert len(np.unique(charge)) > 1190
    plain = parameters_of(environment(KinematicPhysics(MODEL, None)), keys)
    assert plain.charge is None
    for key, values in plain.drone.items():  # what else a seed draws stays
        np.testing.assert_array_equal(np.asarray(values), np.asarray(drawn.drone[key]))
    spread = replace(environment(make_drone_tier("attitude", MODEL, None, with_battery=True)), spread=0.0)
    assert (np.asarray(parameters_of(spread, keys[:4]).charge) == 1).all()


@pytest.mark.parametrize(
    ("tier", "spec", "said"),
    [
        ("kinematic", SPEC, "--physics kinematic has no batteries"),
        ("mujoco", load_robot("gritsbot_x"), r"gritsbot_x has no \[attitude\]"),
        ("attitude", replace(SPEC, rotors={}), r"crazyflie_2x has no \[rotors\]"),
        ("rotors", replace(SPEC, power={}), r"crazyflie_2x has no \[power\]"),
    ],
)
def test_what_has_no_battery_is_refused_in_one_sentence(tier, spec, said):
    with pytest.raises(TestudoError, match=f"^--battery: {said}.*; .*leave --battery out$"):
        make_physics(PhysicsChoice(tier, battery=True), motion_model(spec), None, 2)
