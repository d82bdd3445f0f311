"""A vehicle that lands by itself asks for the column below it, with a pose or without, and nobody comes into it."""

import math

import numpy as np
import pytest
from tests.deploy.flying_pair import GROUND_M, World, with_phases
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.shield.flight_column import requesting_landing_column
from testudo_deploy.shield.reservations import ReservedSpace, conflicts, reserved_at_rest
from testudo_deploy.supervision.modes import Event, Mode


@pytest.fixture(scope="module")
def in_air(tmp_path_factory):
    made = World(with_phases(make_tiny_fleet(tmp_path_factory.mktemp("drones"), 2, "crazyflie_2x", lane_m=0.7)))
    made.seconds(0.3)
    for index in range(2):
        assert made.ask(Event.ARM, index).granted
    made.until(Mode.HOLD, 12.0)
    made.seconds(1.2)
    return made


@pytest.fixture
def hovering(in_air):
    return in_air.copy()


def announced(world, index=0):
    return world.drones[index].robot.loop.announcement(world.now_s)


def heard_of(world, speaker, hearer):
    """Return the newest message of one drone that the other has."""
    name = world.drones[speaker].robot.name
    return world.drones[hearer].robot.loop._peers._newest[name].message


def test_it_asks_for_the_column_and_keeps_what_it_owns():
    space = reserved_at_rest(np.array([1.0, 2.0, 0.9]))
    asked = requesting_landing_column(space, np.array([1.1, 2.0, 0.8]), 0.02)
    np.testing.assert_array_equal(asked.announced_world, [[1.1, 2.0, 0.8], [1.1, 2.0, 0.02]])
    np.testing.assert_array_equal(asked.owned_world, space.owned_world)
    assert isinstance(asked, ReservedSpace)
    assert not asked.pending
    below = requesting_landing_column(space, np.array([1.1, 2.0, -0.1]), 0.02)
    np.testing.assert_array_equal(below.announced_world, [[1.1, 2.0, -0.1]] * 2)


def test_the_last_way_down_is_announced(hovering):
    drone = hovering.drones[0]
    assert hovering.ask(Event.LAND).granted
    hovering.tick()
    while drone.robot.flight.intent(drone.mode, 0.0, hovering.now_s).velocity_world is not None:
        hovering.tick()
    hovering.tick(3)
    top, foot = announced(hovering).requested_segment_world
    assert top == pytest.approx(tuple(drone.vehicle.place), abs=0.03)
    assert foot == pytest.approx((*drone.vehicle.place[:2], GROUND_M), abs=0.03)
    hovering.until(Mode.DISARMED, 10.0)
    hovering.seconds(0.2)
    assert announced(hovering).requested_segment_world[0] == pytest.approx(tuple(drone.vehicle.place), abs=0.03)


def test_without_a_pose_it_goes_on_to_tell_and_acknowledges_nothing_new(hovering):
    drone = hovering.drones[0]
    last = announced(hovering)
    drone.sees = False
    hovering.seconds(0.6)
    assert announced(hovering) is None  # it hovers, and may see again
    hovering.until(Mode.LAND, 2.0)
    hovering.seconds(0.5)
    said = announced(hovering)
    assert said.requested_segment_world[0][2] == pytest.approx(1.0, abs=0.1)
    assert said.requested_segment_world[1][2] == pytest.approx(GROUND_M, abs=0.02)
    assert said.reserved_segment_world == last.reserved_segment_world
    assert said.sample_age_s > 1.4
    assert said.sequence > last.sequence
    echoed = [echo[2] for echo in said.echoes.values()]
    assert max(echoed) <= max(echo[2] for echo in last.echoes.values()) + 10
    newest = heard_of(hovering, 0, 1)
    assert newest.requested_segment_world == said.requested_segment_world or newest.sequence < said.sequence


def drifts(drone, velocity):
    """Let a vehicle drift beside what set-points tell it, as controllers do that have learnt another drag."""
    advance = drone.vehicle.advance

    def advanced(now_s, step_s):
        if drone.mode is Mode.HOLD:
            drone.vehicle.place = drone.vehicle.place + step_s * np.array(velocity)
        advance(now_s, step_s)

    drone.vehicle.advance = advanced


@pytest.mark.parametrize("velocity", [(0.03, 0.0, 0.0), (0.0, 0.0, 0.03)])
def test_a_drone_that_drifts_while_it_hovers_lands_before_it_leaves_what_others_keep_clear_of(hovering, velocity):
    drone = hovering.drones[0]
    drifts(drone, velocity)
    space, start = drone.robot.loop._shield.space, drone.vehicle.place.copy()
    hovering.seconds(3.0)
    assert drone.mode is Mode.HOLD
    hovering.until(Mode.LAND, 10.0)
    assert "drifted: found" in drone.robot.supervisor.reason
    assert math.dist(start, drone.vehicle.place) < space.lane_m + space.tube_error_m + 0.06
    hovering.until(Mode.DISARMED, 15.0)
    assert drone.vehicle.place[2] == GROUND_M


def test_nobody_is_granted_a_way_below_a_drone_that_lands_without_a_pose(hovering):
    """Before, it was silent then, and what it had owned ended above the way of the other one."""
    lander, other = hovering.drones
    lander.sees = False
    hovering.until(Mode.LAND, 3.0)
    hovering.tick(5)
    peers = other.robot.loop._peers.spaces(hovering.now_s, 1.0)
    space = other.robot.loop._shield.space
    x, y, _ = lander.vehicle.place
    below = np.array([[x - 0.2, y, 0.1], [x + 0.2, y, 0.1]])[:, :, None]
    owned, asked = conflicts(below, peers, space.clearance_m, space.height_ratio)
    assert asked.any()
    assert not math.isnan(float(asked.sum() + owned.sum()))
    assert not peers.excused.any()
    hovering.until(Mode.DISARMED, 15.0)
