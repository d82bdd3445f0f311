"""The guard's requests as Crazyswarm2 sends them, and the firmware's answers as its `Status` tells them: no pilot."""

from types import SimpleNamespace

import pytest
from tests.crazyflie.closed_loop import TICK_S, order_packet

from testudo_crazyflie.firmware.commanders import RADIO
from testudo_crazyflie.firmware.crtp_packets import encode
from testudo_crazyflie.firmware.firmware_supervisor import State
from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflie, SimulatedCrazyflieSettings
from testudo_deploy.guard.flight_guard import ALONE_S, LAST_S, FlightGuard, GuardPhase
from testudo_deploy.guard.flight_messages import DesiredFlightState, FlightOrder
from testudo_hardware.links.crazyflie.vehicle_messages import STANDSTILL, VehicleAction, VehicleRequest
from testudo_hardware.links.crazyswarm2 import read_status
from testudo_hardware.links.flight_link import FlightAct, FlightRequest

ACTS = {
    FlightAct.ARM: VehicleAction.ARM,
    FlightAct.DISARM: VehicleAction.DISARM,
    FlightAct.TAKE_OFF: VehicleAction.TAKE_OFF,
    FlightAct.LAND: VehicleAction.LAND,
    FlightAct.NOTIFY_SETPOINTS_STOP: VehicleAction.NOTIFY,
    FlightAct.EMERGENCY: VehicleAction.EMERGENCY,
}
FALLS = {State.FREE_FALL, State.LOCKED, State.LEVEL_OUT, State.CRASHED}
STATUS_S = 0.2
"""The slowest status that an import lets pass."""


class Guarded:
    """A guard and a vehicle; requests and set-points arrive late, and a status tells how the vehicle was."""

    def __init__(self, *, late_s=0.03, **settings):
        self.now_s, self.late_s = 1000.0, late_s
        self.craft = SimulatedCrazyflie(SimulatedCrazyflieSettings.create(as_point=True, **settings), self.now_s)
        self.guard, self.wanted, self.stopped = FlightGuard(), DesiredFlightState.GROUND, False
        self.asked, self.states, self.on_its_way, self.lost = [], set(), [], lambda act: False
        self.set_points = 0

    def run(self, duration_s, until=None):
        begin_s = self.now_s
        while self.now_s < begin_s + duration_s - 1e-9:
            self._tick()
            if until is not None and until():
                return self.now_s - begin_s
        return None

    def phase_is(self, phase):
        return lambda: self.guard.phase is phase

    def fly(self):
        self.run(0.5)
        self.wanted = DesiredFlightState.TAKE_OFF
        assert self.run(6.0, lambda: self.height_m > 0.95), self.asked
        self.wanted = DesiredFlightState.FLY
        self.run(1.0)
        assert self.guard.phase is GuardPhase.FLY
        self.asked.clear()
        return self

    @property
    def height_m(self):
        return float(self.craft.vehicle.position[2])

    @property
    def stands(self):
        return self.height_m < 0.01 and not self.craft.vehicle.motors_on

    @property
    def acts(self):
        return [act for _, act in self.asked]

    def send(self, order):
        if not self.lost(order.act):
            self.on_its_way.append((self.now_s + self.late_s, order))

    def say(self, requests):
        for request in requests:
            self.asked.append((self.now_s, request.act))
            self.send(VehicleRequest(ACTS[request.act], height_m=request.height_m, duration_s=request.duration_s))

    def _tick(self):
        self.now_s += TICK_S
        self.craft.advance(self.now_s)
        tick = round(self.now_s / TICK_S)
        if tick % round(STATUS_S / TICK_S) == 0:
            status = SimpleNamespace(supervisor_info=self.craft.bits, battery_voltage=4.0, latency_unicast=5)
            self.guard.hear_vehicle(read_status(status, self.now_s), self.now_s)
        if tick % 5 == 0:
            if self.wanted is not None:
                order = FlightOrder("r0", self.now_s, str(self.wanted), 1.0, 2.0, 0.02, 3.0)
                self.guard.hear_order(order, self.now_s)
            self.say(self.guard.step(self.now_s, stopped=self.stopped))
        if tick % 2 == 0 and self.guard.streams:
            self.set_points += 1
            self.send(STANDSTILL)
        while self.on_its_way and self.on_its_way[0][0] <= self.now_s + 1e-9:
            self.craft.receive(encode(order_packet(self.on_its_way.pop(0)[1])), self.now_s)
        self.states.add(self.craft.supervisor.state)

    def end(self):
        """End the guard as its node does: no supervisor is left, and after `LAST_S` nobody speaks any more."""
        self.wanted = None
        self.say(self.guard.close(self.now_s))
        self.run(LAST_S, lambda: self.guard.ended)
        self.say(self.guard.last_requests(self.now_s))
        self.guard.step = lambda now_s, stopped: ()
        self.guard.phase, self.guard._bridge_s = GuardPhase.LAND, None
        assert not self.guard.streams


