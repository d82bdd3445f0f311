"""Crazyswarm2's set-points and services."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hardware import plain_messages as plain

from testudo_hardware.frames import Placement
from testudo_hardware.links.crazyswarm2 import (
    fill_full_state,
    fill_height,
    fill_notify_setpoints_stop,
    fill_velocity_world,
    led_set_point,
    read_full_state,
    read_velocity_world,
)
from testudo_hardware.links.wire import CommandReading, WireError

NUMBERS = st.floats(-5, 5)
VECTORS = st.tuples(NUMBERS, NUMBERS, NUMBERS)


@given(VECTORS, st.integers(0, 10**12))
def test_velocities_come_back(command, nanoseconds):
    sent = CommandReading(nanoseconds / 1e9, command)
    for fill, read, message in (
        (fill_velocity_world, read_velocity_world, plain.velocity_world()),
        (lambda *words: fill_full_state(*words, Placement((0.0, 0.0, 1.0), 0.3)), read_full_state, plain.full_state()),
    ):
        got = read(fill(message, "world", sent), "world")
        assert got.command == command
        assert got.stamp_s == pytest.approx(sent.stamp_s, abs=1e-9)


def test_another_frame_is_refused():
    message = fill_velocity_world(plain.velocity_world(), "world", CommandReading(0.0, (0.0, 0.0, 0.0)))
    with pytest.raises(WireError, match="found frame 'world', expected 'map'"):
        read_velocity_world(message, "map")


def test_a_set_point_runs_ahead_with_the_command():
    before = Placement((0.0, 0.0, 1.0), 0.4)
    ahead = led_set_point(before, (1.0, 0.0, -0.5), 0.02, before, 0.3)
    assert ahead.position == pytest.approx((0.02, 0.0, 0.99))
    assert ahead.yaw == 0.4


@given(VECTORS, VECTORS, VECTORS, st.floats(0, 1), st.floats(0.01, 1))
def test_a_set_point_never_leaves_its_leash(before, command, measured, elapsed_s, leash_m):
    at = led_set_point(Placement(before, 0.0), command, elapsed_s, Placement(measured, 0.0), leash_m)
    assert math.dist(at.position, measured) <= leash_m * (1 + 1e-9) + 1e-12


def test_services_take_metres_and_seconds():
    request = SimpleNamespace(group_mask=7, height=0.0, duration=SimpleNamespace(sec=0, nanosec=0))
    fill_height(request, 0.5, 2.25)
    assert (request.group_mask, request.height) == (0, 0.5)
    assert (request.duration.sec, request.duration.nanosec) == (2, 250_000_000)
    request = fill_notify_setpoints_stop(SimpleNamespace(group_mask=7, remain_valid_millisecs=0), 0.1)
    assert (request.group_mask, request.remain_valid_millisecs) == (0, 100)


@pytest.mark.parametrize(("height", "duration"), [(math.nan, 1.0), (0.5, 0.0), (0.5, math.inf)])
def test_no_height_and_no_time_that_are_none(height, duration):
    with pytest.raises(WireError, match="expected finite numbers"):
        fill_height(SimpleNamespace(), height, duration)
