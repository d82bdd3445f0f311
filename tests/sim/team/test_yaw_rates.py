"""Drones that are told to turn: every tier, the plant and the simulated Crazyflie turn at the rate, and fly on."""

import dataclasses
import math
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.crazyflie.closed_loop import Loop
from tests.deploy.tiny_policy import make_tiny_policy
from tests.sim.deployed_team import QUICK, begin, deployed
from tests.sim.recorded_run import record_run

from testudo_analysis.replay import TOLERANCE, reinfer
from testudo_analysis.replay.counterfactual import _checked_goal, deployed_team
from testudo_crazyflie.firmware.commanders import decode_set_point
from testudo_crazyflie.firmware.crtp_packets import GENERIC, Packet
from testudo_deploy.contract.command_types import CommandTypeError
from testudo_deploy.contract.contract import ATTITUDE_THRUST
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import Arena, ShieldStatus
from testudo_hardware.links.crazyflie.vehicle_messages import compressed
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_plant.plant.driver import CommandVerdict
from testudo_plant.plant.drone_fleet import DroneOptions
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_sim.go_to_goal import write_go_to_goal_policy
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, Slots, draw_parameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.team.deployed_team import tick_deployed
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.team_tick import SimulatedTeam, start, tick

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("crazyflie_2x")
MODEL = motion_model(SPEC)
RATE, LIMIT, PERIOD = 0.6, SPEC.yaw_rate_limit_rad_s, SPEC.control_period_s
WAY = (0.2, 0.1, 0.05)


def team_on(physics, *, turns=True, size=2):
    return SimulatedTeam(
        MODEL,
        projection_parameters(SPEC),
        None,
        physics,
        size,
        Channels(noise_share=0.0),
        yaw_rate_limit=LIMIT if turns else 0.0,
    )


def flown(team, rows, ticks, *, spread=0.0):
    """Return what the first of two drones far apart does (T, ..., E) under one command per world; rows (A, E)."""
    rows = jnp.asarray(rows, jnp.float32)
    worlds = rows.shape[1]
    place = jnp.broadcast_to(jnp.array([[0.0, 0.0, 2.0], [0.0, 9.0, 2.0]]).T[..., None], (3, team.size, worlds))
    command = jnp.broadcast_to(rows[:, None], (rows.shape[0], team.size, worlds))

    def step(state, key):
        state, result = tick(team, state, command, key)
        motion = team.physics.scene(state.physics).robots
        return state, (motion.position_world, motion.yaw, state.estimate.yaw, result.control_velocity_world)

    def run(key):
        parameters = draw_parameters(jnp.stack([jax.random.key(0)] * worlds), SPEC, team.channels, spread)
        state = start(team, place, jnp.zeros((team.size, worlds)), parameters)
        return jax.lax.scan(step, state, jax.random.split(key, ticks))[1]

    found = jax.jit(run, compiler_options=QUICK)(jax.random.key(1))
    return [np.asarray(part, float)[..., 0, :] for part in found]


TURNING = np.array([[*WAY, RATE], [*WAY, -RATE], [*WAY, 9.0], [*WAY, 0.0]]).T
"""To both sides, beyond the limit, and not at all; one in each world."""
EXPECTED = np.array([RATE, -RATE, LIMIT, 0.0])


def test_the_kinematic_tier_turns_at_the_rate_after_the_delay_and_flies_the_same_way():
    place, yaw, seen, shielded = flown(team_on(KinematicPhysics(MODEL, None)), TURNING, 100)
    np.testing.assert_allclose(yaw[-1] - yaw[-51], 50 * PERIOD * EXPECTED, atol=1e-4)
    late_s = (100 * PERIOD * EXPECTED[0] - yaw[-1, 0]) / RATE
    assert SPEC.command_delay_s - PERIOD <= late_s <= SPEC.command_delay_s + PERIOD
    np.testing.assert_array_equal(place - place[..., -1:], 0.0)  # not a hair off the one that does not turn
    np.testing.assert_array_equal(shielded - shielded[..., -1:], 0.0)
    assert 0.5 < seen[-1, 0] < yaw[-1, 0] + 1e-6  # what the policy reads turns, as old as the pose


