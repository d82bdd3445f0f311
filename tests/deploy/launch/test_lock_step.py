"""Rounds of simulated time: nobody acts before everything sent is here, nor on anything sent later."""

from itertools import islice

import numpy as np
import pytest

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.launch.lock_step import (
    START_S,
    Mailbox,
    RoundDone,
    Rounds,
    RoundStage,
    RoundTurn,
    SimTimer,
    round_times_s,
    stage_of,
)
from testudo_hardware.errors import TestudoError


def test_a_turn_waits_for_every_message_that_was_sent():
    box = Mailbox()
    box.open("/a")
    box.open("/b")
    box.post("/b", "b1")
    assert not box.is_complete({"/a": 1, "/b": 1})
    box.post("/a", "a1")
    assert box.is_complete({"/a": 1, "/b": 1})


def test_topics_that_nobody_opened_are_not_waited_for():
    box = Mailbox()
    box.open("/a")
    assert box.is_complete({"/elsewhere": 7})


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_does_not_depend_on_the_order_of_arrival(seed):
    """DDS orders within a topic only: any interleaving, and messages of the next turn among them, give the same."""
    box, chance = Mailbox(), np.random.default_rng(seed)
    for topic in ("/a", "/b", "/c"):
        box.open(topic)
    coming = {"/a": [1, 2, 3], "/b": [1, 2], "/c": [1]}
    while any(coming.values()):
        topic = chance.choice([name for name, items in coming.items() if items])
        box.post(topic, coming[topic].pop(0))
    first, second = {"/a": 2, "/b": 1}, {"/a": 3, "/b": 2, "/c": 1}
    assert box.take(first) == [("/a", 1), ("/a", 2), ("/b", 1)]
    assert box.take(second) == [("/a", 3), ("/b", 2), ("/c", 1)]
    assert box.take_all() == []


def test_what_came_after_the_last_turn_is_not_lost():
    box = Mailbox()
    box.open("/a")
    box.post("/a", 1)
    box.post("/a", 2)
    assert box.take({"/a": 1}) == [("/a", 1)]
    assert box.take_all() == [("/a", 2)]
    assert box.take({"/a": 2}) == []


def test_a_timer_goes_by_simulated_time_and_begins_anew_when_reset():
    rung = []
    timer = SimTimer(0.1, lambda: rung.append(1), 1.0)
    timer.advance(1.09)
    assert rung == []
    timer.advance(1.1 - 1e-12)  # rounding does not cost a round
    assert rung == [1]
    timer.advance(1.15)
    timer.reset()
    timer.advance(1.21)
    assert rung == [1]
    timer.advance(1.25)
    assert rung == [1, 1]


def answer(rounds, node, number, **sent):
    rounds.take(RoundDone(node, number, {f"/{topic}": count for topic, count in sent.items()}))


@pytest.mark.parametrize(
    ("periods_s", "expected_ms"),
    [
        ([0.02], [0, 20, 40, 60]),
        ([0.02, 0.033], [0, 20, 33, 40, 60, 66, 80, 99, 100]),
        ([0.02, 0.05, 0.05], [0, 20, 40, 50, 60, 80, 100, 120]),
    ],
)
def test_a_round_begins_at_every_tick_of_any_robot_and_at_each_once(periods_s, expected_ms):
    times_s = islice(round_times_s(periods_s), len(expected_ms))
    np.testing.assert_allclose([time_s - START_S for time_s in times_s], np.array(expected_ms) / 1e3, atol=1e-9)


def test_rounds_do_not_drift_over_an_hour():
    """The 180,000th round of 20 ms is one hour after the first, to the microsecond."""
    ticks = 3600 * 50
    times_s = round_times_s([0.02])
    assert next(islice(times_s, ticks, None)) == pytest.approx(START_S + 3600, abs=1e-6)


@pytest.mark.parametrize("periods_s", [[], [0.0], [-0.02, 0.02]])
def test_rounds_of_no_length_are_refused(periods_s):
    with pytest.raises(ValueError, match="control periods"):
        next(round_times_s(periods_s))


def test_a_stage_begins_when_all_of_the_last_have_answered_and_knows_what_they_sent():
    rounds = Rounds(["r0/policy", "r0/guard", "station"])
    for node in ("r0/policy", "r0/guard"):
        answer(rounds, node, -1)
    assert rounds.missing == ("station",)
    answer(rounds, "station", -1)
    turn = rounds.turn(1.0)
    assert (turn.number, turn.stage, rounds.missing) == (0, "sense", ("r0/policy",))
    answer(rounds, "r0/policy", 0, command=1)
    turn = rounds.turn(1.0)
    assert (turn.number, turn.stage, turn.sent) == (0, "act", {"/command": 1})
    assert rounds.missing == ("r0/guard", "station")


def test_answers_to_another_turn_or_of_strangers_count_for_nothing():
    rounds = Rounds(["r0/policy"])
    answer(rounds, "r0/policy", 3, command=9)
    answer(rounds, "r9/policy", -1, command=9)
    assert rounds.missing == ("r0/policy",)
    assert rounds.sent == {}


def test_a_node_that_is_dropped_is_not_waited_for_again():
    rounds = Rounds(["r0/policy", "recorder"])
    answer(rounds, "r0/policy", -1)
    rounds.drop("recorder")
    assert rounds.missing == ()
    rounds.turn(1.0)
    assert rounds.missing == ("r0/policy",)


def test_only_nodes_with_a_part_in_rounds_take_part():
    assert stage_of("r0/policy") is RoundStage.SENSE
    assert stage_of("r0/guard") is RoundStage.ACT
    with pytest.raises(TestudoError, match="'markers' has no part"):
        Rounds(["markers"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: RoundTurn(0, "later", 1.0, {}),
        lambda: RoundTurn(0, "sense", None, {}),
        lambda: RoundTurn(0, "sense", 1.0, {"/a": 1.5}),
        lambda: RoundTurn(True, "sense", 1.0, {}),
        lambda: RoundDone("r0/policy", 0, None),
        lambda: RoundDone("r0/policy", "0", {}),
    ],
)
def test_turns_and_answers_of_a_wrong_type_are_refused(make):
    with pytest.raises(EnvelopeError):
        make()


def test_turns_travel_without_loss():
    turn = RoundTurn(4, "act", 1.0 / 3.0, {"/a": 2})
    assert RoundTurn.decode(turn.encode()) == turn
