"""A climb that leaves its column, or into whose column somebody comes, ends in a landing; an honest one does not."""

import math

import numpy as np
import pytest
from tests.deploy.flying_pair import GROUND_M, World, with_phases
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.flight_column import ClimbLimits, ClimbVolume, unknown_robots_near
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_deploy.supervision.flight_phases import CLIMB_M_S, SETTLE_S
from testudo_deploy.supervision.modes import Event, Mode, Reaction, watchdog_of
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")
FOOT = (0.0, 0.0, GROUND_M)
TOP_M = 1.0


def limits(ceiling_m=3.0):
    return ClimbLimits.of(
        SPEC, ClimbVolume(Arena((-2.0, -2.0, 0.0), (2.0, 2.0, ceiling_m)), stop_tube_parameters(SPEC).wall_m)
    )


@pytest.fixture(scope="module")
def on_ground(tmp_path_factory):
    made = World(with_phases(make_tiny_fleet(tmp_path_factory.mktemp("drones"), 2, "crazyflie_2x", lane_m=0.7)))
    made.seconds(0.3)
    return made


@pytest.fixture
def climbing(on_ground):
    """Return two drones of which the first is on its way up, at half of it."""
    world = on_ground.copy()
    assert world.ask(Event.ARM).granted
    while world.drones[0].vehicle.place[2] < TOP_M / 2:
        world.tick()
    assert world.drones[0].mode is Mode.TAKE_OFF
    return world


def planned(top_m, count=400):
    """Return heights and speeds of the firmware's polynomial of degree seven from the ground to a height."""
    way_m = top_m - GROUND_M
    duration_s = way_m / CLIMB_M_S + SETTLE_S
    s = np.linspace(0.0, 1.0, count)
    height = GROUND_M + way_m * (35 * s**4 - 84 * s**5 + 70 * s**6 - 20 * s**7)
    return height, way_m / duration_s * 140 * s**3 * (1 - s) ** 3


@pytest.mark.parametrize("top_m", [0.3, 0.6, 1.0, 2.0, 2.7])
def test_the_planners_own_way_up_is_no_reason_even_right_below_the_ceiling(top_m):
    low = limits(top_m + stop_tube_parameters(SPEC).wall_m)
    for height_m, climb_m_s in zip(*planned(top_m), strict=True):
        assert low.fault(FOOT, top_m, (0.05, 0.0, height_m), climb_m_s) == ""


@pytest.mark.parametrize(
    ("place", "climb_m_s", "said"),
    [
        ((0.12, 0.0, 0.5), 0.4, "found 0.12 m beside its column, allowed 0.11 m"),
        ((0.0, -0.3, 0.5), 0.4, "found 0.30 m beside its column"),
        ((math.nan, 0.0, 0.5), 0.4, "found nan m beside its column"),
        ((0.0, 0.0, math.nan), 0.4, "found nan m of height"),
        ((0.0, 0.0, 0.5), math.nan, "found 0.50 m of height, rising by nan m/s"),
        ((0.0, 0.0, 0.5), 1.7, "found 0.50 m of height, rising by 1.70 m/s, so that it rests at"),
        ((0.0, 0.0, 1.4), 0.0, "found 1.40 m of height"),
    ],
)
def test_what_leaves_the_column_is_told(place, climb_m_s, said):
    assert limits().fault(FOOT, TOP_M, place, climb_m_s).startswith(said)


def test_the_ceiling_counts_before_the_column_of_others():
    near = limits(TOP_M + stop_tube_parameters(SPEC).wall_m)
    assert near.fault(FOOT, TOP_M, (0.0, 0.0, 1.1), 0.0)
    assert limits().fault(FOOT, TOP_M, (0.0, 0.0, 1.1), 0.0) == ""
    highest_m = near.highest_m + SPEC.body_radius_m
    assert highest_m < TOP_M + stop_tube_parameters(SPEC).wall_m  # the body is told of before it is at the ceiling


def drift(vehicle):
    vehicle.velocity[:2] = 0.3, 0.0


def shoot(vehicle):
    vehicle.end_m, vehicle.speed = 9.0, 1.6


