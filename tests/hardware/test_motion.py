"""Motion models against closed forms, fine roll-outs and finite differences, on three libraries."""

import dataclasses
import math

import numpy as np
import pytest

from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import (
    actuator_command,
    control_velocity,
    effective_command,
)
from testudo_hardware.motion.motion_state import matrix_vector
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot, robot_files

ROBOTS = sorted(robot_files())
WHEELED = [name for name in ROBOTS if load_robot(name).kind == DIFFERENTIAL_DRIVE]
POINTS = [name for name in ROBOTS if name not in WHEELED]
PURE_LAG = ("gritsbot_x",)
"""Robots whose acceleration limit cannot be reached; for the others exactness holds at low speed."""
COUNT = 200


def roll_out(model, state, effective, responses):
    """Return the state after effective commands, oldest first, each for its time."""
    for command, response in zip(effective, responses, strict=True):
        state = model.step(state, command, response)
    return state


def pure_lag(name):
    """Return the robot with an acceleration limit that it never reaches."""
    spec = load_robot(name)
    return dataclasses.replace(spec, acceleration_limit_m_s2=1e3, turn_acceleration_limit_rad_s2=1e4)


def library_state(state, asarray):
    return MotionState(*(asarray(value) for value in (state.position_world, state.yaw, state.velocity)))


def rest_by_roll_out(model, state, step_s=2e-4, duration_s=4.0):
    """Return the state at rest after many small steps under zero command."""
    response = LagResponse.create(np.array(step_s), np.array(model.spec.velocity_lag_s))
    zero = np.zeros_like(state.velocity)
    for _ in range(round(duration_s / step_s)):
        state = model.step(state, zero, response)
    return state


def point_ahead(model, state):
    """Return the control point of a robot at rest."""
    if model.spec.name in POINTS:
        return state.position_world
    heading = np.stack([np.cos(state.yaw), np.sin(state.yaw)])
    return state.position_world + model.spec.look_ahead_m * heading


