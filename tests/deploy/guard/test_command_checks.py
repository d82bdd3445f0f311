"""What the guard finds in a command by itself: limits of the robot file, its own pose, room to stop in the arena."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from tests.deploy.fine_motion import drawn, random_command
from tests.deploy.lone_drive import Drive

from testudo_deploy.guard.command_checks import Bounds, CommandChecks, KeepOut
from testudo_deploy.guard.guard_bounds import guard_bounds, segment_limits
from testudo_deploy.guard.own_segment import OwnSegment
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule, clearance
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.spec import load_robot

ROBOTS = ["gritsbot_x", "turtlebot4", "robomaster_s1", "crazyflie_2x"]
HALF_M = 1.0


def checks(spec, arena=None, **options):
    bounds = None if arena is None else guard_bounds(spec, arena)
    return CommandChecks(spec, bounds, oldest_pose_s=spec.pose_max_age_s + spec.control_period_s, **options)


def box(spec, *obstacles):
    size = spec.dimension
    return Arena((-HALF_M,) * size, (HALF_M,) * size, obstacles)


def at(made, place, now_s=10.0, yaw=0.0, velocity=None):
    """Let the guard see its robot."""
    made.see_pose(now_s, place, yaw, velocity or (0.0,) * len(place))
    return made


def test_limits_of_the_robot_file():
    spec = load_robot("gritsbot_x")  # 0.2 m/s, 3.81 rad/s, and wheels that do not reach both at once
    made = checks(spec)
    assert made.refusal((0.2, 0.0), 10.0) == ""
    assert made.refusal((-0.2, 0.0), 10.0) == ""
    assert made.refusal((0.21, 0.0), 10.0) == "limits"
    assert made.refusal((0.0, 1.1 * spec.turn_rate_limit_rad_s), 10.0) == "limits"
    assert made.refusal((spec.speed_limit_m_s, spec.turn_rate_limit_rad_s), 10.0) == "limits"
    drone = checks(load_robot("crazyflie_2x"))
    assert drone.refusal((0.6, 0.6, 0.5), 10.0) == ""
    assert drone.refusal((0.7, 0.7, 0.7), 10.0) == "limits"


def test_a_brake_always_passes_and_motion_needs_an_own_young_pose():
    spec = load_robot("gritsbot_x")
    made = checks(spec, box(spec))
    assert made.refusal((0.0, 0.0), 10.0) == ""
    assert made.refusal((0.1, 0.0), 10.0) == "no_pose"
    at(made, (0.0, 0.0))
    assert made.refusal((0.1, 0.0), 10.05) == ""
    assert made.refusal((0.1, 0.0), 10.05 + spec.pose_max_age_s) == "no_pose"
    made.see_pose(11.0, (math.nan, 0.0), 0.0, (0.0, 0.0))  # a bad reading is no reading
    made.see_pose(9.0, (0.0, 0.0), 0.0, (0.0, 0.0))
    assert made.refusal((0.1, 0.0), 11.0) == "no_pose"


def test_it_may_drive_towards_a_wall_for_as_long_as_it_can_stop_before_it():
    """Way from a standstill at 0.2 m/s, held for 5 ticks of 33 ms: 33 mm, since the brake adds what the lag cost."""
    spec = load_robot("gritsbot_x")
    arena = box(spec)
    room_m = HALF_M - guard_bounds(spec, arena).margin_m
    way_m = 0.2 * spec.speed_scale * math.ceil(spec.hold_s / spec.control_period_s) * spec.control_period_s
    assert at(checks(spec, arena), (room_m - 1.02 * way_m, 0.0)).refusal((0.2, 0.0), 10.0) == ""
    near = at(checks(spec, arena), (room_m - 0.98 * way_m, 0.0))
    assert near.refusal((0.2, 0.0), 10.0) == "arena"
    assert near.refusal((-0.2, 0.0), 10.0) == ""
    assert at(checks(spec, arena), (room_m - 0.98 * way_m, 0.0), yaw=math.pi / 2).refusal((0.2, 0.0), 10.0) == ""
    backwards = at(checks(spec, arena), (room_m - 0.98 * way_m, 0.0), yaw=math.pi)
    assert backwards.refusal((-0.2, 0.0), 10.0) == "arena"


def test_a_robot_that_is_too_near_already_may_move_away_and_not_closer():
    spec = load_robot("gritsbot_x")
    made = at(checks(spec, box(spec)), (HALF_M - spec.body_radius_m, 0.0))
    assert made.refusal((-0.1, 0.0), 10.0) == ""
    assert made.refusal((0.1, 0.0), 10.0) == "arena"
    assert made.refusal((0.01, 0.0), 10.0) == "arena"


def test_what_was_sent_and_has_not_acted_yet_counts():
    """The pose shows a standstill, but full speed is on its way: with one more command it would be too far."""
    spec = load_robot("gritsbot_x")
    arena = box(spec)
    room_m = HALF_M - guard_bounds(spec, arena).margin_m
    still, moving = (at(checks(spec, arena), (room_m - 0.035, 0.0), 10.0) for _ in range(2))
    moving.note_sent(9.99, (0.2, 0.0))
    assert still.refusal((0.2, 0.0), 10.09) == ""
    assert moving.refusal((0.2, 0.0), 10.09) == "arena"


def test_a_robot_that_lands_may_leave_its_arena_downwards_only():
    spec = load_robot("crazyflie_2x")
    arena = Arena((-2.0, -2.0, 0.5), (2.0, 2.0, 2.0))
    low = (0.0, 0.0, 0.5 + guard_bounds(spec, arena).margin_m)
    assert at(checks(spec, arena), low).refusal((0.0, 0.0, -0.3), 10.0) == "arena"
    assert at(checks(spec, arena, lands=True), low).refusal((0.0, 0.0, -0.3), 10.0) == ""
    assert at(checks(spec, arena, lands=True), (1.9, 0.0, 1.0)).refusal((0.5, 0.0, -0.3), 10.0) == "arena"


@pytest.mark.parametrize(
    "obstacle",
    [Ball((0.3, -0.2), 0.2), Capsule((0.0, -0.5), (0.4, 0.3), 0.1), Block((0.1, 0.2), (0.3, 0.1), 0.7)],
    ids=["ball", "capsule", "box"],
)
def test_distances_from_obstacles_are_those_of_the_shield(obstacle):
    spec = load_robot("gritsbot_x")
    (found,) = guard_bounds(spec, box(spec, obstacle)).obstacles
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (2, 500))
    expected = clearance(obstacle, points)[0]
    assert [found.distance_m(tuple(point)) for point in points.T] == pytest.approx(expected, abs=1e-9)


def test_it_stops_before_an_obstacle():
    spec = load_robot("gritsbot_x")
    made = at(checks(spec, box(spec, Ball((0.5, 0.0), 0.1))), (0.5 - 0.1 - 0.08, 0.0))
    assert made.refusal((0.2, 0.0), 10.0) == "arena"
    assert made.refusal((-0.2, 0.0), 10.0) == ""


class GuardedDrive:
    """A robot with a wrong policy's process, whose commands reach the wheels only through the checks."""

    def __init__(self, spec, seed, *, checked=True, arena=None):
        rng = np.random.default_rng(seed)
        self.spec, self.rng = spec, rng
        self.arena = arena or box(spec)
        self.drive = Drive(spec, drawn(spec, rng, ends=True), rng, arena=self.arena)
        self.made = checks(spec, self.arena) if checked else None
        self.refused = []

    def step(self, command):
        """Run one tick with an actuator command in the channels of the model."""
        drive, spec = self.drive, self.spec
        now_s = drive.now_s
        stamp_s, (place, yaw, velocity) = drive.past[max(0, len(drive.past) - 1 - round(0.03 / 1e-3))]
        error = self.rng.uniform(-1, 1, spec.dimension) * spec.position_error_m / math.sqrt(spec.dimension)
        turned = yaw + spec.yaw_error_rad * self.rng.uniform(-1, 1)
        if self.made is not None:
            self.made.see_pose(100.0 + stamp_s, tuple(place + error), turned, tuple(np.asarray(velocity, float)))
            wire = body_forward_command(spec, tuple(command), turned)
            code = self.made.refusal(wire, now_s)
            self.refused.append(code)
            if code:
                command = 0 * np.asarray(command)
                wire = (0.0,) * spec.dimension
            self.made.note_sent(now_s, wire)
        drive.sent.insert(0, (drive.time_s, np.asarray(command, float)))
        drive.sent = drive.sent[:40]
        places, _ = drive.move(spec.control_period_s)
        return places

    def deepest_m(self, command, ticks):
        """Return how near the body came to a wall, negative inside it, under unshielded commands."""
        nearest = math.inf
        for tick in range(ticks):
            places = self.step(command(tick))
            nearest = min(nearest, HALF_M - np.abs(places).max() - self.spec.body_radius_m)
        return nearest


