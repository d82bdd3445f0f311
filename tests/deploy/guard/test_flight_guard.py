"""The guard's part of a flight: no set-point on the ground, one at every tick in the air, and who may end that."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.guard.flight_guard import ALONE_S, HOVER_S, LATE_S, ORDER_SILENT_S, FlightGuard, GuardPhase
from testudo_deploy.guard.flight_messages import DesiredFlightState, FlightOrder
from testudo_hardware.links.flight_link import FlightAct, VehicleState

TICK_S = 0.1


class Flight:
    """A flight guard with a supervisor that orders, and a vehicle that does at once what it is asked."""

    def __init__(self, *, tells=True):
        self.guard, self.now_s = FlightGuard(), 50.0
        self.wanted, self.stopped, self.tells = DesiredFlightState.GROUND, False, tells
        self.armed = self.flying = self.locked = False
        self.asked = []

    def tick(self, count=1):
        for _ in range(count):
            self.now_s += TICK_S
            if self.tells:
                state = VehicleState(self.now_s, armed=self.armed, flying=self.flying, locked=self.locked)
                self.guard.hear_vehicle(state, self.now_s)
            if self.wanted is not None:
                order = FlightOrder("r0", self.now_s, str(self.wanted), 1.0, 2.0, 0.02, 4.0)
                self.guard.hear_order(order, self.now_s)
            self.obey(self.guard.step(self.now_s, stopped=self.stopped))
        return self.guard.phase

    def obey(self, requests):
        for request in requests:
            self.asked.append(request)
            if request.act in (FlightAct.ARM, FlightAct.DISARM):
                self.armed = request.act is FlightAct.ARM
            elif request.act is FlightAct.TAKE_OFF:
                self.flying = self.armed
            elif request.act in (FlightAct.LAND, FlightAct.EMERGENCY):
                self.flying = self.armed = False
                self.locked = request.act is FlightAct.EMERGENCY

    def seconds(self, duration_s):
        return self.tick(round(duration_s / TICK_S))

    @property
    def acts(self):
        return [request.act for request in self.asked]


def flying(**options):
    flight = Flight(**options)
    flight.tick()
    flight.wanted = DesiredFlightState.TAKE_OFF
    flight.tick(3)  # armed, seen armed, seen flying
    flight.wanted = DesiredFlightState.FLY
    assert flight.tick() is GuardPhase.FLY
    flight.asked.clear()
    return flight


def test_it_says_nothing_before_it_knows_whether_the_vehicle_flies():
    flight = Flight(tells=False)
    flight.wanted = None
    assert flight.seconds(20.0) is GuardPhase.UNKNOWN
    assert not flight.guard.streams
    assert flight.asked == []


def test_on_the_ground_no_set_point_leaves_and_nothing_is_asked():
    flight = Flight()
    assert flight.seconds(5.0) is GuardPhase.GROUND
    assert not flight.guard.streams
    assert flight.asked == []


def test_a_take_off_arms_and_climbs_and_set_points_begin_when_they_are_wanted():
    flight = Flight()
    flight.tick()
    flight.wanted = DesiredFlightState.TAKE_OFF
    assert flight.seconds(1.0) is GuardPhase.TAKE_OFF
    assert flight.acts == [FlightAct.ARM, FlightAct.NOTIFY_SETPOINTS_STOP, FlightAct.TAKE_OFF]
    assert (flight.asked[-1].height_m, flight.asked[-1].duration_s) == (1.0, 2.0)
    assert not flight.guard.streams  # a set-point would end the climb
    flight.wanted = DesiredFlightState.FLY
    flight.tick()
    assert flight.guard.streams


def test_a_landing_is_asked_for_before_set_points_end_and_motors_last():
    """A planner that is idle when set-points end cuts the motors."""
    flight = flying()
    flight.wanted = DesiredFlightState.LAND
    assert flight.tick() is GuardPhase.LAND
    assert flight.acts == [FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP]
    assert (flight.asked[0].height_m, flight.asked[0].duration_s) == (0.02, 4.0)
    assert not flight.guard.streams
    assert flight.seconds(4.5) is GuardPhase.GROUND
    assert flight.acts[-1] is FlightAct.DISARM


def test_a_landing_is_not_taken_back():
    flight = flying()
    flight.wanted = DesiredFlightState.LAND
    flight.tick()
    flight.flying, flight.wanted = True, DesiredFlightState.FLY
    assert flight.seconds(6.0) is GuardPhase.LAND


def test_a_landing_that_shows_no_effect_is_asked_for_again():
    flight = flying()
    flight.wanted = DesiredFlightState.LAND
    flight.tick()
    for _ in range(80):
        flight.flying = True
        flight.tick()
    assert flight.acts.count(FlightAct.LAND) == 2


@pytest.mark.parametrize("wanted", [None, DesiredFlightState.GROUND, DesiredFlightState.TAKE_OFF])
def test_without_a_supervisor_that_flies_it_hovers_and_then_lands(wanted):
    """Silence, and a policy that began anew and believes that it stands on the ground."""
    flight = flying()
    flight.wanted = wanted
    assert flight.seconds(ALONE_S - 0.5) is GuardPhase.FLY
    assert flight.guard.streams
    assert flight.asked == []
    assert flight.seconds(1.5) in (GuardPhase.LAND, GuardPhase.GROUND)
    assert FlightAct.LAND in flight.acts


def test_an_order_that_is_old_or_of_the_future_does_not_count():
    flight = flying()
    flight.wanted = None
    for age_s in (ORDER_SILENT_S + 0.1, -ORDER_SILENT_S - 0.1):
        order = FlightOrder("r0", flight.now_s - age_s, "land", 1.0, 2.0, 0.0, 4.0)
        flight.guard.hear_order(order, flight.now_s)
        assert flight.seconds(1.0) is GuardPhase.FLY


def test_a_guard_that_starts_anew_in_the_air_begins_to_brake():
    for tells, wanted in ((True, None), (False, DesiredFlightState.FLY)):
        flight = Flight(tells=tells)
        flight.flying, flight.wanted = True, wanted
        flight.tick()
        assert flight.guard.streams


def test_a_climb_without_a_supervisor_ends_in_a_hover():
    flight = Flight()
    flight.tick()
    flight.wanted = DesiredFlightState.TAKE_OFF
    flight.tick(2)
    flight.wanted = None
    assert flight.seconds(1.5) is GuardPhase.TAKE_OFF
    assert flight.seconds(1.0) is GuardPhase.FLY


def test_an_emergency_stop_in_a_climb_brakes_at_once_and_forbids_one_on_the_ground():
    flight = Flight()
    flight.tick()
    flight.wanted = DesiredFlightState.TAKE_OFF
    flight.tick(3)
    flight.stopped = True
    assert flight.tick() is GuardPhase.FLY
    assert flight.guard.streams
    flight = Flight()
    flight.stopped, flight.wanted = True, DesiredFlightState.TAKE_OFF
    assert flight.seconds(3.0) is GuardPhase.GROUND
    assert flight.asked == []


def test_in_an_emergency_stop_only_what_goes_down_passes_and_not_before_it_hovered():
    flight = flying()
    down = (0.0, 0.05, -0.3)
    assert not flight.guard.may_descend(down, flight.now_s)  # nothing is stopped
    flight.stopped = True
    flight.tick()
    assert not flight.guard.may_descend(down, flight.now_s)
    flight.seconds(HOVER_S)
    assert flight.guard.may_descend(down, flight.now_s)
    for command in ((0.0, 0.0, 0.1), (0.3, 0.0, -0.3), (0.0, 0.0, -1.0), (0.0, 0.0), (math.nan, 0.0, -0.1)):
        assert not flight.guard.may_descend(command, flight.now_s), command


def test_motors_off_is_a_second_word_and_repeated_until_it_is_obeyed():
    flight = flying()
    answer = flight.guard.motors_off(flight.now_s, stopped=False)
    assert not answer.granted
    assert "emergency stop first" in answer.sentence
    assert flight.guard.phase is GuardPhase.FLY
    flight.stopped = True
    answer = flight.guard.motors_off(flight.now_s, stopped=True)
    assert answer.granted
    assert [request.act for request in answer.requests] == [FlightAct.EMERGENCY]
    assert flight.seconds(1.5) is GuardPhase.OFF  # the vehicle did not hear it
    assert flight.acts == [FlightAct.EMERGENCY]
    assert not flight.guard.streams
    assert flight.seconds(5.0) is GuardPhase.OFF
    assert flight.acts == [FlightAct.EMERGENCY]  # obeyed
    flight.stopped, flight.wanted = False, DesiredFlightState.GROUND
    assert flight.tick() is GuardPhase.GROUND


@pytest.mark.parametrize("phase", GuardPhase)
def test_a_guard_that_ends_lands_what_flies(phase):
    flight = flying()
    flight.guard.phase = phase
    acts = [request.act for request in flight.guard.close(flight.now_s)]
    landing = [FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP]
    assert acts == (landing if phase in (GuardPhase.FLY, GuardPhase.TAKE_OFF) else [])


WORDS = [
    "go",
    "silent",
    *DesiredFlightState,
    "stop",
    "release",
    "motors off",
    "vehicle silent",
    "vehicle tells",
    "falls",
]


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_whatever_happens_motors_turn_only_after_a_wanted_take_off_and_hovering_never_falls_silent(story):
    flight = Flight()
    for word in story:
        before, was_stopped, took_off = flight.guard.phase, flight.stopped, FlightAct.TAKE_OFF in flight.acts
        if word in list(DesiredFlightState):
            flight.wanted = DesiredFlightState(word)
        elif word == "silent":
            flight.wanted = None
        elif word in ("stop", "release"):
            flight.stopped = word == "stop"
        elif word in ("vehicle silent", "vehicle tells"):
            flight.tells = word == "vehicle tells"
        elif word == "motors off":
            answer = flight.guard.motors_off(flight.now_s, stopped=flight.stopped)
            assert answer.granted == was_stopped
            flight.obey(answer.requests)
        elif word == "falls":
            flight.flying = False
        flight.tick(3)
        after = flight.guard.phase
        if FlightAct.TAKE_OFF in flight.acts and not took_off:
            assert flight.wanted is DesiredFlightState.TAKE_OFF
            assert not flight.stopped
        if before is GuardPhase.FLY and after in (GuardPhase.GROUND, GuardPhase.OFF):
            assert word == "motors off" or FlightAct.DISARM in flight.acts
        assert flight.guard.streams == (after is GuardPhase.FLY)


class Standing(Flight):
    """With a vehicle that hears everything and does not leave the ground."""

    def obey(self, requests):
        self.asked += requests
        for request in requests:
            if request.act in (FlightAct.ARM, FlightAct.DISARM):
                self.armed = request.act is FlightAct.ARM


def begun(kind, after_s):
    """Return a flight that has been taking off for some time."""
    flight = kind()
    flight.tick()
    flight.wanted = DesiredFlightState.TAKE_OFF
    flight.seconds(after_s)
    return flight


@pytest.mark.parametrize(
    "wanted",
    [None, DesiredFlightState.FLY, DesiredFlightState.TAKE_OFF, DesiredFlightState.GROUND, DesiredFlightState.LAND],
)
@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.4, 1.0, 1.8])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_vehicle_that_stands_hears_no_set_point_whatever_ends_its_take_off(wanted, after_s, stopped):
    """An emergency stop, a supervisor that is gone or believes that it flies: a set-point would turn its motors up."""
    if wanted is DesiredFlightState.TAKE_OFF and not stopped:
        return
    flight = begun(Standing, after_s)
    flight.stopped, flight.wanted = stopped, wanted
    for _ in range(150):
        flight.tick()
        assert not flight.guard.streams
    assert flight.guard.phase is GuardPhase.GROUND
    assert flight.acts[-1] is FlightAct.DISARM
    assert not flight.armed


def test_a_vehicle_that_leaves_the_ground_late_lands():
    """The stop came after the take-off had been asked for, before the vehicle showed that it flies."""
    flight = begun(Standing, 0.2)
    assert flight.acts[-1] is FlightAct.TAKE_OFF
    flight.stopped, flight.wanted = True, DesiredFlightState.FLY
    flight.tick()
    assert flight.acts[-2:] == [FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP]
    assert not flight.guard.streams


def test_a_guard_that_ends_before_its_vehicle_takes_off_disarms_it():
    flight = begun(Standing, 0.1)
    assert flight.acts == [FlightAct.ARM]
    assert [request.act for request in flight.guard.close(flight.now_s)] == [FlightAct.DISARM]


def test_a_guard_that_ends_while_its_landing_has_not_begun_says_both():
    flight = flying()
    state = VehicleState(flight.now_s, armed=True, flying=True, planner_active=False)
    flight.guard.hear_vehicle(state, flight.now_s)
    flight.tells, flight.wanted = False, DesiredFlightState.LAND
    flight.tick()
    assert flight.acts == [FlightAct.LAND]
    assert flight.guard.close(flight.now_s) == ()  # it has been asked
    assert not flight.guard.ended
    acts = [request.act for request in flight.guard.last_requests(flight.now_s)]
    assert acts == [FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP]


@pytest.mark.parametrize(("age_s", "phase"), [(LATE_S - 0.1, GuardPhase.FLY), (LATE_S + 0.1, GuardPhase.GROUND)])
def test_an_old_report_of_the_vehicle_does_not_count(age_s, phase):
    guard, now_s = FlightGuard(), 50.0
    guard.hear_vehicle(VehicleState(now_s - age_s, flying=True), now_s)
    guard.hear_order(FlightOrder("r0", now_s, str(DesiredFlightState.GROUND), 1.0, 2.0, 0.02, 4.0), now_s)
    guard.step(now_s, stopped=False)
    assert guard.phase is phase
