"""Which task messages a robot uses, for how long, and that nothing lets it drive on old, foreign or wrong values."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.contract.messages import EnvelopeError, TaskMessage
from testudo_deploy.control.task_receiver import OLDEST_TASK_S, TaskReceiver

SIGNALS = (
    Signal("level", (1,), "", "", None),
    Signal("neighbour_level", (NEIGHBOURS, 1), "", "", None),
    Signal("resource_position_world", (2, 3), "m", "world", 3.0),
)
MESSAGE = TaskMessage(
    robot="r0",
    contract="h",
    epoch="task",
    sequence=0,
    stamp_s=7.0,
    sample_age_s=0.05,
    echo=("a", 100.0, 4),
    peers=("r2", "r1"),
    values={"level": (1.0,), "neighbour_level": (3.0, 2.0), "resource_position_world": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)},
)


def receiver(signals=SIGNALS):
    return TaskReceiver(signals, "h", robot="r0", epoch="a", peers=("r1", "r2"))


@pytest.fixture
def task():
    task = receiver()
    assert task.hear(MESSAGE, 100.1)
    return task


def test_values_arrive_component_first_with_peers_by_slot(task):
    arrays = task.reading.arrays
    assert arrays["level"].tolist() == [1.0]
    assert arrays["neighbour_level"].tolist() == [[2.0, 3.0]]  # the message names r2 first
    assert arrays["resource_position_world"].tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert task.reading.values["neighbour_level"] == (2.0, 3.0)


def test_the_age_counts_from_the_robots_own_stamp_and_adds_that_of_the_measurements(task):
    """The station's clock reads 7 s, the robot's 100 s: only the echo can bound the age."""
    assert task.age_s(100.2) == pytest.approx(0.25)
    assert task.fault(100.2) == ""
    # negative control: the message lay in a queue; since its arrival no time has passed
    late = receiver()
    assert late.hear(MESSAGE, 103.0)
    assert late.fault(103.0) == "task_stale: the values of the task are 3.05 s old, at most 0.4 s"


def test_without_a_message_it_brakes_and_without_signals_it_needs_none():
    assert receiver().fault(100.0) == "task_stale: no message of the task node has been received"
    silent = receiver(())
    assert not silent.hear(MESSAGE, 100.1)
    assert silent.fault(100.0) == ""


def test_a_signal_without_an_oldest_age_has_one_too():
    """The contract says None for `level`: a task node that stops must brake the robots all the same."""
    task = receiver(SIGNALS[:1])
    task.hear(replace(MESSAGE, values={"level": (1.0,)}), 100.1)
    assert task.limit_s == OLDEST_TASK_S
    assert task.fault(100.0 - 0.05 + OLDEST_TASK_S + 0.001).startswith("task_stale: ")


def test_the_strictest_signal_decides():
    strict = receiver((*SIGNALS[:2], replace(SIGNALS[2], max_age_s=0.2)))
    strict.hear(MESSAGE, 100.1)
    assert strict.fault(100.149) == ""
    assert strict.fault(100.151).startswith("task_stale: ")


def test_another_contract_brakes_at_once_and_the_right_one_releases(task):
    assert not task.hear(replace(MESSAGE, contract="other", sequence=1), 100.1)
    assert task.fault(100.1) == "task_contract: found other at the task node, expected h"
    assert task.reading is None
    assert task.hear(replace(MESSAGE, sequence=2), 100.1)
    assert task.fault(100.1) == ""


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"level": (1.0, 2.0)}, "level: found 2 numbers, expected 1 finite numbers"),
        ({"neighbour_level": (1.0,)}, "neighbour_level: found 1 numbers, expected 2"),
        ({"resource_position_world": (1.0,) * 5}, "resource_position_world: found 5 numbers, expected 6"),
        ({"gaol": (1.0,)}, "unknown signal gaol"),
    ],
)
def test_wrong_values_brake_at_once(task, values, sentence):
    assert not task.hear(replace(MESSAGE, sequence=1, values=MESSAGE.values | values), 100.1)
    assert task.fault(100.1).startswith("task_stale: ")
    assert sentence in task.fault(100.1)


@pytest.mark.parametrize("peers", [("r1", "r3"), ("r1",), ("r1", "r1")])
def test_values_for_other_peers_brake(task, peers):
    values = MESSAGE.values | {"neighbour_level": (1.0,) * len(peers)}
    assert not task.hear(replace(MESSAGE, sequence=1, peers=peers, values=values), 100.1)
    assert "expected r1, r2" in task.fault(100.1)


def test_a_missing_signal_brakes(task):
    assert not task.hear(replace(MESSAGE, sequence=1, values={"level": (1.0,)}), 100.1)
    assert "no signal neighbour_level" in task.fault(100.1)


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 0},
        {"robot": "r1", "sequence": 1},
        {"echo": ("former", 100.0, 4), "sequence": 1},
        {"echo": ("a", 95.0, 4), "sequence": 1},
        {"echo": ("a", 100.2, 4), "sequence": 1},
        {"epoch": "second", "sequence": 1},
    ],
    ids=["replayed", "of another robot", "of a former process", "old answer", "of the future", "second task node"],
)
def test_a_message_that_is_not_the_next_is_refused_and_changes_nothing(task, change):
    values = MESSAGE.values | {"level": (9.0,)}
    assert not task.hear(replace(MESSAGE, values=values, **change), 100.1)
    assert task.refused == 1
    assert task.reading.arrays["level"].tolist() == [1.0]
    assert task.fault(100.1) == ""


def test_a_new_task_node_begins_once_the_former_one_is_silent_and_the_former_one_stays_out(task):
    second = replace(MESSAGE, epoch="second", echo=("a", 100.9, 30))
    assert task.hear(second, 101.0)
    assert task.fault(101.0) == ""
    assert not task.hear(replace(MESSAGE, sequence=9, echo=("a", 101.4, 45)), 101.5)


def test_a_clock_that_went_back_forgets_the_values(task):
    task.forget()
    assert task.fault(3.0) == "task_stale: no message of the task node has been received"


@pytest.mark.parametrize(
    "change",
    [{"stamp_s": np.inf}, {"sample_age_s": -0.1}, {"echo": ("a", np.nan, 1)}, {"values": {"level": (np.nan,)}}],
)
def test_an_envelope_has_finite_values_and_no_sample_of_the_future(change):
    with pytest.raises(EnvelopeError):
        replace(MESSAGE, **change)


def test_an_envelope_reads_back_and_robots_refuse_another_schema():
    data = MESSAGE.encode()
    assert TaskMessage.decode(data) == MESSAGE
    for bad in (data.replace(b"task/1", b"task/2"), data[:-1], b"[]", data.replace(b"0.05", b"NaN")):
        with pytest.raises(EnvelopeError):
            TaskMessage.decode(bad)


MESSAGES = st.fixed_dictionaries(
    {
        "epoch": st.sampled_from(["task", "second"]),
        "contract": st.sampled_from(["h", "h", "other"]),
        "sequence": st.integers(0, 6),
        "sample_age_s": st.floats(0, 1),
        "echo": st.tuples(st.sampled_from(["a", "former"]), st.floats(99.0, 101.0), st.integers(0, 9)),
        "values": st.sampled_from([MESSAGE.values, {"level": (1.0,)}]),
    }
)


@given(st.lists(st.tuples(MESSAGES, st.floats(99.5, 102.0)), max_size=6), st.floats(0.0, 3.0))
def test_no_messages_let_it_drive_on_values_older_than_the_limit(heard, wait_s):
    """Whatever arrives: it may drive only on a message of its contract that answers it, within the oldest age."""
    task, now_s = receiver(), 99.5
    for change, received_s in heard:
        now_s = max(now_s, received_s)
        task.hear(replace(MESSAGE, **change), now_s)
    now_s += wait_s
    if task.fault(now_s):
        return
    sound = [
        one for one, _ in heard if (one["contract"], one["echo"][0]) == ("h", "a") and one["values"] is MESSAGE.values
    ]
    youngest = min(now_s - one["echo"][1] + one["sample_age_s"] for one in sound)
    assert youngest <= OLDEST_TASK_S + 1e-9
    assert task.age_s(now_s) <= OLDEST_TASK_S
