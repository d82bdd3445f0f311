"""A drone stays in its box, floor and ceiling among its walls, and off obstacles, however it is told to dive.

The robot is at an end of its intervals and does not know it; what it sees is late. No brake ends below the floor.
"""

import numpy as np
import pytest
from tests.deploy.shield.test_downwash import braking

from testudo_deploy.control.state_prediction import PendingCommands, estimate_state
from testudo_deploy.shield.arena import Arena, Ball, clearance
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.reservations import PeerReservations, ShieldInputs, reserved_at_rest
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot

SPEC = braking(load_robot("crazyflie_2x"))
LAMP = Ball((0.6, 0.0, 1.0), 0.15)
BOX = Arena((-1.5, -1.5, 0.0), (1.5, 1.5, 2.2), (LAMP,))
STEP_S, LATE_STEPS = 0.01, 4


def alone(number):
    """Return the neighbours of a robot that has one far away, which acknowledges all."""
    far, no = np.full((3, 1), 50.0), np.zeros(1, bool)
    lanes = np.stack([far, far])
    return (
        PeerTable(far, 0 * far, np.array([0.05]), ~no, no),
        PeerReservations(lanes, lanes, np.array([number - 1.0]), no, ~no, ~no),
    )


def flown(wish, *, shielded=True, ticks=200):
    """Return where a drone is (S, 3) that is told to fly along ``wish`` from the middle of the box."""
    model, spec = motion_model(SPEC), SPEC
    shield = Shield(model, projection_parameters(spec), stop_tube_parameters(spec), BOX)
    names = ("velocity_lag", "command_delay", "speed_scale")
    lag, delay, scale = (spec.quantities[f"dynamics.{name}"] for name in names)
    response = LagResponse.create(np.array(STEP_S), lag.high)
    place = np.array([0.0, 0.0, 1.1])
    past = [MotionState(place, np.array(0.0), np.zeros(3))] * (LATE_STEPS + 1)
    own, sent, told = (
        reserved_at_rest(place),
        PendingCommands(spec.command_delay_s, spec.dead_man_s),
        [np.zeros(3)] * 20,
    )
    for number in range(ticks):
        now = number * spec.control_period_s
        measured = past[-1 - LATE_STEPS]
        pending, times = sent.since(now - LATE_STEPS * STEP_S, now)
        estimate = estimate_state(model, measured, tuple(pending), times)
        command = np.asarray(wish, float)
        if shielded:
            table, peers = alone(number)
            sight = ShieldInputs(measured.position_world, estimate, model.stopping_point(estimate), table, peers)
            result, own = shield.step(sight, own, command, np.array(float(number)))
            command = result.command
        effective = effective_command(model, command)
        sent.push(now, effective)
        for _ in range(round(spec.control_period_s / STEP_S)):
            told.append(effective)
            acting = told[-1 - round(delay.high / STEP_S)]
            past.append(model.step(past[-1], scale.high / scale.value * acting, response))
    return np.array([state.position_world for state in past])


@pytest.mark.parametrize(
    "wish", [(0, 0, -1), (0, 0, 1), (0.5, 0.4, -0.75), (-0.8, 0.6, 0), (1, 0, 0), (0.9, 0.02, -0.1)]
)
def test_a_drone_that_dives_stops_above_the_floor_and_off_everything(wish):
    path = flown(wish)
    low, high = (np.array(side) for side in (BOX.low_world, BOX.high_world))
    radius = SPEC.body_radius_m
    assert (path - low).min() >= radius
    assert (high - path).min() >= radius
    assert clearance(LAMP, path.T)[0].min() >= radius
    assert np.linalg.norm(path[-1] - path[0]) > 0.2, "it gets somewhere"


def test_without_a_shield_it_would_not():
    """Negative control."""
    assert flown((0, 0, -1), shielded=False)[:, 2].min() < 0
    assert clearance(LAMP, flown((1, 0, -0.08), shielded=False).T)[0].min() < SPEC.body_radius_m
