"""The plan of a calibration drive stays in the free area for every robot that the file's intervals permit."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import FULL, examples

from testudo_deploy.calibration.area import Area, Room, drive_room, stop_m
from testudo_deploy.calibration.excitation import (
    BRAKE,
    DELAY,
    LAG,
    LONGEST_S,
    SPEED,
    TURN,
    Tolerance,
    duration_s,
    excitation_plan,
    told_by,
)
from testudo_deploy.calibration.motion_spread import RobotSet, intervals, motions
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot

ROBOTS = {"turtlebot4": "2x2", "gritsbot_x": "1x1.4"}


@cache
def planned(robot):
    spec = load_robot(robot)
    area = Area.parse(ROBOTS[robot], (0.0, 0.0))
    return spec, area, excitation_plan(spec, drive_room(spec, area))


shares = st.lists(st.floats(0, 1), min_size=7, max_size=7)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.sampled_from(sorted(ROBOTS) if FULL else ["turtlebot4"]),
    st.integers(0, 10),
    shares,
    st.floats(0, math.tau),
    st.floats(0, 1),
    st.floats(-1, 1),
)
def test_every_robot_of_the_intervals_stays_inside_with_its_way_to_rest(robot, number, drawn, to, off, turned):
    """Also from a start that is off by all of the tolerance, and with the brake at any moment of the drive."""
    spec, area, plan = planned(robot)
    segment, tolerance = plan[number], Tolerance.of(spec)
    row = [low + share * (high - low) for share, (low, high) in zip(drawn, intervals(spec), strict=True)]
    x, y, yaw = segment.start or (0.0, 0.0, 0.0)
    away = off * tolerance.place_m
    start = tuple(
        np.array([value])
        for value in (x + away * math.cos(to), y + away * math.sin(to), yaw + turned * tolerance.yaw_rad)
    )
    found = motions(spec, RobotSet.of([row]), segment.commands, start)
    shield = projection_parameters(spec)
    # nearer to a side than this, layer 1 of the shield would change a command at full speed
    kept = shield.wall_m + spec.look_ahead_m
    half = np.array(area.size_m) / 2
    assert (found.reach_m() <= half - kept + 1e-3).all()
    assert (found.reach_m(spec.body_radius_m) < half).all()


def test_a_robot_outside_of_its_intervals_leaves_the_room():
    """Negative control: the room is used up, so that the check above can fail."""
    spec, area, plan = planned("turtlebot4")
    fast = RobotSet.of([[high * (1.5 if k == 2 else 1.0) for k, (_, high) in enumerate(intervals(spec))]])
    straight = plan[0]
    start = tuple(np.array([value]) for value in straight.start)
    room = drive_room(spec, area)
    assert motions(spec, fast, straight.commands, start).reach_m()[0] > room.half_x_m


def test_commands_are_within_the_limits_and_end_at_rest_within_the_time():
    spec, _, plan = planned("turtlebot4")
    model = motion_model(spec)
    for segment in plan:
        sent = np.nan_to_num(segment.commands)
        assert model.limit_command(sent) == pytest.approx(sent, abs=1e-12)
        assert (sent[0] >= 0).all()  # bumpers and scanners look ahead
        assert duration_s(spec, segment) < LONGEST_S / 5
    assert LONGEST_S <= sum(duration_s(spec, segment) for segment in plan) < 1.5 * LONGEST_S
    # a drive that ends after the first round has driven what tells each parameter
    assert all(told_by(plan[:11], key) for key in (LAG, DELAY, SPEED, TURN, BRAKE))


def test_an_area_without_room_is_refused_with_what_would_do():
    spec = load_robot("turtlebot4")
    with pytest.raises(TestudoError, match=r"found 1x3 m, expected at least \d(\.\d)?x\d(\.\d)? m for a turtlebot4"):
        drive_room(spec, Area.parse("1x3", (0.0, 0.0)))
    with pytest.raises(TestudoError, match="--area: found no room for"):
        excitation_plan(spec, Room(0.1, 0.1))
    for text in ("2", "2x", "x2", "0x2", "-1x2", "nanx2", "2x2x2", "1000x2"):
        with pytest.raises(TestudoError, match="--area: found"):
            Area.parse(text, (0.0, 0.0))
    with pytest.raises(TestudoError, match="holonomic"):
        drive_room(load_robot("robomaster_s1"), Area.parse("5x5", (0.0, 0.0)))


def test_a_worse_brake_needs_a_longer_way():
    spec = load_robot("turtlebot4")
    limit = spec.quantities["limits.acceleration"]
    weak = {**spec.quantities, "limits.acceleration": replace(limit, low=0.3)}
    assert stop_m(replace(spec, quantities=weak)) > stop_m(spec) + 0.05