def straight_at_a_wall(spec):
    """Return a wrong policy: as fast as the robot may, always in one direction."""
    return lambda _: np.array([spec.speed_limit_m_s, *(0.0,) * (spec.dimension - 1)])


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_wrong_policy_that_drives_straight_at_a_wall_is_stopped_before_it(robot):
    """Robots at the ends of their intervals; what the check leaves out of the margin is error of the pose."""
    spec = load_robot(robot)
    ticks = round(2 * HALF_M / spec.speed_limit_m_s / spec.control_period_s) + 50
    for seed in range(5):
        guarded = GuardedDrive(spec, seed)
        assert guarded.deepest_m(straight_at_a_wall(spec), ticks) > -2 * spec.position_error_m
        assert "arena" in guarded.refused
    assert GuardedDrive(spec, 0, checked=False).deepest_m(straight_at_a_wall(spec), ticks) < -spec.body_radius_m


def test_motion_needs_an_announcement_and_stays_in_it(message):
    """The stop tube of the guard's own pose, in the segment of the newest announcement; one that descends may leave."""
    spec = load_robot("gritsbot_x")
    segment = OwnSegment(segment_limits(spec))
    made = at(checks(spec, segment=segment), (0.0, 0.0))
    assert made.refusal((0.1, 0.0), 10.0) == "no_segment"
    along = ((0.0, 0.0), (0.3, 0.0))
    segment.hear(dataclasses.replace(message, reserved_segment_world=along, requested_segment_world=along), 10.0)
    assert made.refusal((0.2, 0.0), 10.0) == ""
    at(made, (0.37, 0.0), 10.02)
    assert made.refusal((0.2, 0.0), 10.02) == "segment"
    assert made.refusal((0.2, 0.0), 10.02, descends=True) == ""
    assert made.refusal((-0.2, 0.0), 10.02) == ""
    at(made, (0.0, 0.0), 11.5)
    assert made.refusal((0.2, 0.0), 11.5) == "no_segment"


