"""No shield looks at a climb: where it may begin and end is checked before, on file and on the ground."""

import math
from dataclasses import replace

import pytest
from tests.deploy.flying_pair import World, with_phases
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule
from testudo_deploy.shield.flight_column import ClimbVolume
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.supervision.flight_phases import FlightSupervisor
from testudo_deploy.supervision.modes import Event, Mode
from testudo_hardware.spec import load_robot

WALL_M = stop_tube_parameters(load_robot("crazyflie_2x")).wall_m
LOW, HIGH = (-1.6, -1.0, 0.0), (1.6, 1.0, 2.0)
ROOM = ClimbVolume(Arena(LOW, HIGH), 0.2)


def starts(fleet, place):
    """Return a fleet whose first drone begins at a place."""
    first, *others = fleet.robots
    return replace(fleet, robots=(replace(first, initial_position_world=place), *others))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = with_phases(make_tiny_fleet(tmp_path_factory.mktemp("drones"), 2, "crazyflie_2x", lane_m=0.7))
    arena = PolicyArtefact.load(made.policy).contract.arena
    assert (tuple(arena.low_world), tuple(arena.high_world)) == (LOW, HIGH)
    return made


@pytest.mark.parametrize(
    ("foot", "top_m", "said"),
    [
        ((0.0, 0.0, 0.02), 1.0, ""),
        ((0.0, 0.0, -0.5), 1.8, ""),
        ((0.0, 0.0, 0.02), 1.81, "found z = 1.81 m at the end of the climb, allowed 0.20 to 1.80 m"),
        ((0.0, 0.0, 0.02), 6.0, "found z = 6.00 m at the end of the climb, allowed 0.20 to 1.80 m"),
        ((0.0, 0.0, 0.02), 0.1, "found z = 0.10 m at the end of the climb, allowed 0.20 to 1.80 m"),
        ((-5.0, 0.0, 0.02), 1.0, "found x = -5.00 m at the end of the climb, allowed -1.40 to 1.40 m"),
        ((0.0, 0.85, 0.02), 1.0, "found y = 0.85 m at the end of the climb, allowed -0.80 to 0.80 m"),
        ((math.nan, 0.0, 0.02), 1.0, "found x = nan m at the end of the climb, allowed -1.40 to 1.40 m"),
    ],
)
def test_a_climb_ends_between_walls_floor_and_ceiling(foot, top_m, said):
    assert ROOM.fault(foot, top_m) == said


@pytest.mark.parametrize(
    "obstacle",
    [
        Ball((0.3, 0.0, 0.6), 0.15),
        Capsule((0.3, -1.0, 0.6), (0.3, 1.0, 0.6), 0.15),
        Block((0.3, 0.0, 0.6), (0.15,) * 3, 0.0),
    ],
    ids=lambda one: one.kind,
)
def test_a_climb_passes_no_obstacle(obstacle):
    room = ClimbVolume(Arena(LOW, HIGH, (obstacle,)), 0.2)
    said = f"found 0.15 m from obstacle 0 ({obstacle.kind}) on the way up to 1.50 m, allowed 0.20 m or more"
    assert room.fault((0.0, 0.0, 0.02), 1.5) == said
    assert room.fault((-0.1, 0.0, 0.02), 1.5) == ""
    assert room.fault((0.3, 0.0, 0.02), 1.5).startswith("found 0.00 m from obstacle 0")


def test_without_an_arena_nothing_is_in_the_way():
    assert ClimbVolume(None, 0.2).fault((50.0, 0.0, 0.02), 90.0) == ""


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((-0.6, 0.0, 6.0), f"found z = 6.00 m at the end of the climb, allowed {WALL_M:.2f} to {2 - WALL_M:.2f} m"),
        ((-0.6, 0.0, 1.9), f"found z = 1.90 m at the end of the climb, allowed {WALL_M:.2f} to {2 - WALL_M:.2f} m"),
        ((-5.6, 0.0, 1.0), f"found x = -5.60 m at the end of the climb, allowed {WALL_M - 1.6:.2f} to"),
    ],
)
def test_a_start_that_the_arena_cannot_hold_is_refused_as_the_robot_is_configured(fleet, place, said):
    spoilt = starts(fleet, place)
    for begin in (checked_safety_contracts, World):
        with pytest.raises(FleetError, match=r"robots\.r0\.initial_position: ") as refused:
            begin(spoilt)
        assert said in str(refused.value)


def test_a_drone_that_is_in_the_air_anyway_begins_where_it_is(fleet):
    aloft = tuple(
        replace(robot, link=replace(robot.link, profile=replace(robot.link.profile, flight=None)))
        for robot in fleet.robots
    )
    assert checked_safety_contracts(starts(replace(fleet, robots=aloft), (-0.6, 0.0, 1.9)))


def test_the_check_list_looks_at_the_column_above_where_the_drone_stands(fleet):
    """Its start is just within the margin, but it stands nearer to the wall than that."""
    world = World(starts(fleet, (-1.6 + WALL_M + 0.03, 0.0, 1.0)))
    world.drones[0].vehicle.place[0] -= 0.08
    world.seconds(0.3)
    answer = world.ask(Event.ARM)
    assert (answer.granted, answer.code) == (False, "outside_arena")
    assert f"found x = {WALL_M - 1.65:.2f} m at the end of the climb, allowed {WALL_M - 1.6:.2f} to" in answer.sentence
    world.seconds(1.0)
    assert world.drones[0].mode is Mode.DISARMED
    assert not world.drones[0].vehicle.acts
    world.drones[0].vehicle.place[0] += 0.08
    world.drones[0].robot.loop._pose_validator.forget()
    world.seconds(0.5)
    assert world.ask(Event.ARM).granted


def test_an_obstacle_above_a_drone_keeps_it_down():
    lamp = Ball((0.0, 0.0, 0.7), 0.1)
    flight = FlightSupervisor((0.0, 0.0, 1.0), None, room=ClimbVolume(Arena(LOW, HIGH, (lamp,)), 0.2))
    found = flight.reasons(Mode.DISARMED, 0.0, 1.0, (0.02, 0.0, 0.02), "ground")
    assert any(reason.startswith("outside_arena: found 0.00 m from obstacle 0 (ball)") for reason in found)
