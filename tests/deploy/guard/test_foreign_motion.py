"""A robot that moves while its guard brakes it is noticed; noise, braking, jumps and its own driving are not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.guard.foreign_motion import ForeignMotion
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.spec import load_robot

GROUND = ["gritsbot_x", "turtlebot4", "turtlebot3_burger", "robomaster_s1"]
POSE_S = 0.033


def see_line(monitor, begin_s, speed_m_s, seconds, noise=lambda: 0.0):
    """Let it see a robot that moves along x, and return whether it found that at any time."""
    found = False
    for k in range(round(seconds / POSE_S)):
        now_s = begin_s + k * POSE_S
        monitor.see_pose(now_s, (speed_m_s * k * POSE_S + noise(), noise()))
        found |= monitor.found(now_s)
    return found


@pytest.mark.parametrize("name", GROUND)
def test_a_braked_robot_that_is_driven_by_another_program_is_found_in_time(name):
    """At half its top speed, before it has moved farther than the errors of two poses and 15 cm."""
    spec = load_robot(name)
    monitor = ForeignMotion(spec)
    monitor.note_sent(0.0, (0.1, 0.0))
    speed = 0.5 * spec.speed_limit_m_s
    assert see_line(monitor, 10.0, speed, (2 * spec.position_error_m + 0.15) / speed + POSE_S)
    assert not monitor.found(100.0)


@pytest.mark.parametrize("name", GROUND)
@given(seed=st.integers(0, 10**6))
def test_errors_of_the_pose_are_no_motion(name, seed):
    spec, rng = load_robot(name), np.random.default_rng(seed)
    monitor = ForeignMotion(spec)

    def noise():
        return rng.uniform(-1, 1) * spec.position_error_m / math.sqrt(2)

    assert not see_line(monitor, 10.0, 0.0, 10.0, noise)


@pytest.mark.parametrize("name", GROUND)
@pytest.mark.parametrize("corner", [0, 1])
def test_the_way_to_rest_is_no_motion(name, corner):
    """From top speed, at both ends of the intervals, with the last command acting for the whole hold."""
    spec = load_robot(name)
    model, monitor = motion_model(spec), ForeignMotion(spec)
    lag, delay = (
        (quantity.low, quantity.high)[corner]
        for quantity in (spec.quantities["dynamics.velocity_lag"], spec.quantities["dynamics.command_delay"])
    )
    response = LagResponse.create(np.array(0.002), np.array(lag))
    state = MotionState(np.zeros(2), np.array(0.0), np.array([spec.speed_limit_m_s, 0.0]))
    command = np.array([spec.speed_limit_m_s, 0.0])
    monitor.note_sent(0.0, tuple(command))
    for k in range(3000):
        now_s = 0.002 * k
        acting = command if now_s < delay + spec.hold_s else 0 * command
        state = model.step(state, acting, response)
        if k % 16 == 0:
            monitor.see_pose(now_s, tuple(state.position_world))
            assert not monitor.found(now_s)


def test_its_own_driving_and_jumps_of_the_localisation_are_no_motion():
    spec = load_robot("gritsbot_x")
    monitor = ForeignMotion(spec)
    for k in range(100):
        monitor.note_sent(10 + k * POSE_S, (0.2, 0.0))
        monitor.see_pose(10 + k * POSE_S, (0.2 * k * POSE_S, 0.0))
    assert not monitor.found(10 + 100 * POSE_S)
    monitor.see_pose(30.0, (1.0, 0.0))
    monitor.see_pose(30.033, (2.0, 0.0))  # a jump of a metre
    assert not monitor.found(30.033)
    monitor.see_pose(30.066, (2.0, 0.0))
    monitor.see_pose(30.1, (math.nan, 0.0))
    assert not monitor.found(30.1)
