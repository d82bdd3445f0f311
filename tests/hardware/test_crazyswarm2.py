"""Crazyswarm2's set-points and services."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hardware import plain_messages as plain

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.crazyswarm2 import (
    CALLS,
    SetPointLeader,
    fill_full_state,
    fill_velocity_world,
    led_set_point,
    read_full_state,
    read_status,
    read_velocity_world,
)
from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_hardware.links.link_profile import load_link
from testudo_hardware.links.topics import MeasurementWire
from testudo_hardware.links.wire import CommandReading, PoseReading, WireError
from testudo_hardware.spec import load_robot

NUMBERS = st.floats(-5, 5)
VECTORS = st.tuples(NUMBERS, NUMBERS, NUMBERS)


@given(VECTORS, st.integers(0, 10**12))
def test_velocities_come_back(command, nanoseconds):
    sent = CommandReading(nanoseconds / 1e9, command)
    for fill, read, message in (
        (fill_velocity_world, read_velocity_world, plain.velocity_world()),
        (
            lambda *words: fill_full_state(*words, PlanarTransform((0.0, 0.0, 1.0), 0.3)),
            read_full_state,
            plain.full_state(),
        ),
    ):
        got = read(fill(message, "world", sent), "world")
        assert got.command == command
        assert got.stamp_s == pytest.approx(sent.stamp_s, abs=1e-9)


def test_another_frame_is_refused():
    message = fill_velocity_world(plain.velocity_world(), "world", CommandReading(0.0, (0.0, 0.0, 0.0)))
    with pytest.raises(WireError, match="found frame 'world', expected 'map'"):
        read_velocity_world(message, "map")


def test_a_set_point_runs_ahead_with_the_command():
    before = PlanarTransform((0.0, 0.0, 1.0), 0.4)
    ahead = led_set_point(before, (1.0, 0.0, -0.5), 0.02, before, 0.3)
    assert ahead.position == pytest.approx((0.02, 0.0, 0.99))
    assert ahead.yaw == 0.4


@given(VECTORS, VECTORS, VECTORS, st.floats(0, 1), st.floats(0.01, 1))
def test_a_set_point_never_leaves_its_leash(before, command, measured, elapsed_s, leash_m):
    at = led_set_point(PlanarTransform(before, 0.0), command, elapsed_s, PlanarTransform(measured, 0.0), leash_m)
    assert math.dist(at.position, measured) <= leash_m * (1 + 1e-9) + 1e-12


def height_request():
    return SimpleNamespace(group_mask=7, height=0.0, duration=SimpleNamespace(sec=0, nanosec=0))


def test_every_act_is_a_call_of_a_service_of_the_server():
    assert set(CALLS) == set(FlightAct)
    assert {call.name for call in CALLS.values()} == {"arm", "takeoff", "land", "notify_setpoints_stop", "emergency"}


@pytest.mark.parametrize("act", [FlightAct.TAKE_OFF, FlightAct.LAND])
def test_services_take_metres_and_seconds(act):
    request = height_request()
    CALLS[act].fill(request, FlightRequest(act, height_m=0.5, duration_s=2.25))
    assert (request.group_mask, request.height) == (0, 0.5)
    assert (request.duration.sec, request.duration.nanosec) == (2, 250_000_000)


def test_the_other_services_are_filled():
    request = SimpleNamespace(group_mask=7, remain_valid_millisecs=0)
    act = FlightAct.NOTIFY_SETPOINTS_STOP
    CALLS[act].fill(request, FlightRequest(act, remain_valid_s=0.1))
    assert (request.group_mask, request.remain_valid_millisecs) == (0, 100)
    for act, armed in ((FlightAct.ARM, True), (FlightAct.DISARM, False)):
        request = SimpleNamespace(arm=None)
        CALLS[act].fill(request, FlightRequest(act))
        assert request.arm is armed
    CALLS[FlightAct.EMERGENCY].fill(SimpleNamespace(), FlightRequest(FlightAct.EMERGENCY))


@pytest.mark.parametrize(("height", "duration"), [(math.nan, 1.0), (0.5, 0.0), (0.5, math.inf), (0.5, -1.0)])
@pytest.mark.parametrize("act", [FlightAct.TAKE_OFF, FlightAct.LAND])
def test_no_height_and_no_time_that_are_none(act, height, duration):
    with pytest.raises(WireError, match="expected finite numbers"):
        FlightRequest(act, height_m=height, duration_s=duration)


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0, (False, False, False, False, False)),
        (1, (False, True, False, False, False)),
        (2, (True, False, False, False, False)),
        (1 | 2 | 4 | 8, (True, True, False, False, False)),
        (2 | 8 | 16, (True, True, True, False, False)),
        (32 | 64, (False, False, False, True, True)),
        (128, (False, False, False, False, True)),
    ],
)
def test_a_status_tells_the_firmwares_supervisor_and_the_battery(bits, expected):
    state = read_status(SimpleNamespace(supervisor_info=bits, battery_voltage=3.9, latency_unicast=4), 12.5)
    assert (state.armed, state.can_fly, state.flying, state.tumbled, state.locked) == expected
    assert (state.stamp_s, state.battery_v, state.latency_s) == (12.5, 3.9, 0.004)
    assert state.planner_active is False
    busy = SimpleNamespace(supervisor_info=bits | 256, battery_voltage=3.9, latency_unicast=4)
    assert read_status(busy, 12.5).planner_active is True


@pytest.mark.parametrize("volts", [0.0, math.nan, -1.0])
def test_a_voltage_that_was_not_measured_is_none(volts):
    message = SimpleNamespace(supervisor_info=0, battery_voltage=volts, latency_unicast=0)
    assert read_status(message, 0.0).battery_v is None


def test_a_led_set_point_begins_where_the_drone_is_and_runs_ahead():
    leader = SetPointLeader(leash_m=0.3, oldest_s=0.1)
    assert leader.lead((1.0, 0.0, 0.0), 5.0) is None  # nobody knows where it is
    leader.see(PlanarTransform((0.0, 0.0, 1.0), 0.4), 5.0)
    assert leader.lead((1.0, 0.0, 0.0), 5.0) == ((1.0, 0.0, 0.0), PlanarTransform((0.0, 0.0, 1.0), 0.4))
    leader.see(PlanarTransform((0.0, 0.0, 1.0), 0.4), 5.02)
    velocity, at = leader.lead((1.0, 0.0, 0.0), 5.02)
    assert velocity == (1.0, 0.0, 0.0)
    assert at.position == pytest.approx((0.02, 0.0, 1.0))


def test_without_a_pose_the_last_set_point_is_held_at_rest():
    leader = SetPointLeader(leash_m=0.3, oldest_s=0.1)
    leader.see(PlanarTransform((0.0, 0.0, 1.0), 0.4), 5.0)
    _, at = leader.lead((1.0, 0.0, 0.0), 5.05)
    assert leader.lead((1.0, 0.0, 0.0), 5.2) == ((0.0, 0.0, 0.0), at)
    leader.forget()  # its vehicle flew by itself
    assert leader.lead((1.0, 0.0, 0.0), 5.3) is None


@given(st.lists(st.tuples(VECTORS, VECTORS), min_size=1, max_size=20))
def test_a_leader_never_leaves_the_leash_however_the_drone_moves(steps):
    leader, now_s = SetPointLeader(leash_m=0.3), 1.0
    for place, command in steps:
        now_s += 0.02
        leader.see(PlanarTransform(place, 0.0), now_s)
        _, at = leader.lead(command, now_s)
        assert math.dist(at.position, place) <= 0.3 + 1e-9


def test_a_logged_pose_that_is_stamped_on_arrival_is_as_old_as_the_radio_may_have_made_it():
    spec = load_robot("crazyflie_2x")
    message = SimpleNamespace(
        header=SimpleNamespace(frame_id="world", stamp=SimpleNamespace(sec=12, nanosec=500_000_000)),
        pose=SimpleNamespace(
            position=SimpleNamespace(x=1.0, y=2.0, z=0.5), orientation=SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
        ),
    )
    logged = MeasurementWire.motion_capture("cf1", spec, load_link("crazyswarm2_logged"), "world")
    assert logged.late_s == spec.link_delay_most_s == 0.03
    assert logged.decode(message).stamp_s == pytest.approx(12.47)
    assert logged.decode(logged.encode(message, PoseReading(3.0, (0.0, 0.0, 1.0), 0.0))).stamp_s == pytest.approx(3.0)
    assert message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec == pytest.approx(3.03)
    seen = MeasurementWire.motion_capture("cf1", spec, load_link("crazyswarm2"), "world")
    assert seen.late_s == 0.0
