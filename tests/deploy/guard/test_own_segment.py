"""The guard holds a robot to the segment that its peers were told, whatever its policy's process sends."""

import dataclasses
import math

import pytest

from testudo_deploy.guard.own_segment import SILENT_S, OwnSegment, SegmentLimits

ALONG = ((0.0, 0.0), (1.0, 0.0))
AHEAD = ((0.5, 0.0), (2.0, 0.0))
HERE = [(0.0, 0.0)]


@pytest.fixture
def told(message):
    """Return a function that makes announcements of the robot, and a segment of 0.1 m half-width that heard none."""

    def say(sequence, reserved=ALONG, requested=AHEAD, epoch="a"):
        return dataclasses.replace(
            message,
            sequence=sequence,
            epoch=epoch,
            reserved_segment_world=reserved,
            requested_segment_world=requested,
        )

    return say


@pytest.fixture
def segment():
    return OwnSegment(SegmentLimits(0.1))


def test_nothing_is_permitted_before_the_first_announcement_and_long_after_the_last(segment, told):
    assert segment.is_silent(10.0)
    assert not segment.permits(HERE, HERE, 0.0)
    segment.hear(told(1), 10.0)
    assert not segment.is_silent(10.0 + SILENT_S)
    assert segment.is_silent(10.01 + SILENT_S)


@pytest.mark.parametrize(
    ("place", "inside"), [((1.0, 0.09), True), ((1.0, 0.11), False), ((-0.11, 0.0), False), ((math.nan, 0.0), False)]
)
def test_a_path_stays_within_the_half_width_of_the_reserved_segment(segment, told, place, inside):
    segment.hear(told(1, requested=ALONG), 10.0)
    assert segment.permits([(0.5, 0.0), place], HERE, 0.0) is inside


def test_a_requested_segment_counts_once_until_it_is_announced_as_reserved(segment, told):
    """The first command in a granted segment may arrive before its announcement; driving on without one is refused."""
    beyond = [(1.8, 0.0)]
    segment.hear(told(1), 10.0)
    assert segment.permits(beyond, HERE, 0.0)
    assert segment.permits(beyond, HERE, 0.0)  # the next announcement is late
    segment.hear(told(2), 10.02)
    assert not segment.permits(beyond, HERE, 0.0)
    segment.hear(told(3, reserved=AHEAD), 10.04)
    assert segment.permits(beyond, HERE, 0.0)


def test_an_older_announcement_does_not_count(segment, told):
    segment.hear(told(5, reserved=((0.0, 0.0),) * 2, requested=((0.0, 0.0),) * 2), 10.0)
    segment.hear(told(4), 10.01)
    assert not segment.permits([(0.9, 0.0)], HERE, 0.0)
    segment.hear(told(1, epoch="b"), 10.02)  # a new process counts from one
    assert segment.permits([(0.9, 0.0)], HERE, 0.0)


def test_a_robot_that_is_outside_may_come_back_but_not_go_farther(segment, told):
    segment.hear(told(1), 10.0)
    outside = [(0.5, 0.3)]
    assert segment.permits([(0.5, 0.25)], outside, 0.01)
    assert segment.permits([(0.5, 0.305)], outside, 0.01)
    assert not segment.permits([(0.5, 0.32)], outside, 0.01)


def test_heights_of_drones_count_less(told, message):
    segment = OwnSegment(SegmentLimits(0.1, height_ratio=2.5))
    line = ((0.0, 0.0, 1.0), (1.0, 0.0, 1.0))
    segment.hear(told(1, reserved=line, requested=line), 10.0)
    assert segment.permits([(0.5, 0.0, 1.24)], [(0.0, 0.0, 1.0)], 0.0)
    assert not segment.permits([(0.5, 0.0, 1.26)], [(0.0, 0.0, 1.0)], 0.0)
