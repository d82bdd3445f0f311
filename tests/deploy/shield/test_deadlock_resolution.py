"""Deadlocks: a blocked robot turns its wish to the right and back, and never asks for more than it wanted."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.shield.libraries import LIBRARIES, compiled
from tests.effort import examples

from testudo_deploy.shield import deadlock_resolution
from testudo_deploy.shield.arena import Arena, Block
from testudo_deploy.shield.deadlock_resolution import (
    LARGEST_TURN_RAD,
    STUCK_S,
    TURN_RATE_RAD_S,
    DeadlockState,
    initial_deadlock_state,
    is_deadlocked,
    resolve_deadlock,
)
from testudo_deploy.shield.passage_order import PassageState, initial_passage_state
from testudo_deploy.shield.passages import Passage
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.right_of_way import RightOfWay, give_way, initial_right_of_way
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.spec import load_robot

PERIOD_S = 0.05
SHIELD = projection_parameters(load_robot("turtlebot4"))
WISH = np.array([0.2, 0.0])
NOBODY = PeerTable(np.zeros((2, 0)), np.zeros((2, 0)), np.zeros(0), np.zeros(0, bool))


def near(distance):
    """Return a neighbour that stands ahead."""
    return PeerTable(np.array([[distance], [0.0]]), np.zeros((2, 1)), np.array([0.05]), np.array([True]))


def turned(vector):
    """Return by how much a vector points to the right of the wish [rad]."""
    return -np.arctan2(vector[1], vector[0])


def resolved(memory, place, table, wish, moved, arena=None, passages=()):
    """Return the velocity for the shield and the memory of one tick; every peer has a lower priority."""
    first = table.valid | True
    found, memory = resolve_deadlock(SHIELD, arena, passages, memory, place, table, first, wish, moved, PERIOD_S)
    return found.velocity_world, memory


def live(seconds, memory, made, neighbours=NOBODY, wish=WISH):
    """Return the wish and the memory after some time in which the robot made a share of its wish."""
    found = wish
    for _ in range(round(seconds / PERIOD_S)):
        found, memory = resolved(memory, np.zeros(2), neighbours, wish, made * found)
    return found, memory


def test_who_gets_on_is_left_alone():
    found, memory = live(10, initial_deadlock_state(np.array(0.0)), 1.0, near(0.5))
    assert found == pytest.approx(WISH)
    assert memory.turn_rad == 0
    assert not is_deadlocked(memory)


def test_who_is_held_back_turns_to_the_right_up_to_a_limit():
    blocked = near(SHIELD.separation_m)
    found, memory = live(0.3, initial_deadlock_state(np.array(0.0)), 0.0, blocked)
    assert found == pytest.approx(WISH)  # patience: single ticks are noise
    found, memory = live(1.5, memory, 0.0, blocked)
    assert 0.1 < turned(found) <= TURN_RATE_RAD_S * 1.5 + 1e-9
    found, memory = live(10, memory, 0.0, blocked)
    assert turned(found) == pytest.approx(LARGEST_TURN_RAD)
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(WISH))


def test_it_turns_back_when_its_way_is_free():
    blocked = live(4, initial_deadlock_state(np.array(0.0)), 0.0, near(SHIELD.separation_m))[1]
    assert blocked.turn_rad > 0.5
    found, memory = live(6, blocked, 1.0)
    assert found == pytest.approx(WISH)
    assert memory.turn_rad == 0
    assert memory.stuck_s == 0


def test_it_keeps_its_turn_while_the_way_is_not_free():
    """It gets on, beside the one in its way: to turn back would end before it again."""
    memory = DeadlockState(
        np.array(1.0),
        np.array(0.5),
        np.array(0.6),
        np.array(0.0),
        initial_right_of_way(np.array(0.0)),
        initial_passage_state(np.array(0.0)),
    )
    # so far away that the rows leave 0.45 of the wish, turned back a little
    towards = np.linalg.norm(WISH) * np.cos(0.6 - np.radians(20))
    gap = 0.45 * towards * 2 * SHIELD.hold_s / SHIELD.gap_share
    found, memory = live(2, memory, 1.0, near(SHIELD.separation_m + gap))
    assert turned(found) == pytest.approx(0.6)


def test_a_deadlock_is_told_after_a_while_and_is_over_with_progress():
    memory = initial_deadlock_state(np.array(0.0))
    _, memory = live(STUCK_S, memory, 0.0)
    assert not is_deadlocked(memory)
    _, memory = live(1.5, memory, 0.0)
    assert is_deadlocked(memory)
    _, memory = live(1.0, memory, 1.0)
    assert not is_deadlocked(memory)


def test_who_wants_nothing_is_not_blocked():
    memory = live(20, initial_deadlock_state(np.array(0.0)), 0.0)[1]
    assert is_deadlocked(memory)
    found, memory = live(PERIOD_S, memory, 0.0, wish=0.01 * WISH)
    assert found == pytest.approx(0.01 * WISH)
    assert memory.turn_rad == memory.stuck_s == 0
    assert memory.progress == memory.free == 1


def test_who_keeps_to_its_right_announces_where_it_wants_to_go():
    """Announced turns let each of two see the other no longer come its way: both turned on and off, and were slowed."""
    peer = near(3 * SHIELD.separation_m)
    peer = replace(peer, wanted_world=-WISH[:, None])
    memory = initial_deadlock_state(np.array(0.0))
    found, _ = resolve_deadlock(SHIELD, None, (), memory, np.zeros(2), peer, peer.valid, WISH, WISH, PERIOD_S)
    assert turned(found.velocity_world) > 0.1
    assert found.wanted_world == pytest.approx(WISH)


def test_who_goes_round_one_that_stands_says_so_whatever_rounding_does(monkeypatch):
    """Regression: in single precision, velocities that differed by 1e-8 m/s let robots press against that one."""

    def rounded(*given):
        wanted, replaces, way = give_way(*given)
        return wanted * (1 + 1e-7), replaces, way

    monkeypatch.setattr(deadlock_resolution, "give_way", rounded)
    wall = Arena((-3.0, -SHIELD.wall_m - 0.5 * SHIELD.separation_m), (3.0, 6.0))
    stands = replace(near(1.2 * SHIELD.separation_m), wanted_world=np.zeros((2, 1)))
    memory = initial_deadlock_state(np.array(0.0))
    found, _ = resolve_deadlock(SHIELD, wall, (), memory, np.zeros(2), stands, stands.valid, WISH, WISH, PERIOD_S)
    assert turned(found.velocity_world) < -0.4
    assert found.wanted_world == pytest.approx(found.velocity_world)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([2, 3]))
def test_the_wish_keeps_its_length_and_height(seed, size):
    """Whatever was remembered: the shield gets a turned wish, never a longer one."""
    rng = np.random.default_rng(seed)
    count, slots = 20, 3
    memory = DeadlockState(
        rng.uniform(0, 1, count),
        rng.uniform(0, 1, count),
        rng.uniform(0, LARGEST_TURN_RAD, count),
        rng.uniform(0, 9, count),
        initial_right_of_way(np.zeros(count)),
        initial_passage_state(np.zeros(count)),
    )
    wish, moved = rng.uniform(-0.3, 0.3, (2, size, count))
    table = PeerTable(
        rng.uniform(-1, 1, (size, slots, count)),
        rng.uniform(-0.2, 0.2, (size, slots, count)),
        rng.uniform(0, 0.3, (slots, count)),
        np.ones((slots, count), bool),
    )
    found, after = resolved(memory, np.zeros((size, count)), table, wish, moved)
    assert np.linalg.norm(found, axis=0) == pytest.approx(np.linalg.norm(wish, axis=0))
    flat = np.linalg.norm(wish[:2], axis=0) >= 0.5 * np.linalg.norm(wish[2:], axis=0)
    assert found[2:, flat] == pytest.approx(wish[2:, flat])
    assert found[0, ~flat] == pytest.approx(wish[0, ~flat])
    assert (np.abs(after.turn_rad - memory.turn_rad)[after.turn_rad > 0] <= TURN_RATE_RAD_S * PERIOD_S + 1e-9).all()
    assert (after.turn_rad <= LARGEST_TURN_RAD).all()


@pytest.mark.parametrize("asarray", LIBRARIES)
def test_all_libraries_agree(asarray):
    rng = np.random.default_rng(0)
    count, slots = 40, 3
    memory = [rng.uniform(0, 1, count) for _ in range(4)]
    wish, moved, place = rng.uniform(-0.3, 0.3, (3, 2, count))
    table = [
        rng.uniform(-1, 1, (2, slots, count)),
        rng.uniform(-0.2, 0.2, (2, slots, count)),
        rng.uniform(0, 0.3, (slots, count)),
        np.ones((slots, count), bool),
    ]
    wants = rng.uniform(-0.3, 0.3, (2, slots, count))
    way = [rng.uniform(0, 1, count), rng.uniform(-0.3, 0.3, count).clip(0), rng.integers(0, 2, count) * 1.0]
    passed = [rng.uniform(-0.5, 0.5, count), rng.uniform(0, 20, count)]
    passages = tuple(Passage((x, 0.0), (1.0, 0.0), 0.3, 0.1) for x in (-0.5, 0.5))
    door = Arena((-1.0, -1.0), (1.0, 1.0), (Block((0.0, 0.6), (0.05, 0.4), 0.0), Block((0.0, -0.6), (0.05, 0.4), 0.0)))

    def run(convert, resolve):
        state = DeadlockState(
            *map(convert, memory), RightOfWay(*map(convert, way)), PassageState(*map(convert, passed))
        )
        peers = PeerTable(*map(convert, table), wanted_world=convert(wants))
        return resolve(state, convert(place), peers, convert(wish), convert(moved))

    resolve = partial(resolved, arena=door, passages=passages)
    (expected, after), (found, again) = run(np.asarray, resolve), run(asarray, compiled(resolve, asarray))
    assert np.asarray(found) == pytest.approx(expected, abs=1e-5)
    for expected, known in ((after, again), (after.way, again.way), (after.passage, again.passage)):
        for name, value in vars(expected).items():
            if name not in ("way", "passage"):
                assert np.asarray(getattr(known, name)) == pytest.approx(value, abs=1e-5)


def test_a_robot_alone_takes_shorter_ways_to_what_a_batch_computes():
    """Where nobody is near, one robot on its computer leaves out what cannot matter; replay computes batches."""
    rng = np.random.default_rng(1)
    count, slots = 200, 2
    state = {name: rng.uniform(0, 1, count) for name in ("progress", "free", "turn_rad", "stuck_s")}
    state["turn_rad"] *= rng.integers(0, 2, count)
    way = RightOfWay(*(rng.uniform(0, 1, count) * rng.integers(0, 2, count) for _ in range(3)))
    memory = DeadlockState(**state, way=way, passage=initial_passage_state(np.zeros(count)))
    wish, moved = rng.uniform(-0.3, 0.3, (2, 2, count))
    ages, known = rng.uniform(0, 0.3, (slots, count)), np.ones((slots, count), bool)
    places, moves, wants = rng.uniform(-1, 1, (3, 2, slots, count)) * np.array([4.0, 0.2, 0.1])[:, None, None, None]
    wants -= wish[:, None]  # many come the robot's way
    table = PeerTable(places, moves, ages, known, wanted_world=wants)
    place = np.zeros((2, count))
    found, after = resolved(memory, place, table, wish, moved)
    for k in range(count):
        own = DeadlockState(
            *(getattr(memory, name)[k] for name in state),
            RightOfWay(*(value[k] for value in vars(way).values())),
            PassageState(*(value[k] for value in vars(memory.passage).values())),
        )
        peers = PeerTable(places[..., k], moves[..., k], ages[:, k], known[:, k], wanted_world=wants[..., k])
        alone, later = resolved(own, place[:, k], peers, wish[:, k], moved[:, k])
        assert alone == pytest.approx(found[:, k], abs=1e-12)
        assert [float(value) for value in vars(later.way).values()] == [value[k] for value in vars(after.way).values()]