def test_a_team_that_does_not_turn_moves_as_the_same_velocities_do():
    turning = flown(team_on(KinematicPhysics(MODEL, None)), TURNING[:, :1], 40)[0]
    plain = flown(team_on(KinematicPhysics(MODEL, None), turns=False), TURNING[:3, :1], 40)[0]
    np.testing.assert_allclose(turning, plain, atol=1e-6)


@pytest.mark.parametrize("name", ["attitude", pytest.param("rotors", marks=pytest.mark.slow)])
def test_a_drone_with_an_attitude_turns_at_the_rate_and_goes_where_it_is_told(name):
    """Its heading follows that of the controller, 2 zeta / w = 0.12 s behind; the velocity stays one in the world."""
    physics = make_physics(PhysicsChoice(name), MODEL, None, 2)
    place, yaw, *_ = flown(team_on(physics), TURNING, 100)
    turned = np.unwrap(yaw, axis=0)
    # the integrators of the firmware's attitude loop (rotors) are a little ahead in the first seconds
    np.testing.assert_allclose(turned[-1] - turned[-51], 50 * PERIOD * EXPECTED, atol=0.04)
    assert np.abs(place - place[..., -1:]).max() < 0.03


def braked_from_speed(tier, rate, worlds=16):
    """Return where drones are (3, E) a second after their velocity of 1 m/s was taken back; they turn all the while."""
    slots = Slots.create(SPEC, Channels()).commands

    def run(rate):
        parameters = draw_parameters(jax.random.split(jax.random.key(0), worlds), SPEC, Channels(), 1.0)
        speed = jnp.broadcast_to(jnp.array([0.97, 0.0, 0.0])[:, None, None], (3, 1, worlds))

        def step(carry, moves):
            state, sent, turns = carry
            sent = jnp.concatenate([(moves * speed)[None], sent[:-1]])
            state = tier.advance(state, sent, parameters, turns)
            return (state, sent, turns), None

        begin = (
            tier.reset(jnp.zeros_like(speed), jnp.zeros((1, worlds)), None),
            jnp.zeros((slots, *speed.shape)),
            jnp.full((slots, 1, worlds), rate),
        )
        moves = (jnp.arange(125) < 75).astype(jnp.float32)
        return tier.scene(jax.lax.scan(step, begin, moves)[0][0]).robots.position_world[:, 0]

    return np.asarray(jax.jit(run, compiler_options=QUICK)(rate), float)


def test_a_turn_leads_no_drawn_drone_out_of_its_tube():
    """Its tilt follows late, in a frame that turns: the brake points aside by the rate times that lag."""
    tier = make_physics(PhysicsChoice("attitude"), MODEL, None, 1)
    still = braked_from_speed(tier, 0.0)
    for rate in (LIMIT, -LIMIT):
        off = braked_from_speed(tier, rate) - still
        assert np.abs(off).max() < 0.25 * stop_tube_parameters(SPEC).tube_error_m, np.abs(off).max(axis=1)


@pytest.mark.slow
def test_mujoco_turns_it_too():
    physics = make_physics(PhysicsChoice("mujoco"), MODEL, None, 2)
    place, yaw, *_ = flown(team_on(physics), TURNING, 100)
    np.testing.assert_allclose(yaw[-1] - yaw[-51], 50 * PERIOD * EXPECTED, atol=0.03)
    assert np.abs(place - place[..., -1:]).max() < 0.03


