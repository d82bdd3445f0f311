"""Layer 3's rules never let two robots own conflicting space: every reachable state is visited.

The model: two robots and contested places, each owned (E) or announced (P) by a robot or not; two sets conflict if they
share a place. A tick of a robot is atomic: it judges its announcement by the newest message heard (as
`shield/space.py` does, which is compared below), takes or drops it, lets go of any part of E, may announce anything
that is clear of what was heard, and sends E, P and what it has heard. Any message may arrive at any later time, again,
or never, and out of order; older ones than the newest heard are dropped. A peer may seem silent at any time. A robot
may restart with what it owns or less, knowing nothing: then it takes any message that is still under way for new, and
what its former life acknowledged is not known any more.

Numbers of messages only tell whether the peer has heard the announcement that is pending now, so the model keeps
that as a bit, and the set of states is finite for any number of ticks: the search ends by itself. Bounded is how many
messages may be under way at once in one direction (`window`; when another is sent, any of them may be lost).

Assumed: lanes hold the bodies (layer 2), one pending announcement at a time, messages of a peer's former lives are
refused once the new one was heard (`test_roster.py`). More than two robots: a conflict is one of two robots, and a
robot takes only what every peer has granted, so that the other robots can only make a pair wait.

The mutants reach a conflict: taking without acknowledgement, not looking at the acknowledging message's content, an
acknowledgement of an earlier announcement, messages taken out of order, both going on without a silent peer, and one
going on alone after a restart although its peer's newest message is an answer to its former life.
"""

from collections import deque
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from testudo_deploy.shield.reservations import NOTHING_HEARD, PeerReservations, ReservedSpace, decide_grant

RULES = frozenset({"acknowledged", "content", "this announcement", "in order", "one goes first", "not after a restart"})


class Message(NamedTuple):
    """What a robot sends, and what of it still counts."""

    owned: int = 0
    """Places, as bits."""
    announced: int = 0
    is_pending: bool = False
    """Its announcement is the one that the sender has now."""
    acknowledges: bool = False
    """The sender had heard the announcement that the receiver has now."""
    is_alive: bool = True
    """The sender has not restarted since."""
    knows: bool = True
    """The sender had heard the receiver since its last restart: the echo names its present epoch."""


class State(NamedTuple):
    """Of both robots, by index."""

    spaces: tuple = ((0, 0), (0, 0))
    """Places owned and announced."""
    heard: tuple = (Message(), Message())
    """The newest message that each has heard."""
    sent: tuple = ((), ())
    """Messages of each that can still arrive, also again, in the order of sending."""
    read: tuple = (0, 0)
    """How many of those to each robot are as old as the newest that it has heard, or older."""


def conflict(state):
    (first, _), (second, _) = state.spaces
    return first & second


def explore(places, window, rules=RULES, restarting=(0, 1)):
    """Return how many states were reached, and a shortest way to a conflict or None."""
    start = State()
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
            for following in moves(state, robot, places, window, rules, robot in restarting):
                if following not in came_from:
                    came_from[following] = state
                    waiting.append(following)
    return len(came_from), None


def moves(state, robot, places, window, rules, restarts):
    """Yield what can happen next at one robot: a message comes in, a tick, a restart."""
    coming, knows = state.sent[1 - robot], state.heard[robot]
    for index in range(state.read[robot] if "in order" in rules else 0, len(coming)):
        yield State(state.spaces, put(state.heard, robot, coming[index]), state.sent, put(state.read, robot, index + 1))
    for owned, announced in judged(*state.spaces[robot], knows, robot, rules):
        for rest in parts(owned):
            if announced:
                yield from told(state, robot, (rest, announced), window, knows)
                continue
            other = forgets(state, robot) if "this announcement" in rules else state
            yield from told(other, robot, (rest, 0), window, knows)
            for wish in range(1, 1 << places):
                if not wish & (knows.owned | knows.announced):
                    yield from told(other, robot, (rest, wish), window, knows)
    for rest in parts(state.spaces[robot][0]) if restarts else ():
        yield restarted(state, robot, rest, (1 << places) - 1)


def judged(owned, announced, knows, robot, rules):
    """Return what may become of own space and announcement."""
    if not announced:
        return {(owned, 0)}
    ways = set()
    for seems_silent in (False, True):
        hits = bool(announced & knows.owned), bool(announced & knows.announced)
        silent = seems_silent and (knows.knows or "not after a restart" not in rules)
        granted, lost = verdict(*hits, knows.acknowledges, silent, robot == 0, rules)
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


def told(state, robot, space, window, knows):
    """Yield the states after a tick, whose message may push another one out."""
    peer = 1 - robot
    message = Message(*space, space[1] != 0, knows.is_pending, True, knows.is_alive)
    spaces = put(state.spaces, robot, space)
    if state.sent[robot][-1:] == (message,):  # as if the last message had come again
        yield state._replace(spaces=spaces)
        return
    queue = (*state.sent[robot], message)
    if len(queue) <= window:
        yield state._replace(spaces=spaces, sent=put(state.sent, robot, queue))
        return
    for lost in range(len(queue)):
        read = state.read[peer] - (lost < state.read[peer])
        yield State(
            spaces, state.heard, put(state.sent, robot, queue[:lost] + queue[lost + 1 :]), put(state.read, peer, read)
        )


