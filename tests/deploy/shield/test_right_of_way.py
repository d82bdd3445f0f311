"""Right of way: two that meet keep to the right; in a narrow place the lower priority backs out, then goes aside."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.shield.arena import Arena, Block
from testudo_deploy.shield.deadlock_resolution import BLOCKED_SHARE
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.right_of_way import (
    BACKS_OUT_AFTER_S,
    DETOURS_AFTER_S,
    GIVES_WAY_AFTER_S,
    STANDS_BESIDE,
    RightOfWay,
    Traffic,
    give_way,
    initial_right_of_way,
)
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.spec import load_robot

PERIOD_S = 0.05
SHIELD = projection_parameters(load_robot("robomaster_s1"))
UNIT = SHIELD.separation_m
HALF = SHIELD.wall_m + 0.25 * UNIT  # of the door, through which one robot fits
DOOR = Arena(
    (-3.0, -3.0),
    (3.0, 3.0),
    (
        Block((0.0, 1.5 + HALF / 2), (0.1, 1.5 - HALF / 2), 0.0),
        Block((0.0, -1.5 - HALF / 2), (0.1, 1.5 - HALF / 2), 0.0),
    ),
)
OPEN = Arena((-9.0, -9.0), (9.0, 9.0))
EAST, WEST = np.array([1.0, 0.0]), np.array([-1.0, 0.0])


def traffic(*peers, first=False):
    """Return peers, each an offset [separations] and a wanted velocity [m/s]; they hardly move."""
    offset = np.array([place for place, _ in peers], float).T * UNIT
    wanted = np.array([velocity for _, velocity in peers], float).T
    count = len(peers)
    return Traffic(offset, 0 * wanted, wanted, np.full(count, first), np.ones(count, bool))


def live(seconds, place, peers, nominal, arena, progress=0.0):
    """Return wanted velocity, whether it replaces the nominal one, and the state after some time at one place."""
    state = initial_right_of_way(np.array(0.0))
    for _ in range(max(round(seconds / PERIOD_S), 1)):
        wanted, replaces, state = give_way(
            SHIELD, arena, state, np.array(place, float), peers, nominal, np.array(progress < BLOCKED_SHARE), PERIOD_S
        )
    return wanted, bool(replaces), state


def test_two_that_meet_head_on_both_turn_to_their_right():
    here, _, _ = live(0.0, (0, 0), traffic(((3, 0), WEST), first=True), EAST, OPEN, progress=1.0)
    there, _, _ = live(0.0, (3 * UNIT, 0), traffic(((-3, 0), EAST)), WEST, OPEN, progress=1.0)
    assert here[1] < -0.1
    assert there == pytest.approx(-here)
    assert np.linalg.norm(here) == pytest.approx(1.0)


@pytest.mark.parametrize("peer", [((3, 2), WEST), ((-1, 0), WEST), ((3, 0), EAST), ((3, 0), 0 * WEST)])
def test_who_meets_nobody_keeps_its_velocity(peer):
    wanted, replaces, _ = live(0.0, (0, 0), traffic(peer), EAST, OPEN, progress=1.0)
    assert wanted == pytest.approx(EAST)
    assert not replaces


def test_a_climbing_robot_does_not_turn_for_one_that_is_far_aside():
    """Regression: seen from above such a way has almost no sides, so that one 6 separations aside counted as met.

    Another peer nearby keeps the rule from ending early, which hid that from a robot without one.
    """
    drone = projection_parameters(load_robot("crazyflie_2x"))
    climbs, rests = np.array([0.02, 0.0, 0.5]), initial_right_of_way(np.array(0.0))
    away, descends = drone.separation_m * np.array([[6.0, 1.0], [0.0, 2.0], [2.0, 0.0]]), -climbs[:, None] + 0 * EAST
    for reach, turns in ((1.0, False), (0.3, True)):  # control: one that is near is met
        offset = away * np.array([reach, 1.0])
        peers = Traffic(offset, descends, descends * np.array([1.0, -1.0]), np.ones(2, bool), np.ones(2, bool))
        wanted, _, _ = give_way(drone, None, rests, np.zeros(3), peers, climbs, np.array(False), PERIOD_S)
        assert (not np.array_equal(wanted, climbs)) == turns


def test_the_lower_priority_backs_out_of_the_door_and_goes_aside():
    """As drawn by hand: backwards between the posts, whose walls stop what goes aside; sideways beside the wall."""
    wanted, replaces, _ = live(2 * GIVES_WAY_AFTER_S, (0, 0), traffic(((1.1, 0), WEST)), EAST, DOOR)
    assert replaces
    assert wanted[0] < -0.4
    wanted, _, _ = live(2 * GIVES_WAY_AFTER_S, (-0.8, 0), traffic(((1.1, 0), WEST)), EAST, DOOR)
    assert abs(wanted[1]) > 0.3
    aside = (-0.8, 1.3 * UNIT)
    wanted, replaces, _ = live(2 * GIVES_WAY_AFTER_S, aside, traffic(((1.1, -1.3), WEST)), EAST, DOOR, progress=1.0)
    assert not replaces


def test_the_higher_priority_does_not_give_way():
    _, _, state = live(5.0, (0, 0), traffic(((1.1, 0), WEST), first=True), EAST, DOOR)
    assert state.gives_way_s == 0


def test_in_the_open_nobody_gives_way():
    """There the turn to the right of all resolves it; giving way would only delay."""
    _, replaces, state = live(5.0, (0, 0), traffic(((1.1, 0), WEST)), EAST, OPEN)
    assert not replaces
    assert state.blocked_s == state.gives_way_s == 0


def test_a_corner_is_no_passage():
    """Its two walls are on opposite sides of its diagonal; robots that met near one gave way as in a door."""
    corner = (-9.0 + UNIT, -9.0 + UNIT)
    _, replaces, state = live(5.0, corner, traffic(((1.1, 0), WEST)), EAST, OPEN)
    assert not replaces
    assert state.blocked_s == 0


def test_who_stands_at_its_goal_in_a_narrow_place_makes_room():
    peers = traffic(((1.1, 0), WEST), first=True)
    wanted, replaces, state = live(2 * GIVES_WAY_AFTER_S, (0, 0), peers, 0 * EAST, DOOR)
    assert replaces
    assert state.to_all == 1
    assert wanted[0] < -0.4
    _, replaces, _ = live(2 * GIVES_WAY_AFTER_S, (0, 0), traffic(((1.1, 0), EAST)), 0 * EAST, DOOR)
    assert not replaces  # that one leaves


CORRIDOR = Arena((-9.0, -SHIELD.wall_m - 0.64 * UNIT), (9.0, SHIELD.wall_m + 0.64 * UNIT))  # for two


def test_who_stands_in_a_corridor_goes_aside_before_it_is_met_and_not_along():
    """Regression: it drove ahead of the other to the end of the corridor."""
    place, state = np.array([0.0, 0.1 * UNIT]), initial_right_of_way(np.array(0.0))
    for _ in range(round(3.0 / PERIOD_S)):
        peers = traffic((np.array([-1.5, 0.0]) - place / UNIT, EAST), first=True)
        peers = replace(peers, moving_world=peers.wanted_world)
        wanted, replaces, state = give_way(SHIELD, CORRIDOR, state, place, peers, 0 * EAST, np.array(False), PERIOD_S)
        place = place + PERIOD_S * wanted
    assert place[1] > 0.5 * UNIT  # to the wall, so that the other need not slow down
    assert abs(place[0]) < 0.1 * UNIT
    assert wanted == pytest.approx(0, abs=1e-9)
    assert replaces  # it waits there until the other has passed
    assert state.to_all == STANDS_BESIDE


def test_who_leaves_hardly_room_in_a_corridor_makes_more():
    """Regression: with 1.08 separations beside it the other squeezed past along the wall, and took 3 s longer."""
    for beside, makes in ((0.44, True), (0.56, False)):
        peers = traffic((np.array([-1.3, -1.0]), EAST), first=True)
        peers = replace(peers, moving_world=peers.wanted_world)
        wanted, replaces, _ = live(2 * GIVES_WAY_AFTER_S, (0.0, beside * UNIT), peers, 0 * EAST, CORRIDOR)
        assert replaces == makes
        assert (wanted[1] > 0.1) == makes


def test_who_stood_aside_in_a_corridor_returns_once_the_other_is_past():
    """It waited until that one was half a separation farther."""
    place, back = np.array([0.0, 0.55 * UNIT]), np.array([0.0, -0.1])
    for passed, returns in ((-0.3, False), (0.05, True)):
        state = RightOfWay(np.array(0.0), np.array(GIVES_WAY_AFTER_S), np.array(STANDS_BESIDE))
        peers = traffic((np.array([passed, -0.6]) - place / UNIT, EAST), first=True)
        for _ in range(round(0.5 / PERIOD_S)):
            _, replaces, state = give_way(SHIELD, CORRIDOR, state, place, peers, back, np.array(False), PERIOD_S)
        assert bool(replaces) != returns


def test_who_gives_way_to_one_that_is_held_up_backs_out_until_it_has_passed():
    """Regression: two stood beside each other in a corridor for ever, each before one that stood on its side."""
    stands = (1.1, 0.1), 0 * EAST
    beside = traffic(((0.0, 1.2), 0.5 * WEST - np.array([0.0, 0.9])), stands)
    waits, replaces, state = live(0.5 * BACKS_OUT_AFTER_S, (0, -0.6 * UNIT), beside, EAST, CORRIDOR)
    assert replaces
    assert abs(waits[0]) < 0.1
    backs, _, state = live(2 * BACKS_OUT_AFTER_S, (0, -0.6 * UNIT), beside, EAST, CORRIDOR)
    assert backs[0] < -0.5
    follows = replace(beside, moving_world=beside.wanted_world)
    for offset, goes_on in (((0.3, 1.0), True), ((-1.9, 0.0), False)):  # it follows, and is past
        peers, after = replace(follows, offset_world=UNIT * np.array([offset, stands[0]]).T), state
        for _ in range(round(1.0 / PERIOD_S)):
            wanted, _, after = give_way(
                SHIELD, CORRIDOR, after, np.array([0, -0.6 * UNIT]), peers, EAST, np.array(False), PERIOD_S
            )
        assert (wanted[0] < -0.5) == goes_on


def test_one_that_is_blocked_without_any_peer_tries_directions():
    """Such as one that a body holds up that no message tells of."""
    nobody = Traffic(np.zeros((2, 0)), np.zeros((2, 0)), np.zeros((2, 0)), np.zeros(0, bool), np.zeros(0, bool))
    _, replaces, state = live(2 * DETOURS_AFTER_S, (0, 0), nobody, EAST, DOOR)
    assert replaces
    assert state.to_all == 0


def test_who_stays_blocked_beside_a_wall_leaves_it():
    """Regression: a wheeled robot that reversed along the wall swung its tail into it, and never moved again."""
    place, peers = (0.0, 0.64 * UNIT), traffic(((0.4, -1.05), 0 * EAST))
    along, replaces, _ = live(1.0, place, peers, WEST, CORRIDOR)
    off, _, _ = live(3.0, place, peers, WEST, CORRIDOR)
    assert replaces
    assert abs(along[1]) < 0.3
    assert off[1] < -0.5


def test_who_wants_no_more_than_noise_is_given_no_way():
    """Regression: robots backed out for ever before one that stood at its goal."""
    _, _, state = live(1.0, (0, 0), traffic(((1.1, 0), 0.1 * WEST)), EAST, DOOR)
    assert state.gives_way_s == 0


def test_who_is_blocked_at_a_door_goes_round():
    """A robot that stands in the way wants nothing, so that nobody comes its way: to the right, there is room."""
    place = (-0.8, 0.5)
    wanted, replaces, _ = live(2 * DETOURS_AFTER_S, place, traffic(((1.05, 0.3), 0 * EAST)), EAST, DOOR)
    assert replaces
    assert wanted[1] < 0


def test_a_wanted_velocity_out_of_range_leaves_the_policy_alone():
    """It decides about liveness only; the robot that says so must not stop the rule with an error."""
    resolver = DeadlockResolver(SHIELD, DOOR, PERIOD_S, 2)
    for wild in (1e200, 1e308):
        table = PeerTable(
            np.array([[1.0], [0.0]]),
            np.zeros((2, 1)),
            np.array([0.05]),
            np.array([True]),
            wanted_world=np.array([[-wild], [wild]]),
        )
        with np.errstate(all="ignore"):
            found = resolver.resolved(np.zeros(2), table, np.array([False]), EAST)
        assert np.isfinite(found).all()
        assert np.linalg.norm(found) <= 1 + 1e-9


def test_without_peers_and_arena_nothing_happens():
    nobody = Traffic(*(np.zeros((2, 0)),) * 3, np.zeros(0, bool), np.zeros(0, bool))
    state = RightOfWay(*map(np.array, (0.0, 0.0, 0.0)))
    wanted, replaces, _ = give_way(SHIELD, None, state, np.zeros(2), nobody, EAST, np.array(True), PERIOD_S)
    assert wanted == pytest.approx(EAST)
    assert not replaces
