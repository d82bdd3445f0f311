"""A recorded run is prepared once: on one clock, with slopes and masks that stop at gaps, in 2 and 3 dimensions."""

from dataclasses import replace

import numpy as np
import pytest
from tests.sim.incident.stories import SPEC, driven, meeting, recording, story

from testudo_analysis.gap.prediction.synthetic_recording import synthetic_recording
from testudo_analysis.incident.find import find_incidents
from testudo_hardware.spec import load_robot
from testudo_runs.alignment.prepare import prepare
from testudo_runs.alignment.team_recording import Commands
from testudo_runs.recording.recording import Recording, RecordingError, RobotRecording, Series

AHEAD_S = 3.0


def with_series(source, **changes):
    """Return a recording in which the series of every robot are changed, by role."""
    robots = {}
    for name, robot in source.robots.items():
        series = {role: changes.get(role, lambda own: own)(own) for role, own in robot.series.items()}
        robots[name] = replace(robot, series=series)
    return replace(source, robots=robots)


def posed(stamps, position_world, *, robot_type="gritsbot_x"):
    """Return a recording of one robot that looks along x, from positions (T, D)."""
    size = position_world.shape[1]
    pose = np.pad(position_world, ((0, 0), (0, 7 - size)))
    pose[:, 6] = 1.0
    return Recording({"r0": RobotRecording("r0", robot_type, {"pose": Series(stamps, pose, None, "world")})}, 0)


def test_command_stamps_of_a_clock_ahead_cause_no_incident():
    def wish(t):
        return (0.16, 0.0) if t % 4 < 2 else (0.04, 0.0)

    told = story(driven("r0", (-0.6, 0.0), 0.0, wish, 30.0), driven("r1", (0.6, 1.5), np.pi, wish, 30.0))

    def ahead(series):
        return replace(series, stamp_s=series.stamp_s + AHEAD_S, received_s=series.stamp_s + 0.002)

    source = with_series(recording(told), command=ahead)
    team = prepare(source)
    assert find_incidents(team) == []
    clock = team.robots[0].report.clocks["command"]
    assert clock.corrected
    assert clock.offset_s == pytest.approx(-AHEAD_S, abs=0.01)
    assert team.robots[0].latency.delay_s == pytest.approx(SPEC.command_delay_s + SPEC.velocity_lag_s, abs=0.05)


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
    spec = load_robot("crazyflie_2x")
    team = prepare(synthetic_recording(spec, seconds=10.0, robots=2))
    (first, _), low_high = team.robots, team.span_s
    assert first.trajectory.position_world.shape == first.trajectory.velocity.shape == (len(first.trajectory), 3)
    assert first.commands.values.shape == (len(first.commands.stamp_s), 3)
    assert first.pieces.values.shape == (3, len(first.pieces.begin_s))
    late = spec.command_delay_s + 5 * spec.velocity_lag_s
    steady = np.arange(low_high[0] + late, low_high[1], 0.05)
    told = first.commands.held(steady - spec.command_delay_s, 1.0)[0]
    constant = (told == first.commands.held(steady - late, 1.0)[0]).all(axis=1)
    assert np.allclose(first.trajectory.at(steady)[2][constant], told[constant], atol=0.05)


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


def test_robots_that_cannot_be_located_are_left_out_with_the_reason():
    source = recording(meeting(0.4))
    first = next(iter(source.robots.values()))
    blind = replace(first, name="blind", series={"command": first.series["command"]})
    team = prepare(replace(source, robots=source.robots | {"blind": blind}))
    assert team.names == ("r0", "r1")
    assert team.left_out["blind"].startswith("neither pose nor odometry is recorded")
    with pytest.raises(RecordingError, match="blind: neither pose nor odometry"):
        team.robot("blind")