def loses_first(kind, count):
    """Return what loses the first orders of a kind."""
    left = [count]

    def lost(act):
        left[0] -= act == kind
        return act == kind and left[0] >= 0

    return lost


def test_arming_and_take_off_in_one_instant_leave_the_firmware_on_the_ground():
    """The negative control of waiting for the arming."""
    flight = Guarded(auto_arm=False)
    flight.run(0.5)
    for order in (
        VehicleRequest(VehicleAction.ARM),
        VehicleRequest(VehicleAction.TAKE_OFF, height_m=1.0, duration_s=2.0),
    ):
        flight.craft.receive(encode(order_packet(order)), flight.now_s)
    flight.run(3.0)
    assert flight.height_m < 0.01


@pytest.mark.parametrize("auto_arm", [True, False])
@pytest.mark.parametrize("lost", [None, VehicleAction.ARM, VehicleAction.TAKE_OFF, VehicleAction.NOTIFY])
def test_it_arms_waits_takes_off_flies_and_lands(auto_arm, lost):
    flight = Guarded(auto_arm=auto_arm)
    flight.lost = loses_first(lost, 1)
    flight.fly()
    flight.wanted = DesiredFlightState.LAND
    assert flight.run(6.0, lambda: flight.stands)
    flight.wanted = DesiredFlightState.GROUND
    assert flight.run(4.0, flight.phase_is(GuardPhase.GROUND))
    assert flight.acts.count(FlightAct.LAND) == 1, "while the firmware says that it flies, after its motors stopped"
    flight.run(1.0)
    assert flight.stands
    assert not FALLS & flight.states


@pytest.mark.parametrize("auto_arm", [True, False])
def test_the_set_points_of_one_flight_do_not_keep_it_on_the_ground_in_the_next(auto_arm):
    flight = Guarded(auto_arm=auto_arm).fly()
    flight.wanted = DesiredFlightState.LAND
    flight.run(4.0)
    flight.wanted = DesiredFlightState.GROUND
    assert flight.run(6.0, flight.phase_is(GuardPhase.GROUND))
    flight.asked.clear()
    flight.craft.commander.take(flight.craft.commander.set_point, RADIO, 0.0)  # as after one that came late
    flight.wanted = DesiredFlightState.TAKE_OFF
    assert flight.run(8.0, lambda: flight.height_m > 0.95)
    at = flight.acts.index(FlightAct.TAKE_OFF)
    assert flight.acts[at - 1] is FlightAct.NOTIFY_SETPOINTS_STOP


def test_set_points_end_only_once_the_planner_is_seen_at_work():
    flight = Guarded().fly()
    flight.wanted = DesiredFlightState.LAND
    flight.run(1.5)
    assert flight.acts == [FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP]
    (asked_s, _), (told_s, _) = flight.asked
    assert told_s - asked_s >= 0.1
    assert flight.craft.planner.is_active


@pytest.mark.parametrize("count", [1, 2])
def test_a_landing_that_is_lost_is_asked_for_again_and_the_drone_held_meanwhile(count):
    flight = Guarded().fly()
    flight.lost, flight.set_points = loses_first(VehicleAction.LAND, count), 0
    flight.wanted = DesiredFlightState.LAND
    assert flight.run(8.0, lambda: flight.stands)
    assert flight.set_points > 0
    assert flight.acts[: count + 2] == [FlightAct.LAND] * (count + 1) + [FlightAct.NOTIFY_SETPOINTS_STOP]
    assert not FALLS & flight.states


