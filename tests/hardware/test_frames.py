"""Frames: counter-clockwise yaw about the world's z axis, wrapped angles, quaternions (x, y, z, w)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_hardware.frames import (
    quaternion_xyzw_from_yaw,
    rotate_horizontal,
    wrap_angle,
    yaw_from_quaternion_xyzw,
)

ANGLES = st.floats(-1e3, 1e3)


def rotate(vector, yaw):
    return rotate_horizontal(np.array(vector, float), np.cos(yaw), np.sin(yaw))


def test_a_quarter_turn_brings_body_forward_to_world_left():
    assert rotate([1.0, 0.0], np.pi / 2) == pytest.approx([0.0, 1.0], abs=1e-15)
    assert rotate([0.0, 1.0], np.pi / 2) == pytest.approx([-1.0, 0.0], abs=1e-15)


def test_a_turn_about_z_leaves_up_as_it_is():
    assert rotate([1.0, 0.0, 3.0], np.pi / 2) == pytest.approx([0.0, 1.0, 3.0], abs=1e-15)


@given(ANGLES, st.floats(-10, 10), st.floats(-10, 10))
def test_world_to_body_undoes_body_to_world(yaw, x, y):
    assert rotate(rotate([x, y], yaw), -yaw) == pytest.approx([x, y], abs=1e-12)


def test_one_body_on_every_array_library(asarray):
    vector, yaw = np.arange(6.0).reshape(3, 2), np.array([0.3, -2.0])
    cosine, sine = asarray(np.cos(yaw)), asarray(np.sin(yaw))
    got = np.asarray(rotate_horizontal(asarray(vector), cosine, sine))
    assert got == pytest.approx(rotate(vector, yaw), abs=1e-12)
    assert np.asarray(wrap_angle(asarray(yaw * 5))) == pytest.approx(wrap_angle(yaw * 5), abs=1e-12)


@pytest.mark.parametrize(
    ("angle", "wrapped"),
    [(0, 0), (math.pi, -math.pi), (-math.pi, -math.pi), (3 * math.pi / 2, -math.pi / 2), (7, 7 - 2 * math.pi)],
)
def test_angles_wrap_into_minus_pi_to_pi(angle, wrapped):
    assert wrap_angle(np.array(angle, float)) == pytest.approx(wrapped, abs=1e-12)


@given(ANGLES)
def test_wrapping_keeps_the_direction(angle):
    wrapped = float(wrap_angle(np.array(angle)))
    assert -math.pi - 1e-12 <= wrapped <= math.pi
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)
    assert math.sin(wrapped) == pytest.approx(math.sin(angle), abs=1e-9)


@given(st.floats(-3.14159, 3.14159))
def test_a_yaw_survives_the_way_through_a_quaternion(yaw):
    quaternion = quaternion_xyzw_from_yaw(yaw)
    assert np.linalg.norm(quaternion) == pytest.approx(1)
    assert yaw_from_quaternion_xyzw(*quaternion) == pytest.approx(yaw, abs=1e-12)
    assert yaw_from_quaternion_xyzw(*(-x for x in quaternion)) == pytest.approx(yaw, abs=1e-12)


def test_a_quarter_turn_is_z_up():
    half = math.sqrt(0.5)
    assert quaternion_xyzw_from_yaw(math.pi / 2) == pytest.approx((0, 0, half, half))


def test_roll_does_not_count_as_yaw():
    half = math.sqrt(0.5)
    assert yaw_from_quaternion_xyzw(half, 0, 0, half) == pytest.approx(0)


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 1.01), (math.nan, 0, 0, 1), (0, math.inf, 0, 1)])
def test_what_is_no_rotation_is_refused(quaternion):
    with pytest.raises(ValueError, match="norm"):
        yaw_from_quaternion_xyzw(*quaternion)