def forgets(state, robot):
    """Mark all that is known or under way as not about the announcement that ``robot`` makes next."""
    peer = 1 - robot
    sent = put(state.sent, robot, tuple(message._replace(is_pending=False) for message in state.sent[robot]))
    sent = put(sent, peer, tuple(message._replace(acknowledges=False) for message in sent[peer]))
    heard = put(state.heard, robot, state.heard[robot]._replace(acknowledges=False))
    heard = put(heard, peer, heard[peer]._replace(is_pending=False))
    return state._replace(heard=heard, sent=sent)


def restarted(state, robot, rest, everything):
    """Return the state in which a robot begins anew with places that it owned; it takes any message for new."""
    peer, state = 1 - robot, forgets(state, robot)
    sent = put(state.sent, robot, tuple(message._replace(is_alive=False) for message in state.sent[robot]))
    sent = put(sent, peer, tuple(message._replace(knows=False) for message in sent[peer]))
    unknown = Message(everything, everything, is_alive=False, knows=False)
    heard = put(put(state.heard, robot, unknown), peer, state.heard[peer]._replace(is_alive=False))
    return State(put(state.spaces, robot, (rest, 0)), heard, sent, put(state.read, robot, 0))


def put(pair, index, value):
    return (value, pair[1]) if index == 0 else (pair[0], value)


def parts(places):
    """Return all subsets of a set of places."""
    return [part for part in range(places + 1) if part & ~places == 0]


@pytest.mark.parametrize(
    ("window", "restarting"),
    [(1, (0, 1)), pytest.param(2, (0,), marks=pytest.mark.slow)],
)
def test_no_reachable_state_has_a_conflict(window, restarting):
    count, way = explore(1, window, restarting=restarting)
    assert way is None, way
    assert count > 10_000


@pytest.mark.slow
def test_no_reachable_state_of_two_places_has_a_conflict():
    count, way = explore(2, 1, restarting=())
    assert way is None, way
    assert count > 10_000


LATE = {"in order": 2, "not after a restart": 2}
"""Rules that only matter where more than one message of a robot is under way."""
RULE_CASES = [pytest.param(rule, marks=pytest.mark.slow) if rule in LATE else rule for rule in sorted(RULES)]


@pytest.mark.parametrize("rule", RULE_CASES)
def test_without_one_of_its_rules_the_protocol_reaches_a_conflict(rule):
    _, way = explore(1, LATE.get(rule, 1), RULES - {rule}, restarting=(0,))
    assert way is not None
    assert conflict(way[-1])
    assert not any(conflict(state) for state in way[:-1])


@pytest.mark.parametrize("robot", [0, 1])
def test_each_robot_can_come_to_own_the_place(robot):
    """The search is no proof about robots that never get anything: the way is announce, hear, answer, hear, take."""
    state, peer = State(), 1 - robot
    for mover, wanted in (
        (robot, lambda state: state.spaces[robot][1] == 1),
        (peer, lambda state: state.heard[peer].announced == 1),
        (peer, lambda state: state.sent[peer][-1:] == (Message(acknowledges=True),)),
        (robot, lambda state: state.heard[robot].acknowledges),
        (robot, lambda state: state.spaces[robot][0] == 1),
    ):
        state = next(following for following in moves(state, mover, 1, 2, RULES, False) if wanted(following))
    assert state.spaces[robot] == (1, 0)


@pytest.mark.parametrize("first", [False, True])
def test_the_model_judges_as_the_shield_does(first):
    """All combinations of what a message can say, with lanes that are near or far."""
    near, far, clearance = (0.0, 0.0), (9.0, 9.0), 1.0
    own = ReservedSpace(np.zeros((2, 2)) + 5.0, np.zeros((2, 2)), np.array(True), np.array(7.0))
    for hits_owned, hits_announced, silent in product([False, True], repeat=3):
        # the newest own message that the peer has heard: of a former life, an earlier one, the announcement
        for number in (float(NOTHING_HEARD), 6.0, 7.0):
            lanes = [np.array([[near if hit else far] * 2]).reshape(2, 2, 1) for hit in (hits_owned, hits_announced)]
            excused = silent and first and number != NOTHING_HEARD  # as FailureDetector finds for two robots
            peers = PeerReservations(
                *lanes, np.array([number]), np.array([excused]), np.array([first]), np.array([True])
            )
            found = decide_grant(own, peers, clearance, 1.0)
            expected = verdict(hits_owned, hits_announced, number >= 7, silent and number != NOTHING_HEARD, first)
            assert (bool(found.granted), bool(found.lost)) == expected
