"""What a drone said long ago is told as such by its link by radio, and by nobody taken for news."""

import math

import pytest

from testudo_deploy.guard.flight_guard import LATE_S, FlightGuard, GuardPhase
from testudo_deploy.guard.flight_messages import DesiredFlightState, FlightOrder, VehicleMessage
from testudo_deploy.supervision.flight_phases import VEHICLE_SILENT_S, BatteryLimits, FlightSupervisor
from testudo_deploy.supervision.modes import Mode
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import Info, RadioSample
from testudo_hardware.links.flight_link import VehicleState
from testudo_hardware.links.wire import CommandReading, WireError
from testudo_hardware.spec import load_robot

AT_S = 100.0
ARMED_AND_FLYING = Info.from_bits(2 + 8 + 16)
CLOCK = "testudo_hardware.links.crazyflie.radio_link.time.monotonic"


@pytest.fixture
def radio(monkeypatch):
    made = CrazyflieRadio("cf1", load_robot("crazyflie_2x"), "udp://127.0.0.1:1")
    monkeypatch.setattr(CLOCK, lambda: AT_S)
    made._take(
        RadioSample(
            AT_S, AT_S, (0.0, 0.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), ARMED_AND_FLYING, 4.0, (0.0, 0.0, 0.0)
        )
    )
    made._pilot.step(AT_S)
    return made


def at(radio, now_s, monkeypatch):
    monkeypatch.setattr(CLOCK, lambda: now_s)
    return radio.vehicle


def test_a_link_that_hears_nothing_says_when_it_heard_last_and_nothing_else(radio, monkeypatch):
    fresh = at(radio, AT_S + 0.4, monkeypatch)
    assert (fresh.flying, fresh.armed, fresh.battery_v, fresh.controller) == (True, True, 4.0, "")
    stale = at(radio, AT_S + 0.6, monkeypatch)
    assert stale == VehicleState(AT_S, holds=stale.holds)
    assert stale.flying is stale.armed is stale.battery_v is None
    assert stale.holds, "what its driver does is known all the same"
    assert VehicleMessage.decode(VehicleMessage.of("cf1", stale).encode()).state == stale


def test_a_radio_that_refuses_a_set_point_is_told_and_the_sender_goes_on(radio, monkeypatch):
    """A thread that ends lets the drone level out and fall, while its driver goes on telling what it hears."""
    tries = []

    def refuse(_):
        tries.append(1)
        if len(tries) == 3:
            radio._ends.set()
        raise OSError("the dongle is gone")

    monkeypatch.setattr(radio._client, "send", refuse)
    monkeypatch.setattr(radio._wakes, "wait", lambda _: True)
    radio._pump()
    assert len(tries) == 3
    assert radio.standing.code == "lost"
    assert "the dongle is gone" in radio.standing.sentence


def test_a_command_of_the_future_does_not_hold_for_ever(radio):
    """Who sends it may be gone long before its time comes."""
    with pytest.raises(WireError, match="future"):
        radio.send(CommandReading(AT_S + 60.0, (0.1, 0.0, 0.0)))
    radio.send(CommandReading(AT_S + 0.001, (0.1, 0.0, 0.0)))


def told_for(duration_s, hear, state, step_s=0.1):
    """Tell the same state again and again, as a driver does; return the time of the last one."""
    for k in range(round(duration_s / step_s) + 1):
        hear(state, AT_S + k * step_s)
    return AT_S + duration_s


@pytest.mark.parametrize(
    "state", [VehicleState(AT_S, 4.0, True, True, True), VehicleState(AT_S)], ids=["old", "unknown"]
)
def test_a_state_that_is_told_again_and_again_does_not_stay_young(state):
    flight = FlightSupervisor((0.0, 0.0, 1.0), BatteryLimits(3.4, 3.2))
    now_s = told_for(VEHICLE_SILENT_S - 0.1, flight.hear_vehicle, state)
    flight.hear_pose((0.0, 0.0, 1.0), 0.0, now_s, valid=True)
    assert flight.reasons(Mode.ACTIVE, AT_S, now_s, (0.0, 0.0, 1.0), "fly") == ()
    now_s = told_for(VEHICLE_SILENT_S + 0.2, flight.hear_vehicle, state)
    flight.hear_pose((0.0, 0.0, 1.0), 0.0, now_s, valid=True)
    assert flight.reasons(Mode.ACTIVE, AT_S, now_s, (0.0, 0.0, 1.0), "fly") == ("vehicle_silent",)
    assert "vehicle_unheard" in flight.reasons(Mode.DISARMED, AT_S, now_s, None, "ground")


def test_a_guard_does_not_believe_an_old_word_of_the_ground():
    guard = FlightGuard()
    now_s = told_for(LATE_S + 0.2, guard.hear_vehicle, VehicleState(AT_S, flying=False))
    guard.hear_order(FlightOrder("r0", now_s, str(DesiredFlightState.FLY), 1.0, 2.0, 0.0, 4.0), now_s)
    guard.step(now_s, stopped=False)
    assert guard.phase is GuardPhase.FLY, "as if the vehicle had said nothing"


def test_a_state_of_the_future_is_of_another_clock():
    flight = FlightSupervisor((0.0, 0.0, 1.0), None)
    flight.hear_vehicle(VehicleState(AT_S + 1.0, flying=False), AT_S)
    assert "vehicle_unheard" in flight.reasons(Mode.DISARMED, AT_S, AT_S, None, "ground")
    assert VehicleState(AT_S + 0.1).heard_s(AT_S) == AT_S
    assert VehicleState(math.nan).heard_s(AT_S) is None
