"""Rounds of simulated time: no node acts before all sent messages have arrived, nor on later ones."""

from itertools import islice

import numpy as np
import pytest

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.launch.lock_step import (
    START_S,
    Rounds,
    SimTimer,
    Stage,
    StageDone,
    StageStart,
    TopicQueues,
    round_times_s,
    stage_of,
)
from testudo_hardware.errors import TestudoError


def test_a_stage_waits_for_every_message_that_was_sent():
    queues = TopicQueues()
    queues.open("/a")
    queues.open("/b")
    queues.put("/b", "b1")
    assert not queues.is_complete({"/a": 1, "/b": 1})
    queues.put("/a", "a1")
    assert queues.is_complete({"/a": 1, "/b": 1})


def test_unopened_topics_are_not_waited_for():
    queues = TopicQueues()
    queues.open("/a")
    assert queues.is_complete({"/elsewhere": 7})


@pytest.mark.parametrize("seed", range(20))
def test_what_is_taken_does_not_depend_on_the_order_of_arrival(seed):
    """DDS orders within a topic only: any interleaving, and messages of the next stage among them, give the same."""
    queues, chance = TopicQueues(), np.random.default_rng(seed)
    for topic in ("/a", "/b", "/c"):
        queues.open(topic)
    coming = {"/a": [1, 2, 3], "/b": [1, 2], "/c": [1]}
    while any(coming.values()):
        topic = chance.choice([name for name, items in coming.items() if items])
        queues.put(topic, coming[topic].pop(0))
    first, second = {"/a": 2, "/b": 1}, {"/a": 3, "/b": 2, "/c": 1}
    assert queues.take(first) == [("/a", 1), ("/a", 2), ("/b", 1)]
    assert queues.take(second) == [("/a", 3), ("/b", 2), ("/c", 1)]
    assert queues.take_all() == []


def test_messages_after_the_last_stage_are_not_lost():
    queues = TopicQueues()
    queues.open("/a")
    queues.put("/a", 1)
    queues.put("/a", 2)
    assert queues.take({"/a": 1}) == [("/a", 1)]
    assert queues.take_all() == [("/a", 2)]
    assert queues.take({"/a": 2}) == []


def test_a_timer_follows_simulated_time_and_restarts_when_reset():
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
    rounds.take(StageDone(node, number, {f"/{topic}": count for topic, count in sent.items()}))


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
    start = rounds.start_stage(1.0)
    assert (start.number, start.stage, rounds.missing) == (0, "sense", ("r0/policy",))
    answer(rounds, "r0/policy", 0, command=1)
    start = rounds.start_stage(1.0)
    assert (start.number, start.stage, start.sent) == (0, "act", {"/command": 1})
    assert rounds.missing == ("r0/guard", "station")


def test_answers_to_another_stage_or_of_unknown_nodes_are_ignored():
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
    rounds.start_stage(1.0)
    assert rounds.missing == ("r0/policy",)


def test_only_nodes_with_a_stage_take_part():
    assert stage_of("r0/policy") is Stage.SENSE
    assert stage_of("r0/guard") is Stage.ACT
    with pytest.raises(TestudoError, match="'markers' has no stage"):
        Rounds(["markers"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: StageStart(0, "later", 1.0, {}),
        lambda: StageStart(0, "sense", None, {}),
        lambda: StageStart(0, "sense", 1.0, {"/a": 1.5}),
        lambda: StageStart(True, "sense", 1.0, {}),
        lambda: StageDone("r0/policy", 0, None),
        lambda: StageDone("r0/policy", "0", {}),
    ],
)
def test_starts_and_answers_of_a_wrong_type_are_refused(make):
    with pytest.raises(EnvelopeError):
        make()


def test_a_start_is_encoded_without_loss():
    start = StageStart(4, "act", 1.0 / 3.0, {"/a": 2})
    assert StageStart.decode(start.encode()) == start