@pytest.mark.parametrize("name", ROBOTS)
def test_one_body_on_every_array_library(name, asarray, make_states):
    spec = load_robot(name)
    model, state = motion_model(spec), make_states(spec, COUNT)
    rng = np.random.default_rng(1)
    wanted = rng.uniform(-1, 1, (spec.dimension, COUNT)) * spec.control_point_speed_m_s
    duration = rng.uniform(0, 2 * spec.control_period_s, COUNT)

    def everything(make):
        here = library_state(state, make)
        response = LagResponse.create(make(duration), make(np.full(COUNT, spec.velocity_lag_s)))
        stop = model.stopping_point(here)
        rows = model.limit_rows(stop)
        command = actuator_command(model, stop, make(wanted))
        moved = model.step(here, effective_command(model, command), response)
        share = model.braking_share(stop, make(wanted))
        return [
            *vars(stop).values(),
            *vars(moved).values(),
            *vars(response).values(),
            command,
            *(rows or ()),
            *([] if share is None else [share]),
            model.limit_command(make(wanted)),
            control_velocity(model, stop, command),
        ]

    expected = everything(np.asarray)
    got = everything(asarray)
    assert len(got) == len(expected)
    for ours, theirs in zip(expected, got, strict=True):
        assert np.asarray(theirs) == pytest.approx(np.asarray(ours), abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("ratio", [1e-6, 5e-3, 1e-2, 1.1e-2, 0.3, 1.0, 10.0])
def test_the_lag_response_is_the_exact_exponential(ratio):
    """v(t) = c + (v0 - c) exp(-t / lag), and its mean over the step in closed form."""
    lag, start, command = 0.08, 0.15, -0.05
    duration = ratio * lag
    response = LagResponse.create(np.array(duration), np.array(lag))
    change = response.gain * (command - start)
    assert start + change == pytest.approx(command + (start - command) * math.exp(-ratio), abs=1e-15)
    way = command * duration + (start - command) * lag * -math.expm1(-ratio)
    # below a ratio of 0.01 a series is used, whose first error is ratio**3 / 720
    assert duration * (start + response.mean_share * change) == pytest.approx(way, rel=1e-7)


def test_no_time_changes_nothing():
    response = LagResponse.create(np.array(0.0), np.array(0.08))
    assert (response.gain, response.mean_share) == (0, 0.5)


@pytest.mark.parametrize("name", ROBOTS)
def test_two_halves_of_a_step_are_one_for_the_pure_lag(name, make_states):
    spec = pure_lag(name)
    model, state = motion_model(spec), make_states(spec, COUNT)
    if name in WHEELED:
        state = MotionState(state.position_world, state.yaw, state.velocity * np.array([[1.0], [0.0]]))
    command = np.zeros((spec.dimension, COUNT))
    command[0] = 0.5 * spec.speed_limit_m_s
    lag = np.array(spec.velocity_lag_s)
    whole = LagResponse.create(np.array(spec.control_period_s), lag)
    half = LagResponse.create(np.array(spec.control_period_s / 2), lag)
    once = model.step(state, command, whole)
    twice = roll_out(model, state, [command, command], [half, half])
    for one, two in zip(vars(once).values(), vars(twice).values(), strict=True):
        assert two == pytest.approx(one, abs=1e-12)


@pytest.mark.parametrize("name", WHEELED)
def test_two_halves_of_a_turning_step_differ_only_in_second_order(name, make_states):
    """Velocity and yaw are exact; the arc at the mean turn rate is not, by less than 0.1 mm a tick."""
    spec = pure_lag(name)
    model, state = motion_model(spec), make_states(spec, COUNT)
    command = model.limit_command(make_states(spec, COUNT, seed=2).velocity)
    lag = np.array(spec.velocity_lag_s)
    whole = LagResponse.create(np.array(spec.control_period_s), lag)
    half = LagResponse.create(np.array(spec.control_period_s / 2), lag)
    once = model.step(state, command, whole)
    twice = roll_out(model, state, [command, command], [half, half])
    assert twice.velocity == pytest.approx(once.velocity, abs=1e-12)
    assert twice.yaw == pytest.approx(once.yaw, abs=1e-12)
    assert twice.position_world == pytest.approx(once.position_world, abs=3e-4)


def test_a_steady_arc_is_the_circle_of_radius_speed_over_turn_rate():
    """v 0.1 m/s, omega 2 rad/s, 0.2 s: radius 0.05 m, angle 0.4 rad, from yaw 90 degrees."""
    spec = load_robot("gritsbot_x")
    model = motion_model(spec)
    velocity = np.array([0.1, 2.0])
    state = MotionState(np.array([1.0, 2.0]), np.array(math.pi / 2), velocity)
    response = LagResponse.create(np.array(0.2), np.array(spec.velocity_lag_s))
    after = model.step(state, velocity, response)
    expected = [1.0 - 0.05 * (1 - math.cos(0.4)), 2.0 + 0.05 * math.sin(0.4)]
    assert after.position_world == pytest.approx(expected, abs=1e-9)
    assert after.yaw == pytest.approx(math.pi / 2 + 0.4)
    assert after.velocity == pytest.approx(velocity)


@pytest.mark.parametrize("name", ROBOTS)
def test_turning_the_world_turns_the_motion(name, make_states):
    """Frames: a robot turned by 90 degrees does the same, turned by 90 degrees."""
    spec = load_robot(name)
    model, state = motion_model(spec), make_states(spec, COUNT)

    def quarter(vector):
        return np.stack([-vector[1], vector[0], *vector[2:]])

    body = name in WHEELED
    turned = MotionState(
        quarter(state.position_world),
        state.yaw + math.pi / 2,
        state.velocity if body else quarter(state.velocity),
    )
    stop, stop_turned = model.stopping_point(state), model.stopping_point(turned)
    assert stop_turned.position_world == pytest.approx(quarter(stop.position_world), abs=1e-12)
    wanted = np.random.default_rng(3).uniform(-0.1, 0.1, (spec.dimension, COUNT))
    command = actuator_command(model, stop, wanted)
    command_turned = actuator_command(model, stop_turned, quarter(wanted))
    assert command_turned == pytest.approx(command if body else quarter(command), abs=1e-9)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_stopping_point_is_where_a_fine_roll_out_rests(name, make_states):
    spec = pure_lag(name)
    model, state = motion_model(spec), make_states(spec, 50)
    rest = rest_by_roll_out(model, state)
    stop = model.stopping_point(state)
    assert stop.position_world == pytest.approx(point_ahead(model, rest), abs=2e-6)
    assert stop.yaw == pytest.approx(rest.yaw, abs=1e-9)
    assert np.abs(rest.velocity).max() < 1e-9


@pytest.mark.parametrize("name", [name for name in ROBOTS if name not in PURE_LAG])
def test_the_stopping_point_holds_with_the_acceleration_limit_too(name, make_states):
    """Exact for a straight way to rest; on a bend the error stays below the margin for the model."""
    spec = load_robot(name)
    model, state = motion_model(spec), make_states(spec, 50)
    rest = rest_by_roll_out(model, state)
    off = np.linalg.norm(model.stopping_point(state).position_world - point_ahead(model, rest), axis=0)
    straight = np.full(50, fill_value=True) if name in POINTS else np.abs(state.velocity[1]) < 0.02
    assert off.max() < 0.03 * spec.control_point_speed_m_s
    assert off[straight].max(initial=0) < 1e-3


@pytest.mark.parametrize("name", ROBOTS)
def test_the_control_point_moves_as_commanded_for_the_pure_lag(name, make_states):
    """q' = w: after a short step under the command for w, q has moved by w times the step."""
    spec = pure_lag(name)
    model, state = motion_model(spec), make_states(spec, COUNT)
    wanted = np.random.default_rng(4).uniform(-1, 1, (spec.dimension, COUNT)) * 0.3 * spec.speed_limit_m_s
    stop = model.stopping_point(state)
    command = np.stack(
        [channel * scale for channel, scale in zip(actuator_command(model, stop, wanted), model.scale, strict=True)]
    )
    step_s = 1e-6
    response = LagResponse.create(np.array(step_s), np.array(spec.velocity_lag_s))
    after = model.stopping_point(model.step(state, command, response))
    moved = (after.position_world - stop.position_world) / step_s
    assert moved == pytest.approx(wanted, abs=2e-5)


@pytest.mark.parametrize("name", POINTS)
def test_a_point_with_pure_lag_is_an_exact_integrator_over_a_whole_tick(name, make_states):
    spec = pure_lag(name)
    model, state = motion_model(spec), make_states(spec, COUNT)
    wanted = np.random.default_rng(5).uniform(-0.5, 0.5, (spec.dimension, COUNT))
    response = LagResponse.create(np.array(spec.control_period_s), np.array(spec.velocity_lag_s))
    after = model.step(state, wanted, response)
    moved = model.stopping_point(after).position_world - model.stopping_point(state).position_world
    assert moved == pytest.approx(wanted * spec.control_period_s, abs=1e-9)


@pytest.mark.parametrize("name", ROBOTS)
def test_the_jacobian_and_its_inverse_are_inverse(name, make_states):
    spec = load_robot(name)
    stop = motion_model(spec).stopping_point(make_states(spec, COUNT))
    vector = np.random.default_rng(6).standard_normal((spec.dimension, COUNT))
    there_and_back = matrix_vector(stop.inverse, matrix_vector(stop.jacobian, vector))
    assert there_and_back == pytest.approx(vector, abs=1e-8)


@pytest.mark.parametrize("name", ROBOTS)
def test_command_and_control_velocity_are_inverse_at_low_speed(name, make_states):
    spec = load_robot(name)
    low = min(1.0, 0.9 * spec.acceleration_limit_m_s2 * spec.velocity_lag_s / spec.speed_limit_m_s)
    if name in WHEELED:
        low = min(low, 0.3)
    model, state = motion_model(spec), make_states(spec, COUNT, speed_share=low)
    wanted = np.random.default_rng(7).uniform(-0.2, 0.2, (spec.dimension, COUNT))
    stop = model.stopping_point(state)
    command = actuator_command(model, stop, wanted)
    assert control_velocity(model, stop, command) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("name", WHEELED)
def test_limit_rows_are_the_limits_of_the_actuators(name, make_states):
    """A control-point velocity keeps every row if and only if the driver does not clip its command."""
    spec = load_robot(name)
    model, state = motion_model(spec), make_states(spec, 5000)
    stop = model.stopping_point(state)
    wanted = np.random.default_rng(8).uniform(-1.2, 1.2, (2, 5000)) * spec.control_point_speed_m_s
    normals, bounds = model.limit_rows(stop)
    room = bounds - np.einsum("drc,dc->rc", normals, wanted)
    command = actuator_command(model, stop, wanted)
    forward, turn = command
    wheels = np.stack([forward - turn * spec.wheel_base_m / 2, forward + turn * spec.wheel_base_m / 2])
    excess = (
        np.max(
            [
                np.abs(wheels).max(axis=0) / spec.wheel_limit_m_s,
                np.abs(forward) / spec.speed_limit_m_s,
                np.abs(turn) / spec.turn_rate_limit_rad_s,
            ],
            axis=0,
        )
        - 1
    )
    clear = np.abs(excess) > 2e-3  # speed and turn rate have no row where the wheels imply them
    kept = (room >= 0).all(axis=0)
    assert (kept == (excess <= 0))[clear].all()
    assert 0.1 < kept.mean() < 0.9
    clipped = model.limit_command(command)
    assert clipped[:, kept] == pytest.approx(command[:, kept], abs=1e-9)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_clipped_command_is_within_the_limits_and_keeps_its_direction(name):
    spec = load_robot(name)
    model = motion_model(spec)
    command = np.random.default_rng(9).uniform(-5, 5, (spec.dimension, COUNT))
    clipped = model.limit_command(command)
    ratio = clipped / command
    assert ratio == pytest.approx(np.broadcast_to(ratio[0], ratio.shape), rel=1e-9)
    assert ((ratio > 0) & (ratio <= 1 + 1e-12)).all()
    assert model.limit_command(clipped) == pytest.approx(clipped, rel=1e-8)
    assert model.limit_command(0 * command) == pytest.approx(0 * command)
    size = np.abs(clipped[0]) if name in WHEELED else np.linalg.norm(clipped, axis=0)
    assert size.max() <= spec.speed_limit_m_s * (1 + 2e-3)


@pytest.mark.parametrize("name", [name for name in ROBOTS if name not in PURE_LAG])
def test_the_braking_share_is_what_the_acceleration_limit_allows(name, make_states):
    """With the shared velocity the change stays within the limit, and zero is always allowed."""
    spec = load_robot(name)
    model, state = motion_model(spec), make_states(spec, 2000)
    stop = model.stopping_point(state)
    wanted = np.random.default_rng(10).uniform(-1, 1, (spec.dimension, 2000)) * spec.speed_limit_m_s
    share = model.braking_share(stop, wanted)
    assert ((share >= 0) & (share <= 1)).all()
    change = matrix_vector(stop.inverse, share * wanted) - stop.deceleration
    if name in POINTS:
        assert np.linalg.norm(change, axis=0).max() <= spec.acceleration_limit_m_s2 + 1e-6
    else:
        limits = np.array([spec.acceleration_limit_m_s2, spec.turn_acceleration_limit_rad_s2])
        assert (np.abs(change) <= limits[:, None] + 1e-6).all()
    assert (share < 1).any()


def test_the_braking_share_is_none_where_the_limit_cannot_be_reached(make_states):
    spec = load_robot("gritsbot_x")
    model = motion_model(spec)
    stop = model.stopping_point(make_states(spec, 3))
    assert model.braking_share(stop, np.ones((2, 3))) is None


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("lag_key", ["low", "value", "high"])
def test_a_point_brakes_as_planned_at_every_lag_of_its_interval(name, lag_key):
    """Regression: braking on velocity - limit * lag was too weak for a longer lag, by 0.1 m at 1 m/s."""
    spec = load_robot(name)
    model, lag = motion_model(spec), getattr(spec.quantities["dynamics.velocity_lag"], lag_key)
    size = spec.dimension
    state = MotionState(np.zeros(size), np.array(0.0), np.array([0.6, 0.8, 0.0])[:size])
    planned = model.stopping_point(state).position_world
    response = LagResponse.create(np.array(spec.control_period_s), np.array(lag))
    for _ in range(200):
        command = actuator_command(model, model.stopping_point(state), np.zeros(size))
        state = model.step(state, effective_command(model, command), response)
    beyond = np.linalg.norm(state.position_world) - np.linalg.norm(planned)
    # what the margin `model` holds for the interval of the lag; a weak brake takes 0.08 m
    quantity = spec.quantities["dynamics.velocity_lag"]
    assert beyond < spec.speed_limit_m_s * (quantity.high - quantity.value)


@pytest.mark.parametrize("name", ROBOTS)
def test_firm_braking_is_never_faster_nor_backwards(name, make_states):
    spec = load_robot(name)
    model, state = motion_model(spec), make_states(spec, COUNT)
    stop = model.stopping_point(state)
    effective = np.random.default_rng(11).uniform(-1, 1, (spec.dimension, COUNT))
    firm = model.firm_command(stop, effective)
    if name in WHEELED:
        assert firm is effective
        return
    direction = state.velocity / np.linalg.norm(state.velocity, axis=0)
    before, after = ((vector * direction).sum(axis=0) for vector in (effective, firm))
    assert (after <= before + 1e-12).all()
    assert (after >= np.minimum(before, 0) - 1e-12).all()
    accelerating = before >= np.linalg.norm(state.velocity, axis=0)
    assert firm[:, accelerating] == pytest.approx(effective[:, accelerating], abs=1e-12)
