"""A new place is believed once it is steady: nothing moves before that, and what jumps again and again is not believed.

gritsbot_x: e = 1 cm by its file's bound, so that poses may differ by 2 e + 1 cm; the control period is 33 ms.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.control.pose_validator import JUMPS, JUMPS_S, STEADY_S, PoseValidator
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot

SPEC = load_robot("gritsbot_x")
ALLOWED_M = 2 * SPEC.position_error_m + 0.01
TICK_S = 0.05


def pose(x=0.0, y=0.0, yaw=0.0, speed=0.0):
    return MotionState(np.array([x, y]), np.array(yaw), np.array([speed, 0.0]))


class Walk:
    """Poses every 50 ms into one robot's whereabouts."""

    def __init__(self):
        self.place, self.now_s, self.new = PoseValidator(SPEC, 0.15), 10.0, []

    def take(self, *poses, after_s=TICK_S):
        for measured in poses:
            self.now_s += after_s
            if self.place.take(measured, self.now_s):
                self.new.append(self.now_s)
        return self.place.located


@pytest.fixture
def walk():
    walk = Walk()
    assert walk.take(pose())
    walk.new.clear()
    return walk


def test_a_place_that_is_steady_for_a_second_is_believed(walk):
    """The first pose there counts from 0 s, the one 20 periods of 50 ms later is the first after 1 s."""
    jumped_s = walk.now_s + TICK_S
    for _ in range(20):
        assert not walk.take(pose(0.5))
    assert walk.take(pose(0.5))
    assert walk.new == [pytest.approx(jumped_s + STEADY_S)]
    assert walk.place.anchor.position_world == pytest.approx([0.5, 0.0])
    assert walk.take(pose(0.5 + 0.9 * ALLOWED_M))


def test_back_at_the_old_place_it_is_believed_at_once_and_the_new_one_counts_from_its_beginning(walk):
    walk.take(*[pose(0.5)] * 19)
    assert walk.take(pose())
    assert not walk.take(*[pose(0.5)] * 20)
    assert not walk.new


@pytest.mark.parametrize(
    "unsteady",
    [
        lambda k: pose(0.5 + 0.02 * k),  # the map slides: 2 cm a pose leave 2 e + 1 cm within two of them
        lambda k: pose(0.5 + 0.5 * (k % 2)),  # two places in turn
        lambda k: pose(0.5, yaw=0.1 * k),
        lambda k: pose(0.5 + 0.2 * TICK_S * k, speed=0.2),  # agrees with odometry, but it drives
    ],
    ids=["slides", "two places", "turns", "drives"],
)
def test_what_is_not_steady_is_never_believed(walk, unsteady):
    for k in range(200):
        assert not walk.take(unsteady(k))
    assert not walk.new


def test_poses_too_far_apart_are_not_steady(walk):
    for _ in range(20):
        assert not walk.take(pose(0.5), after_s=0.2)


def test_a_slow_slide_of_the_map_is_measured_from_the_first_pose_there(walk):
    """4 mm a pose: after 20 of them 8 cm from the first, though no pose is far from the one before."""
    for k in range(100):
        assert not walk.take(pose(0.5 + 0.004 * k))


def test_three_jumps_within_ten_seconds_need_an_operator(walk):
    for count in range(1, JUMPS + 1):
        walk.take(pose(0.5), pose())
        assert walk.place.jumps_often is (count == JUMPS)
    walk.take(*[pose()] * 400)
    assert walk.place.jumps_often  # time alone does not heal it
    walk.place.reset_jumps()
    assert not walk.place.jumps_often


def test_jumps_far_apart_are_no_restlessness(walk):
    for _ in range(6):
        walk.take(pose(0.5), *[pose()] * math.ceil(JUMPS_S / 2 / TICK_S))
        assert not walk.place.jumps_often


@given(
    st.lists(
        st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.floats(-3, 3), st.floats(-0.3, 0.3)), min_size=1, max_size=60
    ),
    st.integers(1, 8),
)
def test_no_place_is_believed_that_does_not_follow_or_was_not_steady(places, held):
    """Whatever poses come: a pose is believed if it follows from the anchor, or after a second of one place."""
    walk = Walk()
    walk.take(pose())
    walk.new.clear()
    history = []
    for x, y, yaw, speed in places:
        for _ in range(held):
            measured = pose(x, y, yaw, speed)
            before = walk.place.anchor
            located = walk.take(measured)
            history.append(measured)
            if located and walk.new and walk.new[-1] == walk.now_s:
                rest = history[-21:]
                assert len(rest) == 21
                assert all(
                    math.dist(item.position_world, measured.position_world) <= 2 * ALLOWED_M + 0.05 + 1e-9
                    for item in rest
                )
                assert all(abs(item.velocity[0]) <= 0.05 for item in rest[1:])
            elif located:
                way = 0.5 * TICK_S * abs(float(before.velocity[0] + measured.velocity[0]))
                assert math.dist(before.position_world, measured.position_world) <= ALLOWED_M + way + 1e-9
