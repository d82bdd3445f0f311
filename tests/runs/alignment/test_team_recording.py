"""A recorded run is prepared once: on one clock, with slopes and masks that stop at gaps, in 2 and 3 dimensions."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_analysis.replay.rollout_inputs import CommandTimeline, pick_windows
from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_hardware.spec import load_robot
from testudo_runs.alignment.body_contacts import may_push
from testudo_runs.alignment.prepare import prepare
from testudo_runs.alignment.team_recording import Commands
from testudo_runs.recording.recording import Recording, RecordingError, RobotRecording, Series
from testudo_runs.tracks import Track


def posed(stamps, position_world, *, robot_type="gritsbot_x"):
    """Return a recording of one robot that looks along x, from positions (T, D)."""
    size = position_world.shape[1]
    pose = np.pad(position_world, ((0, 0), (0, 7 - size)))
    pose[:, 6] = 1.0
    return Recording({"r0": RobotRecording("r0", robot_type, {"pose": Series(stamps, pose, None, "world")})}, 0)


def test_slopes_do_not_bridge_a_gap_and_masks_tell_it():
    stamps = np.arange(0, 8, 0.02)
    stamps = stamps[(stamps <= 3.0) | (stamps >= 4.0)]
    trajectory = prepare(posed(stamps, np.stack([np.cos(stamps), 0 * stamps], axis=1))).robots[0].trajectory
    edge = int(np.searchsorted(stamps, 3.0 + 1e-9)) - 1
    assert trajectory.velocity[[edge, edge + 1], 0] == pytest.approx(-np.sin(stamps[[edge, edge + 1]]), abs=0.01)
    assert trajectory.valid.all()
    times = np.array([-0.1, 0.0, 2.99, stamps[edge], 3.01, 3.5, 3.99, stamps[edge + 1], 5.0, stamps[-1], 9.0])
    seen = [False, True, True, True, False, False, False, True, True, True, False]
    assert trajectory.observed(times).tolist() == seen
    assert trajectory.observed(np.array([3.5]), gap_s=1.1).all()


def test_a_lone_pose_has_a_place_and_no_velocity():
    stamps = np.concatenate([np.arange(0, 2, 0.02), [2.5], np.arange(3, 5, 0.02)])
    trajectory = prepare(posed(stamps, np.stack([0.1 * stamps, 0 * stamps], axis=1))).robots[0].trajectory
    assert np.flatnonzero(~trajectory.valid).tolist() == [100]
    assert trajectory.velocity[100, 0] == pytest.approx(0.1)
    assert trajectory.at(np.array([2.5]))[0][0, 0] == pytest.approx(0.25)
    assert not trajectory.observed(np.array([2.5])).any()


def test_slow_poses_have_velocities():
    stamps = np.arange(0, 10, 0.2)
    trajectory = prepare(posed(stamps, np.stack([0.1 * stamps, 0 * stamps], axis=1))).robots[0].trajectory
    assert trajectory.valid.all()
    assert trajectory.velocity[:, 0] == pytest.approx(0.1)


def test_drones_are_in_three_dimensions():
    stamps = np.arange(0, 10, 0.02)
    way = np.stack([np.sin(3 * stamps), 0.2 * stamps, np.cos(3 * stamps)], axis=1) / 3
    source = posed(stamps, way, robot_type="crazyflie_2x")
    twist = np.zeros((len(stamps), 6))
    twist[:, :3] = np.stack([np.cos(3 * stamps), 0 * stamps + 0.2 / 3, -np.sin(3 * stamps)], axis=1)
    told = Series(stamps - 0.1, twist, None, "world")
    robot = replace(source.robots["r0"], series={**source.robots["r0"].series, "command": told})
    (found,) = prepare(replace(source, robots={"r0": robot})).robots
    assert np.allclose(found.trajectory.velocity, twist[:, :3], atol=0.02)
    assert found.trajectory.position_world.shape == found.commands.values.shape == (len(stamps), 3)
    assert np.array_equal(found.commands.values, twist[:, :3])
    assert found.latency.delay_s == pytest.approx(0.1, abs=0.02)


def test_commands_in_the_body_of_a_base_are_turned_into_the_world():
    stamps = np.arange(0, 10, 0.02)
    source = posed(stamps, np.zeros((len(stamps), 2)), robot_type="robomaster_s1")
    pose = source.robots["r0"].series["pose"]
    pose.values[:, 5], pose.values[:, 6] = np.sin(0.25 * stamps), np.cos(0.25 * stamps)
    twist = np.zeros((len(stamps), 6))
    twist[:, 0] = 0.3
    series = {"pose": pose, "command": Series(stamps, twist, None, "r0/base_link")}
    (found,) = prepare(replace(source, robots={"r0": replace(source.robots["r0"], series=series)})).robots
    expected = 0.3 * np.stack([np.cos(0.5 * stamps), np.sin(0.5 * stamps)], axis=1)
    assert np.allclose(found.commands.values, expected, atol=1e-6)


def test_commands_hold_until_the_next_or_the_dead_mans_time():
    commands = Commands(np.array([0.0, 1.0, 3.0]), np.array([[1.0], [2.0], [2.0]]))
    values, acts = commands.held(np.array([-1.0, 0.0, 0.9, 1.0, 2.5]), 1.2)
    assert values[:, 0].tolist() == [0, 1, 1, 2, 0]
    assert acts.tolist() == [False, True, True, True, False]
    braked, unknown = commands.pieces(0.8), commands.pieces()
    assert braked.begin_s == pytest.approx([0.0, 0.8, 1.0, 1.8, 3.0, 3.8])
    assert braked.values[0].tolist() == [1, 0, 2, 0, 2, 0]
    assert braked.known.tolist() == [True] * 5 + [False]
    assert unknown.known.tolist() == [True, False, True, False, True, False]


def test_a_clock_ahead_is_corrected_and_the_correction_is_told():
    stamps = np.arange(0, 20, 0.02)
    source = posed(stamps, np.stack([np.sin(2 * stamps) / 2, 0 * stamps], axis=1))
    twist = np.zeros((len(stamps), 6))
    twist[:, 0] = np.cos(2 * (stamps + 0.1))
    series = {**source.robots["r0"].series, "command": Series(stamps + 3.0, twist, stamps + 0.002, "r0/base_link")}
    (found,) = prepare(replace(source, robots={"r0": replace(source.robots["r0"], series=series)})).robots
    assert found.commands.stamp_s == pytest.approx(stamps + 0.002, abs=1e-3)
    assert found.latency.delay_s == pytest.approx(0.098, abs=0.01)
    told = found.provenance()
    assert told["clocks"]["command"]["offset_s"] == pytest.approx(-2.998)
    assert told["clocks"]["command"]["corrected"]
    assert set(told) == {"robot", "series", "clocks", "latency", "velocity", "reference", "pushing"}
    assert any("stamps of another clock" in note for note in found.report.notes())


def test_robots_that_cannot_be_located_are_left_out_with_the_reason():
    source = posed(np.arange(0, 2, 0.02), np.zeros((100, 2)))
    others = {
        "blind": replace(source.robots["r0"], name="blind", series={}),
        "untyped": replace(source.robots["r0"], name="untyped", robot_type=""),
    }
    team = prepare(replace(source, robots={**source.robots, **others}))
    assert team.names == ("r0",)
    assert set(team.left_out) == {"blind", "untyped"}
    with pytest.raises(RecordingError, match="blind: neither pose nor odometry is recorded"):
        team.robot("blind")
    with pytest.raises(RecordingError, match="r0: no command is recorded; there is pose"):
        team.robot("r0").needed_commands()


BOX = FleetBody("box", (0.4, 0.2, 0.1), 1.0, 0.3, (0.0, 0.0), 0.0)


def test_poses_beside_a_body_are_marked_and_no_window_holds_one():
    # a quarter turn: the side of 0.4 m lies along y
    spec, stamps = load_robot("gritsbot_x"), np.arange(0, 4, 0.02)
    size = len(stamps)
    track = Track(stamps, stamps, np.zeros((size, 2)), np.full(size, np.pi / 2), np.zeros((size, 0)))
    touch_m = 0.1 + spec.body_radius_m + 2 * spec.position_error_m
    way = np.stack([0.4 - 0.1 * stamps, 0 * stamps], axis=1)
    marked = may_push(way, stamps, spec, [(BOX, track)])
    assert np.array_equal(marked, way[:, 0] <= touch_m)
    motion = replace(prepare(posed(stamps, way)).robots[0].trajectory, pushes=marked)
    known = CommandTimeline(np.array([-np.inf]), np.zeros((2, 1)), np.array([True]))
    windows = pick_windows(known, motion, [0.5])
    last = stamps[windows.end[0][windows.valid[0]]].max()
    assert last == stamps[~marked].max()
    assert pick_windows(known, replace(motion, pushes=None), [0.5]).valid.sum() > windows.valid.sum()