@pytest.mark.parametrize("robot", ROBOTS)
def test_random_commands_do_not_bring_it_through_a_wall_either(robot):
    spec = load_robot(robot)
    for seed in range(2):
        guarded, rng = GuardedDrive(spec, seed), np.random.default_rng(seed)
        kept = [np.zeros(spec.dimension)]

        def command(tick, kept=kept, rng=rng):
            if tick % 40 == 0:
                kept[0] = 0.999 * random_command(spec, rng)
            return kept[0]

        assert guarded.deepest_m(command, 800) > -2 * spec.position_error_m


@pytest.mark.parametrize("robot", ROBOTS)
def test_no_command_of_the_shield_is_refused(robot):
    """At the walls of a small arena, robots at the ends of their intervals, poses with their largest errors."""
    spec = load_robot(robot)
    near = 0
    for seed in range(2):
        rng = np.random.default_rng(seed)
        guarded = GuardedDrive(spec, seed)
        drive, segment = guarded.drive, OwnSegment(segment_limits(spec))
        made = guarded.made = checks(spec, guarded.arena, segment=segment)
        ticks = round(2 * HALF_M / spec.speed_limit_m_s / spec.control_period_s)
        for tick in range(2 * ticks):
            if tick % ticks == 0:
                wish = rng.uniform(-1, 1, spec.dimension)
                wish *= 1.5 * spec.control_point_speed_m_s / np.abs(wish).max()
            age_s = round(rng.uniform(0.02, 0.6 * spec.pose_max_age_s), 3)
            drive.see(age_s)
            record = drive.tick(wish)
            if record.pose_stamp_s is not None:
                made.see_pose(
                    record.pose_stamp_s,
                    record.measured_position_world,
                    record.measured_yaw,
                    record.measured_velocity,
                )
                wire = body_forward_command(spec, record.sent_command, record.measured_yaw)
                said = drive.loop.announcement(drive.now_s)
                early = tick == 0 or rng.random() < 0.5  # announcement and command overtake each other
                if early:
                    segment.hear(said, drive.now_s)
                code = made.refusal(wire, drive.now_s)
                assert code == "", (seed, tick, record.status, record.sent_command)
                made.note_sent(drive.now_s, wire)
                if not early:
                    segment.hear(said, drive.now_s)
            drive.move(spec.control_period_s)
            near += np.abs(drive.place).max() > 0.6 * HALF_M
    assert near > 30


def test_what_a_scanner_sees_of_the_arena_is_no_person():
    spec = load_robot("gritsbot_x")
    made = checks(spec, box(spec, Ball((0.5, 0.5), 0.1)))
    assert not made.is_wall((5.0, 0.0))  # without a pose everything counts
    at(made, (0.5, 0.0), yaw=math.pi / 2)  # x of the world is to its right
    assert made.is_wall((0.0, -0.45))
    assert not made.is_wall((0.0, -0.3))
    assert made.is_wall((0.35, 0.0))
    assert not made.is_wall((0.2, 0.0))


def test_it_needs_no_numpy():
    heavy = "('onnxruntime', 'numpy', 'onnx')"
    code = f"import sys, testudo_deploy.guard.command_checks; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_point_is_an_obstacle_too():
    assert KeepOut((1.0, 0.0), (1.0, 0.0), 0.2).distance_m((0.0, 0.0)) == pytest.approx(0.8)
    assert Bounds((0.0,), (1.0,)).margin_m == 0.0
