"""What the watches over motion make of a drone that is off its commanded velocity for seconds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.body import Body, measured
from tests.effort import examples

from testudo_deploy.control.pose_validator import MotionMonitor
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_hardware.motion.motion_model import effective_command, hover_drift_m_s
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")
ALLOWED = np.array(hover_drift_m_s(SPEC))
AXES = np.eye(3)


class Watched:
    """A drone and what its watches make of it; seen in every control period."""

    def __init__(self, shares=(0.5, 0.5, 0.5)):
        self.body = Body("crazyflie_2x", *shares)
        self.sent = PendingCommands(SPEC.command_delay_s, SPEC.dead_man_s)
        self.watch = MotionMonitor(SPEC, self.sent)
        self.watch.begin(measured(self.body, np.zeros(3)))

    def fly(self, wish, seconds, errors=None):
        """Ask for a velocity (3,) [m/s]; return when something was found [s], infinite if nothing was."""
        effective = effective_command(self.body.model, np.array(wish, float))
        for _ in range(round(seconds / SPEC.control_period_s)):
            before_s = self.body.now_s
            self.sent.push(before_s, effective)
            self.body.send(effective)
            self.body.move(SPEC.control_period_s)
            error = np.zeros(3) if errors is None else errors.normal(size=3)
            now_s = self.body.now_s
            self.watch.follow(measured(self.body, error), True, before_s, now_s, now_s)
            if self.watch.finding:
                return now_s
        return math.inf


@pytest.mark.parametrize("signs", [*AXES, *-AXES, (1, 1, 1), (-1, 1, -1)])
@pytest.mark.parametrize("speed_m_s", [0.0, 0.5])
def test_one_that_is_off_by_the_drift_raises_neither_alarm(signs, speed_m_s):
    """Of itself or from some moment on, standing, driving and braking."""
    drone = Watched()
    for drift in (0.0, np.array(signs) * ALLOWED):
        drone.body.drift = drift
        for wish in ((0.0, 0.0, 0.0), (speed_m_s, 0.0, 0.0), (0.0, 0.0, 0.0)):
            drone.fly(wish, 3.0)
            assert drone.watch.finding == ""


@settings(max_examples=examples(60), deadline=None)
@given(
    shares=st.tuples(*(st.sampled_from([0.0, 1.0]) | st.floats(0, 1) for _ in range(3))),
    drift=st.tuples(*(st.sampled_from([-1.0, 1.0]) | st.floats(-1, 1) for _ in range(3))),
    wishes=st.lists(
        st.tuples(*(st.floats(-0.55, 0.55) for _ in range(3)), st.floats(0.02, 1.0)), min_size=1, max_size=6
    ),
    seed=st.integers(0, 1000),
)
def test_nor_does_one_whose_lag_delay_and_scale_are_anywhere_too(shares, drift, wishes, seed):
    """Any commands, the full error of the position."""
    drone, random = Watched(shares), np.random.default_rng(seed)
    drone.body.drift = np.array(drift) * ALLOWED
    for *wish, seconds in wishes:
        drone.fly(wish, seconds, random)
        assert drone.watch.finding == ""


@pytest.mark.parametrize("way", [*AXES, *-AXES])
def test_one_that_is_off_by_more_while_it_is_to_stand_is_told(way):
    """0.15 m/s for 2 s; sideways that is five times the drift."""
    drone = Watched()
    assert drone.fly((0.0, 0.0, 0.0), 1.0) == math.inf
    drone.body.drift = 0.15 * way
    assert drone.fly((0.0, 0.0, 0.0), 2.0) < math.inf
    assert drone.watch.weak.startswith("brakes_weak: ")


@pytest.mark.parametrize("way", [*AXES, *-AXES])
def test_one_that_falls_short_by_more_than_the_drift_is_told(way):
    """At half the top speed, in the middle of all intervals: the watch over the response."""
    drone = Watched()
    wish = 0.5 * SPEC.speed_limit_m_s * way
    assert drone.fly(wish, 2.0) == math.inf
    drone.body.drift = -0.25 * way
    assert drone.fly(wish, 2.0) < math.inf
    assert drone.watch.unresponsive.startswith("no_response: ")
