"""The modes of a robot that flies: every transition of its column, every watchdog, and nothing beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.guard.command_guard import HEALTHY_S, STOP_CODES
from testudo_deploy.supervision.modes import (
    BEGINNING,
    RESTING,
    TRANSITIONS,
    WATCHDOGS,
    Event,
    Mode,
    Reaction,
    VehicleKind,
)
from testudo_deploy.supervision.supervisor import GUARD_GONE_S, GuardReport, Supervisor

TICK_S = 0.0625
TABLE = TRANSITIONS[VehicleKind.FLIGHT]
MODES = (Mode.DISARMED, Mode.TAKE_OFF, Mode.HOLD, Mode.ACTIVE, Mode.HOLDING, Mode.LAND, Mode.EMERGENCY)
UP = (Mode.TAKE_OFF, Mode.HOLD, Mode.ACTIVE, Mode.HOLDING, Mode.LAND, Mode.EMERGENCY)
ASKED = (Event.ARM, Event.START, Event.STOP, Event.LAND, Event.DEACTIVATE)


class Drone:
    """A supervisor with a guard that reports and a loop that ticks."""

    def __init__(self):
        self.now_s, self.guard_code, self.guard_alive = 100.0, "", True
        self.rearms = 0
        self.supervisor = Supervisor(now_s=self.now_s, kind=VehicleKind.FLIGHT)

    @property
    def mode(self):
        return self.supervisor.mode

    def tick(self, *doubts, count=1):
        for _ in range(count):
            self.now_s += TICK_S
            if self.guard_alive:
                self.supervisor.hear_guard(GuardReport(self.now_s, self.guard_code, "", "first", self.rearms))
            self.supervisor.observe(self.now_s, *doubts)
        return self.mode

    def ask(self, event):
        return self.supervisor.request(event, self.now_s)

    def arrive(self, event):
        return self.supervisor.arrive(event, self.now_s)


def drone_in(mode):
    """Return a drone that came to a mode by what operators, vehicles and faults do."""
    drone = Drone()
    drone.tick(count=2)
    if mode is Mode.DISARMED:
        return drone
    assert drone.ask(Event.ARM).granted
    if mode is Mode.TAKE_OFF:
        return drone
    assert drone.arrive(Event.REACH)
    if mode is Mode.HOLD:
        return drone
    assert drone.ask(Event.START).granted
    if mode is Mode.HOLDING:
        drone.tick("stale_pose")
    elif mode is Mode.LAND:
        assert drone.ask(Event.LAND).granted
    elif mode is Mode.EMERGENCY:
        drone.guard_code = "estop"
        drone.tick()
        drone.guard_code = ""
    assert drone.mode is mode
    return drone


def test_the_modes_of_the_table_are_those_of_flight_and_each_is_reached():
    assert {mode for mode, _ in TABLE} | set(TABLE.values()) == set(MODES)
    assert BEGINNING[VehicleKind.FLIGHT] is Mode.DISARMED
    for mode in MODES:
        drone_in(mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_policy_drives_an_active_drone_only(mode):
    assert (drone_in(mode).supervisor.order == "") == (mode is Mode.ACTIVE)


@pytest.mark.parametrize("event", ASKED)
@pytest.mark.parametrize("mode", MODES)
def test_requests_are_granted_as_the_table_says(mode, event):
    drone = drone_in(mode)
    answer = drone.ask(event)
    target = TABLE.get((mode, event))
    assert answer.granted == (target is not None)
    assert drone.mode is (target or mode)
    assert answer.granted or "must be" in answer.sentence


@pytest.mark.parametrize("event", sorted(set(Event) - set(ASKED)))
@pytest.mark.parametrize("mode", MODES)
def test_nobody_can_ask_for_what_only_watchdogs_and_vehicles_tell(mode, event):
    drone = drone_in(mode)
    assert not drone.ask(event).granted
    assert drone.mode is mode


@pytest.mark.parametrize("event", [Event.REACH, Event.TOUCH, Event.START, Event.ARM])
@pytest.mark.parametrize("mode", MODES)
def test_a_vehicle_tells_of_its_start_height_and_of_the_ground_only(mode, event):
    drone = drone_in(mode)
    told = drone.arrive(event)
    known = event in (Event.REACH, Event.TOUCH)
    assert drone.mode is (TABLE.get((mode, event), mode) if known else mode)
    assert told == (known and (mode, event) in TABLE)


@pytest.mark.parametrize("code", sorted(set(WATCHDOGS) - {"guard_silent", "guard_late", *STOP_CODES, "guard_brakes"}))
@pytest.mark.parametrize("mode", MODES)
def test_every_watchdog_does_in_every_mode_what_its_reaction_says(mode, code):
    drone = drone_in(mode)
    in_air = mode in UP
    expected = {
        Reaction.BRAKE: mode,
        Reaction.REFUSE: mode,
        Reaction.HOLD: Mode.HOLDING if mode is Mode.ACTIVE else mode,
        Reaction.LAND: Mode.LAND if in_air and mode is not Mode.EMERGENCY else mode,
        Reaction.FAULT: Mode.EMERGENCY if in_air else mode,
    }[WATCHDOGS[code].reaction]
    assert drone.tick(f"{code}: details") is expected
    if expected is not mode:
        assert code in drone.supervisor.order
        assert WATCHDOGS[code].sentence in drone.supervisor.sentence


@pytest.mark.parametrize("mode", UP)
def test_a_reason_that_nobody_knows_is_an_emergency_in_the_air(mode):
    assert drone_in(mode).tick("something new: x") is Mode.EMERGENCY


@pytest.mark.parametrize("code", sorted(set(WATCHDOGS) - {"guard_silent", "guard_late", "estop", "guard_brakes"}))
def test_no_reason_lets_a_drone_on_the_ground_take_off(code):
    drone = drone_in(Mode.DISARMED)
    drone.tick(f"{code}: details")
    answer = drone.ask(Event.ARM)
    assert not answer.granted
    assert answer.code == code
    assert drone.mode is Mode.DISARMED


def test_the_worst_of_several_reasons_counts():
    drone = drone_in(Mode.ACTIVE)
    assert drone.tick("stale_pose", "battery_low: 3.1 V") is Mode.LAND
    assert drone.tick("stale_pose", "vehicle_tumbled") is Mode.EMERGENCY


@pytest.mark.parametrize("mode", UP)
def test_an_emergency_stop_is_an_emergency_and_ends_on_the_ground_alone(mode):
    drone = drone_in(mode)
    drone.guard_code = "estop"
    assert drone.tick() is Mode.EMERGENCY
    drone.guard_code, drone.rearms = "", 1  # taken back by hand
    assert drone.tick(count=round(3 * HEALTHY_S / TICK_S)) is Mode.EMERGENCY
    for event in ASKED:
        drone.ask(event)
        assert drone.mode is Mode.EMERGENCY
    assert drone.arrive(Event.TOUCH)
    assert drone.mode is Mode.DISARMED


def test_an_emergency_stop_keeps_a_drone_on_the_ground():
    drone = drone_in(Mode.DISARMED)
    drone.guard_code = "estop"
    drone.tick()
    assert drone.ask(Event.ARM).code == "estop"


@pytest.mark.parametrize("mode", UP)
def test_without_its_guard_a_drone_in_the_air_is_an_emergency(mode):
    drone = drone_in(mode)
    drone.guard_alive = False
    assert drone.tick(count=round(GUARD_GONE_S / TICK_S) + 2) is Mode.EMERGENCY


@pytest.mark.parametrize("mode", [Mode.TAKE_OFF, Mode.HOLD, Mode.ACTIVE, Mode.HOLDING, Mode.LAND])
def test_who_deactivates_a_drone_in_the_air_lands_it(mode):
    drone = drone_in(mode)
    assert drone.ask(Event.DEACTIVATE).granted
    assert drone.mode is Mode.LAND


@pytest.mark.parametrize(("code", "wants"), [("silence", True), ("starting", True), ("second_publisher", False)])
def test_while_the_vehicle_climbs_a_guard_that_waits_for_commands_is_no_reason(code, wants):
    drone = drone_in(Mode.TAKE_OFF)
    drone.guard_code = code
    assert drone.tick() is Mode.TAKE_OFF
    assert (drone.supervisor.reason == "") == wants


def test_a_drone_is_not_started_while_its_guard_holds_commands_back():
    drone = drone_in(Mode.TAKE_OFF)
    drone.guard_code = "starting"
    drone.tick()
    drone.arrive(Event.REACH)
    drone.tick()
    assert drone.ask(Event.START).code == "guard_brakes"
    drone.guard_code = ""
    drone.tick()
    assert drone.ask(Event.START).granted


WORDS = [
    "",
    "stale_pose",
    "battery_low: 3.0 V",
    "brakes_weak",
    "nonsense",
    "arm",
    "start",
    "stop",
    "land",
    "deactivate",
    "guard dies",
    "guard lives",
    "estop",
    "released",
    "reach",
    "touch",
]


@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_no_sequence_of_words_leaves_the_table_or_drives_without_a_start(story):
    """Every change is one of the table, and the policy drives only if it was started, with nothing wrong."""
    drone = Drone()
    for word in story:
        before = drone.mode
        doubt = ""
        if word in [str(event) for event in ASKED]:
            drone.ask(Event(word))
        elif word in ("reach", "touch"):
            drone.arrive(Event(word))
        else:
            drone.guard_alive = {"guard dies": False, "guard lives": True}.get(word, drone.guard_alive)
            drone.guard_code = {"estop": "estop", "released": ""}.get(word, drone.guard_code)
            drone.rearms += word == "released"
            doubt = word if word not in ("", "guard dies", "guard lives", "estop", "released") else ""
            drone.tick(doubt)
        after = drone.mode
        assert after in MODES
        assert after is before or after in {target for (mode, _), target in TABLE.items() if mode is before}
        if after is Mode.ACTIVE:
            assert not doubt
            assert before in (Mode.HOLD, Mode.ACTIVE, Mode.HOLDING)
            assert before is not Mode.HOLD or word == "start"
            assert drone.guard_code != "estop" or word not in WORDS[:5]
        if before in RESTING and after not in RESTING:
            assert word == "arm"
        if before in UP and after in RESTING:
            assert word == "touch"
        if before is Mode.EMERGENCY:
            assert after in (Mode.EMERGENCY, Mode.DISARMED)
