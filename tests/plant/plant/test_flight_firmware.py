"""The part of a drone between radio and velocity controller: what leads it, and what silence does."""

import itertools
import math

import pytest

from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_plant.plant.flight_firmware import CommandSilence, CrazyflieFirmware, FlightPhase

TICK_S, LATE_S, REST_M = 0.02, 0.04, 0.07
PLACE = (1.0, 2.0, 1.5)
OUT = (0.5, -0.25, 0.1)


def vehicle_of(*, hovers=True, brake=False):
    place = PLACE if hovers else (*PLACE[:2], REST_M)
    silence = CommandSilence(brake_after_s=0.1 if brake else math.inf)
    return CrazyflieFirmware(silence, place, rest_m=REST_M, hovers=hovers, start_s=0.0)


def phases(vehicle, times_s):
    found = []
    for now_s in times_s:
        vehicle.command(now_s, LATE_S)
        found.append(vehicle.phase)
    return found


def flown(vehicle, begin_s, duration_s, step_s=0.01):
    """Let a drone follow its commands without a lag; return its places (T, 3)."""
    place, places = list(vehicle._place), []
    for k in range(round(duration_s / step_s)):
        now_s = begin_s + k * step_s
        vehicle.sense(place, 1.0, now_s)
        order = vehicle.command(now_s, LATE_S)
        if not order.off:
            place = [here + step_s * speed for here, speed in zip(place, order.velocity_world, strict=True)]
        places.append(tuple(place))
    return places


def test_a_silent_drone_holds_levels_out_and_is_cut():
    vehicle = vehicle_of()
    vehicle.hear(OUT, 10.0)
    assert phases(vehicle, (10.0, 10.05, 10.49, 10.51, 11.99)) == [
        FlightPhase.SET_POINT,
        FlightPhase.HELD,
        FlightPhase.HELD,
        FlightPhase.LEVEL,
        FlightPhase.LEVEL,
    ]
    order = vehicle.command(11.0, LATE_S)
    assert order.velocity_world == OUT  # its climb goes on
    assert order.level
    assert not order.off
    assert phases(vehicle, (12.01,)) == [FlightPhase.LOCKED]
    assert vehicle.command(12.02, LATE_S).off
    vehicle.hear(OUT, 12.1)  # too late
    assert vehicle.command(12.1, LATE_S).off
    assert not vehicle.ask(FlightRequest(FlightAct.ARM), 12.2)


def test_set_points_that_come_back_in_time_lead_again():
    vehicle = vehicle_of()
    vehicle.hear(OUT, 10.0)
    assert phases(vehicle, (11.0,)) == [FlightPhase.LEVEL]
    vehicle.hear(OUT, 11.5)
    order = vehicle.command(11.5, LATE_S)
    assert (order.velocity_world, order.level, vehicle.phase) == (OUT, False, FlightPhase.SET_POINT)


def test_an_app_on_board_brakes_and_hovers_until_set_points_come():
    vehicle = vehicle_of(brake=True)
    vehicle.hear(OUT, 10.0)
    assert phases(vehicle, (10.09, 10.11, 60.0)) == [FlightPhase.HELD, FlightPhase.BRAKE, FlightPhase.BRAKE]
    order = vehicle.command(60.0, LATE_S)
    assert (order.velocity_world, order.level, order.off) == ((0.0, 0.0, 0.0), False, False)
    vehicle.hear(OUT, 61.0)
    assert vehicle.command(61.0, LATE_S).velocity_world == OUT


def test_before_the_first_set_point_it_hovers_without_radio():
    vehicle = vehicle_of()
    places = flown(vehicle, 0.0, 5.0)
    assert vehicle.phase is FlightPhase.PLANNER
    assert places[-1] == pytest.approx(PLACE)


def test_it_takes_off_hovers_and_lands_where_it_is():
    vehicle = vehicle_of(hovers=False)
    assert vehicle.may_stand
    assert not vehicle.ask(FlightRequest(FlightAct.TAKE_OFF, 1.0, 2.0), 0.0)  # not armed
    assert vehicle.ask(FlightRequest(FlightAct.ARM), 0.0)
    assert not vehicle.can_fly(0.0)
    assert not vehicle.ask(FlightRequest(FlightAct.TAKE_OFF, 1.0, 2.0), 0.0)  # armed, but not ready
    vehicle.ask(FlightRequest(FlightAct.ARM), 0.05)  # begins nothing anew
    assert vehicle.can_fly(0.1)
    assert vehicle.ask(FlightRequest(FlightAct.TAKE_OFF, 1.0, 2.0), 0.1)
    assert vehicle.may_stand
    places = flown(vehicle, 0.1, 4.0)
    climbs = [b[2] - a[2] for a, b in itertools.pairwise(places)]
    assert min(climbs) > -1e-3
    assert max(climbs) / 0.01 == pytest.approx(15 / 8 * (1.0 - REST_M) / 2.0, rel=0.1)
    assert places[-1] == pytest.approx((1.0, 2.0, 1.0), abs=5e-3)
    vehicle.hear((0.1, 0.0, 0.0), 4.0)
    assert not vehicle.may_stand
    land = FlightRequest(FlightAct.LAND, 0.0, 2.0)
    assert vehicle.ask(land, 4.01)
    assert vehicle.phase is not FlightPhase.PLANNER  # set-points keep their priority until their end is notified
    assert vehicle.ask(FlightRequest(FlightAct.NOTIFY_SETPOINTS_STOP), 4.02)
    assert vehicle.phase is FlightPhase.PLANNER
    places = flown(vehicle, 4.03, 4.0)
    assert vehicle.phase is FlightPhase.OFF
    assert vehicle.may_stand
    assert places[-1][2] == pytest.approx(REST_M, abs=0.02)


def test_a_notified_end_without_an_order_cuts_the_motors():
    """As firmware since 2023: the planner is idle. So a landing is asked for first, and a set-point ends that, too."""
    for landing_first in (False, True):
        vehicle = vehicle_of()
        vehicle.hear(OUT, 10.0)
        if landing_first:
            vehicle.ask(FlightRequest(FlightAct.LAND, 0.0, 2.0), 10.005)
            vehicle.hear(OUT, 10.006)
        vehicle.ask(FlightRequest(FlightAct.NOTIFY_SETPOINTS_STOP), 10.01)
        assert vehicle.command(10.02, LATE_S).off


def test_an_emergency_cuts_and_locks():
    vehicle = vehicle_of()
    vehicle.hear(OUT, 10.0)
    assert vehicle.ask(FlightRequest(FlightAct.EMERGENCY), 10.01)
    assert vehicle.command(10.02, LATE_S).off
    assert not vehicle.may_stand  # what touches the floor now has crashed
    assert not vehicle.ask(FlightRequest(FlightAct.TAKE_OFF, 1.0, 2.0), 10.1)


def test_a_tumbled_drone_is_locked_and_a_short_tilt_is_not():
    vehicle = vehicle_of()
    vehicle.hear(OUT, 10.0)
    for now_s, cosine in ((10.0, 0.4), (10.9, 0.4), (10.95, 0.9), (11.0, 0.4), (11.9, 0.4)):
        vehicle.sense(PLACE, cosine, now_s)
    assert not vehicle.tumbled
    vehicle.sense(PLACE, math.cos(math.radians(61)), 12.1)
    assert vehicle.tumbled
    assert vehicle.phase is FlightPhase.LOCKED
