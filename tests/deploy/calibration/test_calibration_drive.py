"""A calibration drive on the motion model: it completes, pauses, and ends with what it has."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from testudo_deploy.calibration.area import Area, drive_room
from testudo_deploy.calibration.calibration_drive import PATIENCE_S, CalibrationDrive, Outcome
from testudo_deploy.calibration.excitation import excitation_plan
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot

SPEC = load_robot("turtlebot4")
AREA = Area.parse("2x2", (3.0, -1.0))
ROOM = drive_room(SPEC, AREA)


@cache  # a second to compute, also where only the test's name is asked for
def plan():
    return excitation_plan(SPEC, ROOM, 60.0)


class Floor:
    """A robot that drives by a motion model, with noisy and late poses."""

    def __init__(self, drive, truth, seed=0, start=(3.2, -1.1, 2.0)):
        self.drive, self.truth, self.rng = drive, truth, np.random.default_rng(seed)
        self.state = MotionState(np.array(start[:2]), np.float64(start[2]), np.zeros(2))
        self.now_s, self.sent, self.waiting, self.farthest_m = 10.0, [], [], 0.0
        self.poses, self.mode = True, "active"
        self.last, self.heard_s, self.held_s = (0.0, 0.0), self.now_s, -math.inf

    def _followed(self, command):
        """Return what a robot sends on: the last command for 0.4 s of silence, then zeros until a second is sound."""
        if command is not None:
            self.last, self.heard_s = command, self.now_s
        if self.now_s - self.heard_s > 0.4:
            self.held_s = self.now_s
        return (0.0, 0.0) if self._mode() != "active" else self.last

    def _mode(self):
        return "holding" if self.mode == "active" and self.now_s - self.held_s < 1.0 else self.mode

    def run(self, seconds):
        step_s = SPEC.control_period_s / 5
        response = LagResponse.create(np.float64(step_s), np.float64(self.truth.velocity_lag_s))
        model, late = motion_model(self.truth), round(self.truth.command_delay_s / step_s)
        end_s = self.now_s + seconds
        while self.now_s < end_s and self.drive.outcome is Outcome.RUNNING:
            noisy = self.state.position_world + 0.005 * self.rng.standard_normal(2)
            self.waiting.append((self.now_s, noisy, float(self.state.yaw) + 0.01 * self.rng.standard_normal()))
            if self.poses and len(self.waiting) > 1:
                stamp_s, place, yaw = self.waiting[-2]
                self.drive.hear_pose(stamp_s, place, yaw, self.now_s)
            command = self.drive.command(self.now_s)
            command = self._followed(command)
            self.drive.hear_mode(self._mode(), "why not")
            for _ in range(5):
                self.sent.append(command)
                acting = np.array(self.sent[max(len(self.sent) - 1 - late, 0)])
                self.state = model.step(self.state, effective_command(model, acting), response)
                away = np.abs(self.state.position_world - AREA.centre_world)
                self.farthest_m = max(self.farthest_m, float(away.max()))
            self.now_s += SPEC.control_period_s
        return self.drive.outcome


@pytest.mark.parametrize("end", ["low", "high"])
def test_a_drive_completes_in_time_and_stays_inside(end):
    """Robots at either end of all intervals, placed off the centre, come through the whole plan."""
    names = ("velocity_lag", "command_delay", "speed_scale", "turn_scale")
    values = {name: getattr(SPEC.quantities[f"dynamics.{name}"], end) for name in names}
    truth = replace(
        SPEC,
        velocity_lag_s=values["velocity_lag"],
        command_delay_s=values["command_delay"],
        speed_scale=values["speed_scale"],
        turn_scale=values["turn_scale"],
    )
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan())
    floor = Floor(drive, truth)
    assert floor.run(400.0) is Outcome.COMPLETE
    assert drive.done == [segment.name for segment in plan()]
    assert drive.used_s < 300
    assert floor.farthest_m < 1.0 - SPEC.body_radius_m - 0.2


def test_time_ends_a_drive_before_a_segment_that_would_not_end():
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan(), longest_s=40.0)
    assert Floor(drive, SPEC).run(100.0) is Outcome.COMPLETE
    assert 0 < len(drive.done) < len(plan())
    assert 20 < drive.used_s < 40


def test_it_waits_for_the_robot_and_its_poses():
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan())
    floor = Floor(drive, SPEC)
    floor.mode = "armed"
    floor.run(5.0)
    floor.poses = False
    floor.run(2.0)
    floor.mode = "active"
    floor.run(30.0)
    assert not any(map(any, floor.sent))
    assert drive.used_s == 0
    assert drive.outcome is Outcome.RUNNING


def test_lost_poses_brake_and_end_the_drive_with_what_is_done():
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan())
    floor = Floor(drive, SPEC)
    floor.run(30.0)
    floor.poses = False
    floor.run(1.5)
    moved = len(floor.sent)
    assert floor.run(60.0) is Outcome.POSE_LOST
    assert not any(map(any, floor.sent[moved:]))
    assert len(drive.done) >= 2
    assert drive.command(floor.now_s) == (0.0, 0.0)


def test_poses_that_come_back_repeat_the_segment():
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan())
    floor = Floor(drive, SPEC)
    floor.run(30.0)
    before = len(drive.done)
    floor.poses = False
    floor.run(PATIENCE_S / 2)
    floor.poses = True
    assert floor.run(400.0) is Outcome.COMPLETE
    assert len(drive.done) == len(plan()) > before


@pytest.mark.parametrize(("mode", "within_s"), [("stopped", 0.2), ("fault", 0.2), ("holding", PATIENCE_S + 0.2)])
def test_a_robot_that_may_not_drive_ends_it(mode, within_s):
    """An operator's stop ends it at once, a brake that does not end after the patience."""
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan())
    floor = Floor(drive, SPEC)
    floor.run(21.0)  # not in the silence after a segment, in which it waits for a brake of the robot
    floor.mode = mode
    assert floor.run(within_s) is Outcome.STOPPED
    assert drive.reason == "why not"


def test_poses_that_are_no_numbers_are_not_heard():
    drive = CalibrationDrive(SPEC, AREA, ROOM, plan())
    drive.hear_mode("active", "")
    drive.hear_pose(1.0, (math.nan, 0.0), 0.0, 1.0)
    assert drive.command(1.0) == (0.0, 0.0)
    assert drive.used_s == 0
