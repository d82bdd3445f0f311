"""Layer 3's rules never let two robots own conflicting space: every reachable state is visited.

The model: two robots and contested places, each owned (E) or announced (P) by a robot or not; two sets conflict if they
share a place. A tick of a robot is atomic: it judges its announcement by the newest message heard (as
`shield/space.py` does, which is compared below), takes or drops it, lets go of any part of E, may announce anything
that is clear of what was heard, and sends E, P and what it has heard. Any message may arrive at any later time or
never, and out of order; older ones than the newest heard are dropped. A peer may seem silent at any time. A robot may
restart with what it owns or less, knowing nothing.

Numbers of messages only tell whether the peer has heard the announcement that is pending now, so the model keeps
that as a bit, and the set of states is finite for any number of ticks: the search ends by itself. Bounded is how many
messages may be under way at once in one direction (`window`; when another is sent, any of them may be lost).

Assumed: lanes hold the bodies (layer 2), one pending announcement at a time, a restarted robot gets no message that is
older than one that it had heard before. More than two robots: a conflict is one of two robots, and a robot takes only
what every peer has granted, so that the other robots can only make a pair wait.

The mutants reach a conflict: taking without acknowledgement, not looking at the acknowledging message's content, an
acknowledgement of an earlier announcement, messages taken out of order, and both going on without a silent peer.
"""

from collections import deque
from itertools import product

import numpy as np
import pytest

from testudo_deploy.shield.space import OwnSpace, PeerSpaces, judge

RULES = frozenset({"acknowledged", "content", "this announcement", "in order", "one goes first"})
NOTHING = (0, 0)
"""Places owned and announced, as bits."""


def conflict(state):
    (first, _), (second, _) = state[0]
    return first & second


def explore(places, window, rules=RULES):
    """Return how many states were reached, and a shortest way to a conflict or None."""
    nobody_heard = (0, 0, False, False)  # owned, announced; is it the pending one; does it acknowledge ours
    start = ((NOTHING, NOTHING), (nobody_heard, nobody_heard), ((), ()))
    came_from, waiting = {start: None}, deque([start])
    while waiting:
        state = waiting.popleft()
        if conflict(state):
            way = []
            while state is not None:
                way.append(state)
                state = came_from[state]
            return len(came_from), way[::-1]
        for robot in (0, 1):
            for following in moves(state, robot, places, window, rules):
                if following not in came_from:
                    came_from[following] = state
                    waiting.append(following)
    return len(came_from), None


def moves(state, robot, places, window, rules):
    """Yield what can happen next at one robot: a message comes in, a tick, a restart."""
    spaces, heard, flight = state
    peer = 1 - robot
    coming = flight[peer]
    for index, message in enumerate(coming):
        rest = coming[index + 1 :] if "in order" in rules else coming[:index] + coming[index + 1 :]
        yield spaces, put(heard, robot, message), put(flight, peer, rest)
    (owned, announced), knows = spaces[robot], heard[robot]
    for owned_then, announced_then in judged(owned, announced, knows, robot, rules):
        for rest in parts(owned_then):
            if announced_then:
                yield from sent(state, robot, (rest, announced_then), window, is_new=False, rules=rules)
                continue
            yield from sent(state, robot, (rest, 0), window, is_new=True, rules=rules)
            for wish in range(1, 1 << places):
                if not wish & (knows[0] | knows[1]):
                    yield from sent(state, robot, (rest, wish), window, is_new=True, rules=rules)
    for rest in parts(owned):
        everything = (1 << places) - 1
        yield forget(put(spaces, robot, (rest, 0)), put(heard, robot, (everything, everything, False, False)), flight,
                     robot)


def judged(owned, announced, knows, robot, rules):
    """Return what may become of own space and announcement."""
    if not announced:
        return {(owned, 0)}
    ways = set()
    for seems_silent in (False, True):
        hits_owned, hits_announced = bool(announced & knows[0]), bool(announced & knows[1])
        granted, lost = verdict(hits_owned, hits_announced, knows[3], seems_silent, robot == 0, rules)
        if granted:
            ways |= {(announced, 0), (owned, 0)}  # a robot need not take what it got
        elif lost:
            ways |= {(owned, 0)}
        else:
            ways |= {(owned, announced), (owned, 0)}
    return ways