def test_told_the_other_way_a_landing_that_is_lost_drops_the_drone():
    """The negative control: the notice that comes without its landing cuts the motors."""
    flight = Guarded().fly()
    flight.guard.step = lambda now_s, stopped: ()
    flight.on_its_way.clear()
    flight.craft.receive(encode(order_packet(VehicleRequest(VehicleAction.NOTIFY))), flight.now_s)
    flight.guard.phase = GuardPhase.LAND
    flight.run(0.2)
    assert not flight.craft.vehicle.motors_on


def test_a_planner_that_is_stopped_in_the_air_is_begun_anew():
    """By a set-point that came late, or by somebody else's."""
    flight = Guarded().fly()
    flight.wanted = DesiredFlightState.LAND
    assert flight.run(1.0, lambda: FlightAct.NOTIFY_SETPOINTS_STOP in flight.acts)
    flight.run(0.2)
    flight.craft.receive(encode(order_packet(STANDSTILL)), flight.now_s)
    assert flight.run(8.0, lambda: flight.stands)
    assert flight.acts.count(FlightAct.LAND) == 2
    assert not FALLS & flight.states
    before = flight.set_points
    flight.run(3.0)
    assert flight.set_points == before, "on the ground none leaves"


def test_an_emergency_stop_on_the_ground_and_one_in_the_air():
    flight = Guarded(auto_arm=False)
    flight.lost = lambda act: act == VehicleAction.TAKE_OFF
    flight.run(0.5)
    flight.wanted = DesiredFlightState.TAKE_OFF
    flight.run(0.35)
    assert FlightAct.TAKE_OFF in flight.acts
    flight.stopped, flight.wanted = True, DesiredFlightState.FLY
    flight.run(5.0)
    assert flight.set_points == 0
    assert flight.stands
    flight = Guarded().fly()
    flight.stopped, height_m = True, flight.height_m
    flight.run(1.0)
    assert abs(flight.height_m - height_m) < 0.02


def test_without_a_supervisor_it_lands_alone():
    flight = Guarded().fly()
    flight.wanted = None
    assert flight.run(ALONE_S + ALONE_S + 5.0, lambda: flight.stands)
    assert not FALLS & flight.states


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_guard_that_ends_waits_for_the_planner_before_its_last_word(lost):
    """The process ends with a brake in the queue, which may come after its landing, or with the landing lost."""
    flight = Guarded().fly()
    flight.lost = loses_first(VehicleAction.LAND, lost)
    flight.end()
    assert flight.run(8.0, lambda: flight.stands)
    assert not FALLS & flight.states


def test_a_guard_that_ends_with_a_set_point_still_on_its_way_lands_its_drone():
    flight = Guarded().fly()
    flight.say(flight.guard.close(flight.now_s))
    flight.on_its_way.append((flight.now_s + 0.05, STANDSTILL))  # it comes after the landing, and stops the planner
    flight.end()
    assert flight.run(8.0, lambda: flight.stands)
    assert flight.acts.count(FlightAct.LAND) > 1
    assert not FALLS & flight.states


def test_a_guard_that_ends_during_the_climb_lands_although_its_first_landing_is_lost():
    """The planner is at work already, on the climb: that it is seen says nothing of the landing."""
    flight = Guarded()
    flight.run(0.5)
    flight.wanted = DesiredFlightState.TAKE_OFF
    assert flight.run(6.0, lambda: flight.height_m > 0.5)
    flight.lost = loses_first(VehicleAction.LAND, 1)
    flight.end()
    assert flight.run(8.0, lambda: flight.stands)
    assert not FALLS & flight.states


@pytest.mark.parametrize("lost", [0, 1])
def test_a_guard_that_says_all_at_once_drops_its_drone_if_the_landing_is_lost(lost):
    """The negative control: the last words of before, without waiting."""
    flight = Guarded().fly()
    flight.lost = loses_first(VehicleAction.LAND, lost)
    flight.wanted = None
    flight.say(flight.guard.close(flight.now_s))
    flight.say((FlightRequest(FlightAct.NOTIFY_SETPOINTS_STOP),))
    flight.guard.step = lambda now_s, stopped: ()
    flight.run(1.0)
    assert flight.craft.vehicle.motors_on == (lost == 0)


def test_a_guard_that_ends_while_nobody_hears_it_says_everything_once_more():
    flight = Guarded().fly()
    flight.lost = lambda act: True
    flight.end()
    assert flight.acts[-2:] == [FlightAct.LAND, FlightAct.NOTIFY_SETPOINTS_STOP]