@pytest.mark.slow
def test_the_deployed_tick_turns_it_believes_its_poses_and_ends_the_turn_of_a_braked_one():
    team, deployment = deployed("crazyflie_2x", 2)
    team = dataclasses.replace(team, yaw_rate_limit=LIMIT)
    place = np.zeros((3, 2, 1))
    place[1, 1], place[2] = 5.0, 2.0
    state = begin(team, deployment, place, np.zeros((2, 1)), no_faults(3, 2, 1, driver_ticks=6))
    step = jax.jit(lambda *given: tick_deployed(team, deployment, *given), compiler_options=QUICK)
    command = jnp.zeros((4, 2, 1)).at[3].set(LIMIT)
    for k in range(60):
        state, result = step(state, command, jax.random.key(k))
    assert bool(state.located.all())
    assert float(state.physics.yaw.min()) > 0.8
    for k in range(3):
        state = dataclasses.replace(state, weak=state.weak.at[0].set(True))
        state, result = step(state, command, jax.random.key(k))
    assert int(result.status[0, 0]) == ShieldStatus.BRAKED
    assert float(state.turns[0, 0, 0]) == 0.0
    assert float(state.turns[0, 1, 0]) == pytest.approx(LIMIT)


# ---- the plant


def plant_of(*, seed=0, spread=0.0):
    return Plant(
        [PlantRobot("r0", SPEC, (0.0, 0.0, 1.5), 0.0)],
        Arena((-4.0, -4.0, 0.0), (4.0, 4.0, 3.0)),
        seed,
        spread,
        drones=DroneOptions(downwash=False),
    )


def fly(plant, velocity, rate, duration_s):
    seen = []
    for _ in range(round(duration_s / PERIOD)):
        now_s = plant.time_s + PERIOD
        plant.step_to(now_s)
        plant.command("r0", velocity, now_s, now_s, rate)
        seen.append((*plant.truth("r0").position_world, plant.truth("r0").yaw))
    found = np.array(seen)
    found[:, 3] = np.unwrap(found[:, 3])
    return found


@pytest.mark.parametrize("rate", [RATE, pytest.param(-RATE, marks=pytest.mark.slow)])
def test_the_plant_turns_at_the_rate_and_keeps_the_velocity_in_the_world(rate):
    """More than half a turn, so that a velocity that turned with it would come back."""
    plant = plant_of()
    found, straight = (fly(one, (0.2, 0.0, 0.0), turn, 6.0) for one, turn in ((plant, rate), (plant_of(), 0.0)))
    assert found[-1, 3] - found[-101, 3] == pytest.approx(2.0 * rate, abs=0.03)
    assert abs(found[-1, 3]) > math.pi
    assert np.abs(found[:, :3] - straight[:, :3]).max() < 0.05
    assert straight[-1, 0] > 1.0
    assert plant.applied("r0").yaw_rate == rate
    assert plant.contacts == ()


def test_the_plant_clips_the_rate_ends_it_in_silence_and_refuses_what_is_no_number():
    plant = plant_of()
    assert plant.command("r0", (0.0, 0.0, 0.0), 0.0, 0.0, math.nan) is CommandVerdict.REFUSED_NON_FINITE
    found = fly(plant, (0.0, 0.0, 0.0), 5.0, 2.0)
    assert found[-1, 3] - found[-51, 3] == pytest.approx(LIMIT, abs=0.03)
    plant.step_to(plant.time_s + 1.0)  # the app on board brakes, and turns no more
    assert plant.applied("r0").yaw_rate == 0.0
    before = plant.truth("r0").yaw
    plant.step_to(plant.time_s + 1.0)
    assert plant.truth("r0").yaw == pytest.approx(before, abs=0.01)


# ---- the simulated Crazyflie