@pytest.mark.parametrize("spoil", [drift, shoot])
def test_a_climb_that_leaves_its_column_lands_within_it(climbing, spoil):
    drone = climbing.drones[0]
    advance = drone.vehicle.advance

    def advanced(now_s, step_s):
        if drone.vehicle.state == "planner" and not drone.vehicle.landing:
            spoil(drone.vehicle)
            if spoil is drift:
                drone.vehicle.place[0] += 0.3 * step_s
        advance(now_s, step_s)

    drone.vehicle.advance = advanced
    foot, highest_m, aside_m = drone.vehicle.place.copy(), 0.0, 0.0
    climbing.until(Mode.LAND, 3.0)
    assert "climb_astray" in drone.robot.supervisor.reason
    for _ in range(round(8.0 / climbing.period_s)):
        climbing.tick()
        highest_m = max(highest_m, drone.vehicle.place[2])
        aside_m = max(aside_m, math.dist(foot[:2], drone.vehicle.place[:2]))
    assert highest_m < 2.0 - SPEC.body_radius_m  # the ceiling of the arena
    assert aside_m < stop_tube_parameters(SPEC).lane_m + stop_tube_parameters(SPEC).tube_error_m
    climbing.until(Mode.DISARMED, 10.0)
    assert drone.vehicle.place[2] == GROUND_M
    assert not drone.vehicle.lifted_by_set_point


def see_elsewhere(drone, moved):
    """Let a drone take poses whose places were changed by ``moved``."""
    taken = drone.robot.loop.on_odometry
    drone.robot.loop.on_odometry = lambda stamp, heard, place, yaw, speed: taken(stamp, heard, moved(place), yaw, speed)


def test_a_climb_without_poses_is_landed_by_its_vehicle(climbing):
    drone = climbing.drones[0]
    drone.sees = False
    took_s = climbing.until(Mode.LAND, 3.0)
    assert took_s < 1.2
    assert "pose_lost" in drone.robot.supervisor.reason
    climbing.until(Mode.DISARMED, 15.0)
    assert drone.vehicle.place[2] == GROUND_M


def test_a_climb_whose_poses_are_no_numbers_is_landed_by_its_vehicle(climbing):
    drone = climbing.drones[0]
    see_elsewhere(drone, lambda place: (math.nan,) * 3)
    climbing.until(Mode.LAND, 3.0)
    climbing.until(Mode.DISARMED, 15.0)
    assert drone.vehicle.place[2] == GROUND_M


def test_a_climb_whose_poses_jump_about_is_landed(climbing):
    drone = climbing.drones[0]
    see_elsewhere(drone, lambda place: (place[0] + 0.5, place[1], place[2]))
    took_s = climbing.until(Mode.LAND, 3.0)
    assert took_s < 1.3
    assert "climb_astray: its poses have not been valid" in drone.robot.supervisor.reason


def test_a_peer_that_comes_into_the_column_ends_the_climb(climbing):
    drone, other = climbing.drones
    away = other.vehicle.place.copy()
    other.vehicle.place[:] = (drone.vehicle.place[0], 0.1, 1.0)
    other.robot.loop._pose_validator.forget()
    climbing.until(Mode.LAND, 1.0)
    assert drone.robot.supervisor.reason == "column_entered: r1"
    assert watchdog_of("column_entered").reaction is Reaction.LAND
    stood_m = drone.vehicle.place[2]
    climbing.seconds(2.0)
    assert drone.vehicle.place[2] == pytest.approx(stood_m, abs=0.1)  # it hovers, and waits
    other.vehicle.place[:] = away
    other.robot.loop._pose_validator.forget()
    climbing.until(Mode.DISARMED, 10.0)
    assert drone.vehicle.place[2] == GROUND_M


@pytest.mark.parametrize(
    ("place", "near"),
    [
        ((0.0, 0.0, 0.5), True),
        ((0.6, 0.0, 0.9), True),
        ((0.0, 0.0, 2.0), True),
        ((math.nan, 0.0, 0.5), True),
        ((0.9, 0.0, 0.5), False),
        ((0.0, 0.0, 3.2), False),
    ],
)
def test_who_keeps_to_no_contract_is_told_of_near_the_column_only(place, near):
    lane = np.array([FOOT, (0.0, 0.0, TOP_M)])
    table = PeerTable(np.array(place)[:, None], np.zeros((3, 1)), np.array([0.05]), np.array([True]), np.array([True]))
    assert unknown_robots_near(SPEC, stop_tube_parameters(SPEC), lane, table).tolist() == [near]
    trusted = PeerTable(
        np.array(place)[:, None], np.zeros((3, 1)), np.array([0.05]), np.array([True]), np.array([False])
    )
    assert unknown_robots_near(SPEC, stop_tube_parameters(SPEC), lane, trusted).tolist() == [False]
