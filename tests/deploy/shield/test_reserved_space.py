"""Owned space: when an announcement is granted or lost, which lanes conflict, and how far a silent peer can be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deploy.peer_lanes import peer, spaces, unheard
from tests.deploy.shield.libraries import LIBRARIES, compiled

from testudo_deploy.shield.geometry import segment_distance
from testudo_deploy.shield.reservations import (
    PeerReservations,
    ReservedSpace,
    conflicts,
    decide_grant,
    farthest_peer_position,
    reserved_at_rest,
)

CLEARANCE = 1.0
FAR, NEAR = (9.0, 9.0), (0.5, 0.9)
SINCE = 7


def ask(*peers, pending=True):
    """Return whether a lane along x that was announced with message 7 is granted, and whether it is lost."""
    announced = np.array([[0.0, 0.0], [1.0, 0.0]])
    verdict = decide_grant(
        ReservedSpace(announced[:1].repeat(2, axis=0), announced, np.array(pending), np.array(float(SINCE))),
        spaces(*peers),
        CLEARANCE,
        1.0,
    )
    return bool(verdict.granted), bool(verdict.lost)


def test_it_is_granted_when_all_peers_have_acknowledged_and_are_clear():
    """R2."""
    heard = peer(FAR, acknowledged=SINCE)
    assert ask(heard) == (True, False)
    assert ask(heard, heard) == (True, False)
    assert ask(heard, peer(FAR, acknowledged=SINCE - 1)) == (False, False)
    assert ask() == (True, False)  # nobody to ask
    assert ask(heard, pending=False) == (False, False)


@pytest.mark.parametrize("acknowledged", [SINCE - 1, SINCE])
@pytest.mark.parametrize("first", [False, True])
def test_it_is_lost_against_what_a_peer_owns(acknowledged, first):
    """R2, whoever goes first, acknowledged or not."""
    assert ask(peer(NEAR, acknowledged=acknowledged, first=first)) == (False, True)


def test_of_two_announcements_that_of_the_second_is_dropped_and_the_first_waits():
    assert ask(peer(FAR, NEAR, acknowledged=SINCE, first=True)) == (False, False)
    assert ask(peer(FAR, NEAR, acknowledged=SINCE, first=False)) == (False, True)


def test_past_a_silent_peer_only_the_first_goes_and_only_in_the_same_life():
    """R4: without an acknowledgement, but still clear of what the peer owned and announced last."""
    assert ask(peer(FAR, acknowledged=0, silent=True, first=True)) == (True, False)
    assert ask(peer(FAR, acknowledged=0, silent=True, first=False)) == (False, False)
    assert ask(peer(FAR, acknowledged=-1, silent=True, first=True)) == (False, False)
    assert ask(peer(NEAR, acknowledged=0, silent=True, first=True)) == (False, True)
    assert ask(peer(FAR, NEAR, acknowledged=0, silent=True, first=True)) == (False, False)


@pytest.mark.parametrize("first", [False, True])
def test_a_peer_that_never_spoke_grants_nothing(first):
    granted, lost = ask(unheard(first=first))
    assert not granted
    assert lost


def test_an_untrusted_peer_has_no_say():
    """R5: the gate keeps clear of its body, whatever it claims to own."""
    assert ask(peer(NEAR, NEAR, acknowledged=-1, first=False, reserves=False)) == (True, False)
    assert ask(peer(NEAR, reserves=False), peer(FAR, acknowledged=SINCE - 1)) == (False, False)


@given(st.lists(st.tuples(*[st.floats(-2, 2)] * 12), min_size=1, max_size=4))
def test_conflicts_are_lanes_closer_than_the_clearance(lanes):
    points = [np.array(numbers).reshape(6, 2) for numbers in lanes]
    ours = np.stack([points[0][:2], points[0][::2][:2]], axis=-1)  # two lanes (2, D, 2)
    peers = spaces(*[peer(numbers[2:4], numbers[4:]) for numbers in points])
    found = conflicts(ours, peers, CLEARANCE, 1.0)
    for k in range(len(points)):
        for s in range(2):
            for which, theirs in enumerate((peers.owned_world, peers.announced_world)):
                distance = segment_distance(ours[0, :, s], ours[1, :, s], theirs[0, :, k], theirs[1, :, k])
                assert bool(found[which][k, s]) == (distance < CLEARANCE)


def test_what_is_no_number_conflicts():
    ours = np.zeros((2, 2, 1))
    assert all(hits.all() for hits in conflicts(ours, spaces(unheard()), CLEARANCE, 1.0))
    assert all(hits.all() for hits in conflicts(ours * np.nan, spaces(peer(FAR)), CLEARANCE, 1.0))


@given(st.tuples(*[st.floats(-3, 3)] * 12), st.floats(0, 1), st.floats(0, 6.28), st.booleans())
def test_a_peer_within_its_lanes_is_no_farther_than_the_bound(numbers, share, angle, on_owned):
    """Any control point at most ``beside_m`` from the middle of a lane."""
    points, beside = np.array(numbers).reshape(6, 2), 0.2
    peers = spaces(peer(points[:2], points[2:4]))
    bound = farthest_peer_position(peers, points[4][:, None], np.array([0.1]), 1.0, beside, 1.0)
    first, last = points[:2] if on_owned else points[2:4]
    place = first + share * (last - first) + beside * np.array([np.cos(angle), np.sin(angle)])
    assert np.linalg.norm(place - points[4]) <= bound[0] + 1e-9


def test_a_peer_that_may_have_gone_on_alone_can_be_anywhere():
    """It may not have heard this robot for the silence, and is not confined by a majority; or it keeps to nothing."""
    peers = spaces(
        *[
            peer(FAR, silent=silent, reserves=reserves)
            for silent, reserves in ((True, True), (False, True), (True, False))
        ]
    )
    points = np.zeros((2, 3))
    soon, late = (farthest_peer_position(peers, points, np.full(3, age_s), 1.0, 0.1, 1.0) for age_s in (0.9, 1.0))
    assert np.isfinite(soon).tolist() == [True, True, False]
    assert np.isfinite(late).tolist() == [True, False, False]


def test_robots_at_rest_own_their_place_and_ask_for_nothing():
    places = np.arange(6.0).reshape(2, 3)
    space = reserved_at_rest(places)
    assert (space.owned_world == places).all()
    assert (space.announced_world == places).all()
    assert not space.pending.any()
    assert space.pending.dtype == bool


@pytest.mark.parametrize("asarray", LIBRARIES)
def test_all_libraries_agree(asarray):
    """Batches of robots, too."""
    rng = np.random.default_rng(0)
    count, slots = 50, 3
    lanes = rng.uniform(-2, 2, (4, 2, 2, slots, count))
    own = ReservedSpace(lanes[0][:, :, 0], lanes[1][:, :, 0], rng.random(count) < 0.8, rng.integers(0, 9, count) * 1.0)
    peers = PeerReservations(
        lanes[2],
        lanes[3],
        rng.integers(-1, 9, (slots, count)) * 1.0,
        *(rng.random((slots, count)) < 0.5 for _ in range(3)),
    )
    expected = decide_grant(own, peers, 0.3, 1.0)
    mine, others = (
        ReservedSpace(*map(asarray, vars(own).values())),
        PeerReservations(*map(asarray, vars(peers).values())),
    )
    found = compiled(lambda own, peers: vars(decide_grant(own, peers, 0.3, 1.0)), asarray)(mine, others)
    assert (np.asarray(found["granted"]) == expected.granted).all()
    assert (np.asarray(found["lost"]) == expected.lost).all()
    assert 0 < expected.granted.sum() < count
    points, age_s = rng.uniform(-1, 1, (2, slots, count)), rng.uniform(0, 2, (slots, count))
    far = farthest_peer_position(peers, points, age_s, 1.0, 0.1, 1.0)
    farthest = compiled(lambda *given: farthest_peer_position(*given, 1.0, 0.1, 1.0), asarray)
    again = farthest(others, asarray(points), asarray(age_s))
    assert np.asarray(again) == pytest.approx(far, rel=1e-5)