@pytest.mark.parametrize("as_point", [True, False])
def test_the_simulated_crazyflie_turns_anticlockwise_for_a_positive_rate(as_point):
    flight = Loop(as_point=as_point).fly()
    flight.command, flight.yaw_rate = (0.2, 0.0, 0.0), RATE
    flight.run(1.0)
    before, start_m = flight.craft.vehicle.yaw, flight.craft.vehicle.position.copy()
    flight.run(2.0)
    turned = math.remainder(flight.craft.vehicle.yaw - before, 2 * math.pi)
    assert turned == pytest.approx(2.0 * RATE, abs=0.05)
    way = flight.craft.vehicle.position - start_m
    assert way[0] == pytest.approx(0.4, abs=0.06)
    assert abs(way[1]) < 0.03


@pytest.mark.parametrize(("kind", "sign"), [(1, -1), (8, 1)])
def test_the_old_packet_of_the_firmware_counts_clockwise(kind, sign):
    """Which is the one that the C++ server of Crazyswarm2 sends; hence `degrees_clockwise` of a link profile."""
    packet = Packet(GENERIC, 0, struct.pack("<Bffff", kind, 0.1, 0.0, 0.0, 90.0))
    assert decode_set_point(packet).yaw_rate == pytest.approx(sign * math.pi / 2)


def test_a_full_state_says_heading_and_rate():
    turn = compressed((0.0, 0.0, math.sin(0.4), math.cos(0.4)))
    packet = Packet(GENERIC, 0, struct.pack("<BhhhhhhhhhIhhh", 6, *[0] * 9, turn, 0, 0, 500))
    found = decode_set_point(packet)
    assert found.yaw == pytest.approx(0.8, abs=0.01)
    assert found.yaw_rate == pytest.approx(0.5)


# ---- replay


@pytest.fixture(scope="module")
def turning(tmp_path_factory):
    path = tmp_path_factory.mktemp("turning") / "policy.onnx"
    write_go_to_goal_policy(path, SPEC, yaw_rate=RATE)
    return PolicyArtefact.load(path, robot=SPEC)


def test_a_run_with_yaw_rates_infers_again_and_a_changed_one_does_not(turning):
    run = record_run(turning, SPEC, seconds=1.5, noise_m=0.001)
    result = reinfer(run, turning)
    assert result.passed
    assert result.error <= TOLERANCE
    moved = [tick for tick in run.ticks["r0"] if not tick.reason]
    assert moved
    np.testing.assert_allclose([tick.sent_yaw_rate for tick in moved], RATE, atol=1e-6)
    for field in ("sent_yaw_rate", "nominal_yaw_rate"):
        changed = tuple(
            dataclasses.replace(one, **{field: getattr(one, field) + 1e-3}) if one is moved[-1] else one
            for one in run.ticks["r0"]
        )
        assert not reinfer(dataclasses.replace(run, ticks={**run.ticks, "r0": changed}), turning).passed


def test_a_yaw_rate_in_the_record_of_a_policy_without_one_is_found(tmp_path):
    make_tiny_policy(tmp_path / "policy.onnx", SPEC)
    artefact = PolicyArtefact.load(tmp_path / "policy.onnx")
    run = record_run(artefact, SPEC, seconds=0.5)
    changed = tuple(dataclasses.replace(one, sent_yaw_rate=1e-3) for one in run.ticks["r0"])
    assert not reinfer(dataclasses.replace(run, ticks={**run.ticks, "r0": changed}), artefact).passed


def test_a_counterfactual_turns_the_drones_and_refuses_what_no_shield_checks(turning):
    contract = turning.contract
    team, _ = deployed_team(SPEC, contract.shield, contract.arena, 2, contract.command, shielded=True)
    assert team.yaw_rate_limit == contract.command.limits[0][1] > 0

    class Story:
        spec = SPEC

    other = dataclasses.replace(contract.command, type=ATTITUDE_THRUST)
    bare = dataclasses.replace(turning, contract=contract.replace(command=other))
    with pytest.raises(CommandTypeError, match=r"found a policy of command\.type 'attitude"):
        _checked_goal(Story(), bare, np.zeros((3, 1)))