def verdict(hits_owned, hits_announced, acknowledged, silent, first, rules=RULES):
    """Return whether an announcement is granted, and whether it is lost."""
    goes_alone = silent and (first or "one goes first" not in rules)
    heard = acknowledged or goes_alone or "acknowledged" not in rules
    clear = not (hits_owned or hits_announced) or "content" not in rules
    return heard and clear, hits_owned or (hits_announced and not first)


def sent(state, robot, space, window, *, is_new, rules):
    """Yield the states after a tick, whose message may push another one out."""
    spaces, heard, flight = state
    spaces = put(spaces, robot, space)
    if is_new and "this announcement" in rules:
        spaces, heard, flight = forget(spaces, heard, flight, robot)
    message = (*space, space[1] != 0, state[1][robot][2])
    queue = (*flight[robot], message)
    if len(queue) <= window:
        yield spaces, heard, put(flight, robot, queue)
    else:
        for lost in range(len(queue)):
            yield spaces, heard, put(flight, robot, queue[:lost] + queue[lost + 1 :])


def forget(spaces, heard, flight, robot):
    """Mark all that is known or under way as not about the announcement that ``robot`` makes next."""
    peer = 1 - robot
    outgoing = tuple((*message[:2], False, message[3]) for message in flight[robot])
    coming = tuple((*message[:3], False) for message in flight[peer])
    own, other = heard[robot], heard[peer]
    heard = put(put(heard, robot, (*own[:3], False)), peer, (*other[:2], False, other[3]))
    return spaces, heard, put(put(flight, robot, outgoing), peer, coming)


def put(pair, index, value):
    return (value, pair[1]) if index == 0 else (pair[0], value)


def parts(places):
    """Return all subsets of a set of places."""
    return [part for part in range(places + 1) if part & ~places == 0]


@pytest.mark.parametrize(
    ("places", "window"),
    [(1, 1), (1, 2), pytest.param(1, 3, marks=pytest.mark.slow), pytest.param(2, 1, marks=pytest.mark.slow)],
)
def test_no_reachable_state_has_a_conflict(places, window):
    count, way = explore(places, window)
    assert way is None, way
    assert count > 500


@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_one_of_its_rules_the_protocol_reaches_a_conflict(rule):
    _, way = explore(1, 2, RULES - {rule})
    assert way is not None
    assert conflict(way[-1])
    assert not any(conflict(state) for state in way[:-1])


@pytest.mark.parametrize("robot", [0, 1])
def test_each_robot_can_come_to_own_the_place(robot):
    """The search is no proof about robots that never get anything: the way is announce, hear, answer, hear, take."""
    state = ((NOTHING, NOTHING), ((0, 0, False, False),) * 2, ((), ()))
    peer = 1 - robot
    for mover, wanted in (
        (robot, lambda state: state[0][robot][1] == 1),
        (peer, lambda state: state[1][peer][1] == 1),
        (peer, lambda state: state[2][peer][-1:] == ((0, 0, False, True),)),
        (robot, lambda state: state[1][robot][3]),
        (robot, lambda state: state[0][robot][0] == 1),
    ):
        state = next(following for following in moves(state, mover, 1, 2, RULES) if wanted(following))
    assert state[0][robot] == (1, 0)


@pytest.mark.parametrize("first", [False, True])
def test_the_model_judges_as_the_shield_does(first):
    """All combinations of what a message can say, with lanes that are near or far."""
    near, far, clearance = (0.0, 0.0), (9.0, 9.0), 1.0
    own = OwnSpace(np.zeros((2, 2)) + 5.0, np.zeros((2, 2)), np.array(True), np.array(7.0))
    for hits_owned, hits_announced, acknowledged, silent in product([False, True], repeat=4):
        lanes = [np.array([[near if hit else far] * 2]).reshape(2, 2, 1) for hit in (hits_owned, hits_announced)]
        peers = PeerSpaces(*lanes, np.array([7.0 if acknowledged else 6.0]), np.array([silent]), np.array([first]),
                           np.array([True]))
        found = judge(own, peers, clearance)
        expected = verdict(hits_owned, hits_announced, acknowledged, silent, first)
        assert (bool(found.granted), bool(found.lost)) == expected
