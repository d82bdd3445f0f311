"""Signals that a robot takes from its sensors: in place of the station's, as old as any, and never wrong ones."""

import math
from dataclasses import replace

import pytest
from tests.deploy.control.test_task_receiver import MESSAGE, SIGNALS

from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_hardware.errors import TestudoError

PLACES = "resource_position_world"
SEEN = (9.0, 8.0, 7.0, 6.0, 5.0, 4.0)


def receiver(signals=SIGNALS, sensed=(PLACES,)):
    return TaskReceiver(signals, "h", robot="r0", epoch="a", peers=("r1", "r2"), sensed=sensed)


@pytest.fixture
def task():
    task = receiver()
    assert task.hear(MESSAGE, 100.1)
    task.sensors.hear(PLACES, SEEN, 100.0, 100.1)
    return task


def test_the_sensor_is_read_in_place_of_the_station(task):
    assert task.fault(100.2) == ""
    assert task.reading.values == {"level": (1.0,), "neighbour_level": (2.0, 3.0), PLACES: SEEN}
    assert task.reading.sensed_stamp_s == {PLACES: 100.0}
    assert task.reading.epoch == "task"  # the others are the station's


def test_both_are_needed_and_both_grow_old(task):
    silent = receiver()
    silent.hear(MESSAGE, 100.1)
    assert silent.reading is None
    assert silent.fault(100.1) == f"task_stale: {PLACES}: its sensor has sent nothing"
    for number in range(1, 5):  # the station goes on, the sensor does not
        echo = ("a", 100.0 + 0.1 * number, 4 + number)
        assert task.hear(replace(MESSAGE, sequence=number, echo=echo), 100.1 + 0.1 * number)
    assert task.fault(100.5) == f"task_stale: {PLACES}: the value of its sensor is 0.50 s old, at most 0.4 s"
    task.sensors.hear(PLACES, SEEN, 100.5, 100.5)
    assert task.fault(100.5) == ""
    assert task.fault(100.8).startswith("task_stale: the values of the task are 0.45 s old")


@pytest.mark.parametrize(
    ("numbers", "stamp_s", "sentence"),
    [
        (SEEN[:5], 100.2, "found 5 numbers, expected 6 finite numbers"),
        ((*SEEN[:5], math.nan), 100.2, "expected 6 finite numbers"),
        ((*SEEN[:5], math.inf), 100.2, "expected 6 finite numbers"),
        (SEEN, 100.4, "its sensor's stamp is of the future"),
    ],
)
def test_wrong_values_brake_until_right_ones_come(task, numbers, stamp_s, sentence):
    task.sensors.hear(PLACES, numbers, stamp_s, 100.2)
    assert task.fault(100.2).startswith("task_stale: ")
    assert sentence in task.fault(100.2)
    assert task.reading is None
    task.sensors.hear(PLACES, SEEN, 100.25, 100.25)
    assert task.fault(100.25) == ""


def test_an_older_message_changes_nothing(task):
    task.sensors.hear(PLACES, (0.0,) * 6, 99.9, 100.2)
    assert task.reading.values[PLACES] == SEEN


def test_a_robot_whose_sensors_send_everything_needs_no_station():
    task = receiver(SIGNALS[2:])
    assert task.signals == ()
    assert task.fault(100.0).endswith("its sensor has sent nothing")
    task.sensors.hear(PLACES, SEEN, 100.0, 100.0)
    assert task.fault(100.1) == ""
    assert (task.reading.contract, task.reading.epoch, task.reading.bound_s) == ("h", "", 100.0)
    task.forget()
    assert task.reading is None


def test_a_sensor_of_peers_signals_is_refused():
    with pytest.raises(TestudoError, match="signal neighbour_level: found a sensor topic for it"):
        receiver(sensed=("neighbour_level",))
