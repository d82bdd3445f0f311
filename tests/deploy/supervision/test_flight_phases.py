"""Whole flights, from the arming check-list to motors off, with real policy file, shield, supervisor and guards."""

import math

import pytest
from tests.deploy.flying_pair import GROUND_M, World, with_phases
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet import parse_fleet
from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.guard.flight_guard import ALONE_S, GuardPhase
from testudo_deploy.supervision.flight_phases import BATTERY_LOW_S, HOVER_S, FlightSupervisor
from testudo_deploy.supervision.modes import Event, Mode
from testudo_hardware.links.flight_link import FlightAct, FlightRequest

TOP_M = 1.0
LANE_M = 0.7
"""Drones keep 0.6 m from one another, and 0.22 m from the walls, which are at 1 m."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return with_phases(make_tiny_fleet(tmp_path_factory.mktemp("drones"), 2, "crazyflie_2x", lane_m=LANE_M))


@pytest.fixture(scope="module")
def on_ground(fleet):
    made = World(fleet)
    made.seconds(0.3)
    return made


@pytest.fixture(scope="module")
def in_air(on_ground):
    made = on_ground.copy()
    for index in range(2):
        assert made.ask(Event.ARM, index).granted, made.ask(Event.ARM, index).sentence
    made.until(Mode.HOLD, 12.0)
    made.seconds(1.2)
    return made


@pytest.fixture(scope="module")
def on_its_way(in_air):
    made = in_air.copy()
    assert made.ask(Event.START).granted
    made.seconds(0.5)
    assert made.drones[0].mode is Mode.ACTIVE
    return made


@pytest.fixture
def world(on_ground):
    return on_ground.copy()


@pytest.fixture
def hovering(in_air):
    return in_air.copy()


@pytest.fixture
def active(on_its_way):
    return on_its_way.copy()


def test_a_whole_flight(world):
    drone = world.drones[0]
    assert (drone.mode, drone.flight.phase) == (Mode.DISARMED, GuardPhase.GROUND)
    assert world.ask(Event.ARM).granted
    world.until(Mode.HOLD, 12.0)
    assert drone.vehicle.place[2] == pytest.approx(TOP_M, abs=0.15)
    world.seconds(1.2)
    assert math.dist(drone.vehicle.place, (-0.6, 0.0, TOP_M)) < 0.15
    assert world.ask(Event.START).granted
    world.seconds(2.0)
    assert drone.vehicle.place[0] > -0.5  # the policy flies
    assert world.ask(Event.LAND).granted
    world.until(Mode.DISARMED, 15.0)
    world.tick(2)
    assert drone.vehicle.place[2] == GROUND_M
    assert not drone.vehicle.armed
    assert not drone.vehicle.lifted_by_set_point
    end = FlightAct.NOTIFY_SETPOINTS_STOP
    assert drone.vehicle.acts == [FlightAct.ARM, end, FlightAct.TAKE_OFF, FlightAct.LAND, end, FlightAct.DISARM]
    assert {reason.partition(":")[0] for reason in drone.reasons} <= {
        "no_pose",
        "peer_unheard",
        "disarmed",
        "take_off",
        "hold",
        "",
        "land",
        "peer_unaware",  # it stands where it did not own the ground
    }


def test_away_from_its_start_it_does_not_take_off_again_before_it_was_carried_back(active):
    active.seconds(1.0)
    active.ask(Event.LAND)
    active.until(Mode.DISARMED, 15.0)
    active.seconds(0.3)
    assert active.ask(Event.ARM).code == "not_at_start"


def test_the_column_above_a_drone_that_stands_is_its_own(world):
    announced = world.drones[0].robot.loop.announcement(world.now_s)
    (_, _, foot), (_, _, top) = announced.reserved_segment_world
    assert foot == pytest.approx(GROUND_M, abs=0.01)
    assert top == TOP_M


def test_below_another_drone_nobody_takes_off_and_the_other_is_not_disturbed(hovering):
    lower, upper = hovering.drones
    hovering.ask(Event.LAND)
    hovering.until(Mode.DISARMED, 15.0)
    upper.vehicle.place[:2] = lower.vehicle.place[:2]  # as if it had flown there
    hovering.drones[1].robot.loop._pose_validator.forget()
    hovering.seconds(0.5)
    assert hovering.ask(Event.ARM).code in ("column_taken", "too_close")
    assert lower.vehicle.place[2] == GROUND_M


SPOILT = {
    "vehicle_unheard": lambda drone: setattr(drone.vehicle, "talks", False),
    "vehicle_tumbled": lambda drone: setattr(drone.vehicle, "tumbled", True),
    "vehicle_not_ready": lambda drone: vars(drone.vehicle).update(can_fly=False, armed=True),
    "radio_slow": lambda drone: setattr(drone.vehicle, "latency_s", 0.06),
    "not_level": lambda drone: setattr(drone, "tilt_rad", math.radians(15)),
    "stale_pose": lambda drone: setattr(drone, "sees", False),
}


@pytest.mark.parametrize("code", SPOILT)
def test_the_check_list_refuses(world, code):
    SPOILT[code](world.drones[0])
    world.seconds(2.5)
    answer = world.ask(Event.ARM)
    assert (answer.granted, answer.code) == (False, code)
    assert not world.drones[0].vehicle.acts


def test_the_check_list_looks_at_the_place(fleet):
    world = World(fleet)
    world.drones[0].vehicle.place[0] += 0.2
    world.seconds(0.5)
    answer = world.ask(Event.ARM)
    assert answer.code == "not_at_start"
    assert "0.20 m beside it" in answer.sentence


def test_the_check_list_looks_at_the_controller(fleet):
    world = World(with_phases(fleet, controller="pid"))
    world.drones[0].vehicle.controller = "mellinger"
    world.seconds(0.5)
    answer = world.ask(Event.ARM)
    assert answer.code == "wrong_controller"
    assert "found mellinger, expected pid" in answer.sentence
    world.drones[0].vehicle.controller = "pid"
    world.seconds(0.1)
    assert world.ask(Event.ARM).granted


def test_a_peer_has_to_be_heard(fleet):
    world = World(fleet)
    world.drones[1].policy_lives = False
    world.seconds(0.5)
    assert world.ask(Event.ARM).code == "peer_unheard"


def test_a_battery_that_is_not_full_stays_on_the_ground(world):
    world.drones[0].vehicle.volts = 3.7
    world.seconds(0.2)
    answer = world.ask(Event.ARM)
    assert answer.code == "battery_not_full"
    assert "found 3.70 V, expected 3.8 V or more" in answer.sentence
    assert world.drones[0].robot.status(world.now_s).values["battery"] == "3.70 V"
    world.drones[0].vehicle.volts = None
    world.seconds(0.2)
    assert "does not tell its voltage" in world.ask(Event.ARM).sentence


def test_a_low_battery_lands_and_a_dip_does_not(active):
    drone = active.drones[0]
    drone.vehicle.volts = 3.1
    active.seconds(BATTERY_LOW_S - 0.5)
    drone.vehicle.volts = 3.3
    active.seconds(1.0)
    assert drone.mode is Mode.ACTIVE
    drone.vehicle.volts = 3.1
    assert active.until(Mode.LAND, BATTERY_LOW_S + 0.5) >= BATTERY_LOW_S - 0.1
    assert "battery_low: 3.10 V" in drone.robot.supervisor.reason
    active.until(Mode.DISARMED, 15.0)
    assert drone.vehicle.place[2] == GROUND_M


def test_an_emergency_stop_hovers_then_lands_and_the_motors_stay_off(active):
    drone = active.drones[0]
    drone.guard.hear_estop(True, "/estop")
    active.tick(2)
    assert drone.mode is Mode.EMERGENCY
    active.seconds(0.8)
    assert math.hypot(*drone.vehicle.velocity) < 0.05
    height_m = drone.vehicle.place[2]
    active.seconds(HOVER_S - 1.0)
    assert drone.vehicle.place[2] == pytest.approx(height_m, abs=0.05)
    active.until(Mode.DISARMED, 15.0)
    assert drone.vehicle.place[2] == GROUND_M
    assert active.ask(Event.ARM).code == "estop"
    drone.guard.hear_estop(False, "/estop")
    assert drone.guard.rearm().granted


def test_after_an_emergency_stop_with_a_dead_policy_the_guard_lands(active):
    drone = active.drones[0]
    drone.policy_lives = False
    drone.guard.hear_estop(True, "/estop")
    active.seconds(1.5)
    assert math.hypot(*drone.vehicle.velocity) < 0.05
    active.seconds(ALONE_S + 6.0)
    assert drone.vehicle.place[2] == GROUND_M
    assert not drone.vehicle.armed


def test_silence_ends_in_a_brake_hover_by_the_guard(active):
    """The vehicle never levels out, which is no brake, and never cuts its motors."""
    drone = active.drones[0]
    active.seconds(0.5)
    assert math.hypot(*drone.vehicle.velocity) > 0.1
    drone.policy_lives = False
    place = drone.vehicle.place.copy()
    active.seconds(3.0)
    assert math.hypot(*drone.vehicle.velocity) < 0.01
    assert math.dist(drone.vehicle.place, place) < 0.4
    assert drone.vehicle.state == "set-points"
    assert active.now_s - drone.vehicle.heard_s < 0.1


def test_the_same_silence_without_the_guards_set_points_falls(active):
    """The control of the test before: what it would see if the guard were silent, too."""
    drone = active.drones[0]
    drone.policy_lives = False
    drone.send = lambda values, now_s: None
    active.seconds(3.0)
    assert drone.vehicle.place[2] == GROUND_M


def test_a_policy_that_comes_back_while_its_guard_hovers_flies_on(active):
    drone = active.drones[0]
    drone.policy_lives = False
    active.seconds(1.0)
    drone.policy_lives = True
    active.seconds(0.3)
    assert drone.mode is Mode.HOLDING
    active.until(Mode.ACTIVE, 4.0)


def test_a_policy_that_comes_back_while_its_guard_lands_lands(active):
    drone = active.drones[0]
    drone.policy_lives = False
    active.seconds(ALONE_S + 1.0)
    assert drone.flight.phase is GuardPhase.LAND
    drone.policy_lives = True
    active.tick(3)
    assert drone.mode in (Mode.LAND, Mode.EMERGENCY)
    active.until(Mode.DISARMED, 15.0)
    assert drone.vehicle.place[2] == GROUND_M


def test_without_a_pose_it_hovers_and_then_its_vehicle_lands_it(active):
    drone = active.drones[0]
    drone.sees = False
    active.seconds(0.5)
    assert drone.mode is Mode.HOLDING
    active.seconds(1.5)
    assert drone.mode is Mode.LAND
    assert FlightAct.LAND in drone.vehicle.acts
    active.until(Mode.DISARMED, 15.0)


def test_a_take_off_that_does_not_lift_is_given_up(world):
    drone = world.drones[0]
    drone.vehicle.obey = lambda request: drone.vehicle.acts.append(request.act)
    assert world.ask(Event.ARM).granted
    world.until(Mode.LAND, 18.0)
    assert "no_take_off" in drone.robot.supervisor.reason
    world.until(Mode.DISARMED, 15.0)


def test_motors_off_falls_and_ends_on_the_ground(active):
    drone = active.drones[0]
    drone.guard.hear_estop(True, "/estop")
    active.tick(2)
    for request in drone.flight.motors_off(active.now_s, stopped=drone.stopped).requests:
        drone.vehicle.obey(request)
    active.seconds(3.0)
    assert drone.vehicle.place[2] == GROUND_M
    assert drone.mode is Mode.DISARMED
    assert not active.ask(Event.ARM).granted


@pytest.mark.parametrize("aside_m", [0.0, 0.05])
def test_a_landing_does_not_end_on_a_drone_that_stands_there(hovering, aside_m):
    """It waits above it, or goes around."""
    lower, upper = hovering.drones
    hovering.ask(Event.LAND, 0)
    hovering.until(Mode.DISARMED, 15.0)
    upper.vehicle.place[:2] = lower.vehicle.place[0] + aside_m, lower.vehicle.place[1]
    upper.robot.loop._pose_validator.forget()
    hovering.seconds(0.5)
    assert hovering.ask(Event.LAND, 1).granted
    hovering.least_m = math.inf
    hovering.seconds(8.0)
    assert hovering.least_m > 2 * upper.robot.spec.body_radius_m + 0.1
    beside_m = math.dist(upper.vehicle.place[:2], lower.vehicle.place[:2])
    assert upper.mode is Mode.LAND or beside_m > 2 * upper.robot.spec.body_radius_m


def test_the_recorded_shield_of_a_landing_is_told_apart_from_a_brake(hovering):
    drone = hovering.drones[0]
    hovering.ask(Event.LAND)
    hovering.seconds(0.5)
    record = drone.robot._last
    assert record.reason == "land"
    assert record.nominal_world == (0.0, 0.0, -0.3)
    assert record.sent_command[2] < 0
    assert not record.decided


def test_without_limits_of_its_battery_nobody_looks_at_it():
    flight = FlightSupervisor((0.0, 0.0, 1.0), None)
    assert flight._battery_check() == ""


def test_drones_that_stand_on_the_ground_cannot_begin_above_one_another(fleet):
    text = fleet.file.read_text()
    assert text.count(f"{LANE_M}, 1.0]") == 2  # start and goal of r1
    stacked = text.replace(f"[-0.6, {LANE_M}, 1.0]", "[-0.6, 0.0, 1.6]")
    assert parse_fleet(stacked, fleet.file).names == ("r0", "r1")  # in the air already
    stacked = stacked.replace("type: crazyflie_2x", "type: crazyflie_2x\n    link: testudo_flight")
    with pytest.raises(FleetError, match=r"robots\.r1\.initial_position: is 0 m from that of r0"):
        parse_fleet(stacked, fleet.file)


def test_a_drone_that_its_driver_keeps_still_waits_and_goes_on(active):
    drone = active.drones[0]
    drone.vehicle.holds = "uplink_silent"
    active.seconds(0.1)
    assert drone.mode is Mode.HOLDING
    assert drone.robot.supervisor.reason == "vehicle_holds: uplink_silent"
    active.seconds(1.5)
    drone.vehicle.holds = ""
    active.seconds(1.5)
    assert drone.mode is Mode.ACTIVE


def test_a_drone_that_stands_still_without_a_word_of_its_driver_is_broken(active):
    """The control of the test before."""
    drone = active.drones[0]
    drone.vehicle.holds, drone.vehicle.says_why = "uplink_silent", False
    active.seconds(1.0)
    assert drone.mode is Mode.EMERGENCY
    assert drone.robot.supervisor.reason.startswith("no_response")


def refuses_to_climb(drone):
    """Let the vehicle of a drone obey everything but a take-off, as firmware that is busy does."""
    obey = drone.vehicle.obey
    drone.vehicle.obey = lambda request: None if request.act is FlightAct.TAKE_OFF else obey(request)


def test_an_emergency_stop_while_it_still_stands_keeps_its_motors_off(world):
    drone = world.drones[0]
    assert world.ask(Event.ARM).granted
    refuses_to_climb(drone)
    world.seconds(0.3)
    drone.guard.hear_estop(True, "/estop")
    world.seconds(4.0)
    assert not drone.vehicle.lifted_by_set_point
    assert not drone.vehicle.armed
    assert drone.mode is Mode.DISARMED


def test_a_policy_that_dies_while_it_still_stands_keeps_its_motors_off(world):
    drone = world.drones[0]
    assert world.ask(Event.ARM).granted
    refuses_to_climb(drone)
    world.seconds(0.5)
    drone.policy_lives = False
    world.seconds(6.0)
    assert not drone.vehicle.lifted_by_set_point
    assert not drone.vehicle.armed


def test_a_vehicle_that_needs_to_be_armed_first_takes_off(world):
    """It blocks a take-off that comes with the arming."""
    drone = world.drones[0]
    drone.vehicle.obey(FlightRequest(FlightAct.ARM))
    drone.vehicle.obey(FlightRequest(FlightAct.TAKE_OFF, 1.0, 2.0))
    world.tick()
    assert drone.vehicle.state == "ground", "the control of this test"
    drone.vehicle.obey(FlightRequest(FlightAct.DISARM))
    world.tick()
    assert world.ask(Event.ARM).granted
    world.until(Mode.HOLD, 12.0)
