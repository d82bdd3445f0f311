"""The compiled roll-out of all starts is the plain one, and its windows are those that can be known."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.gap.analyse import HORIZONS_S, recorded_motions
from testudo_sim.gap.motion import timeline_of
from testudo_sim.gap.rollout import dead_reckoning, roll_out_all
from testudo_sim.gap.synthetic import synthetic_recording
from testudo_sim.replay import batch
from testudo_sim.replay.timeline import Timeline, joined
from testudo_sim.replay.windows import pick_windows, roll_windows


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_all_starts_at_once_are_the_plain_roll_out(name):
    spec = load_robot(name)
    recording = synthetic_recording(spec, seconds=8.0, pose_period_s=0.03, seed=3)
    ((_, motions),), left_out = recorded_motions(recording, None)
    assert not left_out
    outs = roll_out_all(motions, [spec], HORIZONS_S)
    model = motion_model(spec)
    timeline, first = joined([_finely(timeline_of(model, motion.commands)) for motion in motions])
    last = np.append(first[1:], len(timeline.begin_s))
    windows = [pick_windows(timeline, slice(*ends), motion.track, HORIZONS_S, 0.015)
               for *ends, motion in zip(first, last, motions, strict=True)]
    plain = roll_windows(model, timeline, windows)
    for out, one, picked in zip(outs, plain, windows, strict=True):
        np.testing.assert_array_equal(out.windows.start, picked.start)
        valid, (made,) = out.windows.valid, out.predicted
        assert valid.any(axis=1).all()
        assert (picked.valid & ~valid).sum() == 0
        both = valid & picked.valid
        np.testing.assert_allclose(made.position_world[:, both], one.position_world[:, both], atol=2e-3)
        np.testing.assert_allclose(made.velocity[:, both], one.velocity[:, both], atol=5e-3)
        np.testing.assert_allclose(made.yaw[both], one.yaw[both], atol=3e-5)
        # steps of at most 50 ms against 5 ms: what a step costs on an arc and at a limit of acceleration
        assert np.median(np.abs(made.position_world[:, both] - one.position_world[:, both])) < 1e-4


def _finely(timeline):
    """Return the same commands in pieces of at most 5 ms."""
    begins = timeline.begin_s
    more = np.arange(begins[1], begins[-1] + 1.0, 0.005)
    every = np.unique(np.concatenate([begins, more]))
    which = np.searchsorted(begins, every, side="right") - 1
    return Timeline(every, timeline.effective[:, which], timeline.known[which])


def test_many_parameter_sets_share_their_windows_and_one_program():
    spec = load_robot("gritsbot_x")
    ((_, motions),), _ = recorded_motions(synthetic_recording(spec, seconds=8.0), None)
    candidates = [replace(spec, velocity_lag_s=lag, command_delay_s=delay)
                  for lag in (0.05, 0.1, 0.2) for delay in (0.0, 0.05)]
    roll_out_all(motions, candidates[:1], HORIZONS_S)
    before = len(batch._PROGRAMS)
    outs = roll_out_all(motions, candidates, HORIZONS_S)
    assert len(batch._PROGRAMS) == before
    for out in outs:
        assert len(out.predicted) == len(candidates)
        ends = [np.median(np.abs(state.velocity[0][out.windows.valid])) for state in out.predicted]
        assert len(set(np.round(ends, 6))) > 1


def test_dead_reckoning_does_at_once_what_it_is_told():
    spec = load_robot("irobot_create")
    recording = synthetic_recording(spec, seconds=8.0, robots=1)
    ((_, (motion,)),), _ = recorded_motions(recording, None)
    (out,) = roll_out_all([motion], [dead_reckoning(spec)], HORIZONS_S)
    end_s, valid = out.windows.end_s[0], out.windows.valid[0]
    acting = np.searchsorted(motion.commands.begin_s, end_s, side="left") - 1
    np.testing.assert_allclose(out.predicted[0].velocity[:, 0][:, valid], motion.commands.values[:, acting][:, valid],
                               atol=1e-5)


def test_nothing_is_replayed_over_commands_that_are_not_known():
    spec = load_robot("gritsbot_x")
    recording = synthetic_recording(spec, seconds=20.0, robots=1)
    robot = recording.robots["robot1"]
    command = robot.series["command"]
    kept = (command.stamp_s < 8.0) | (command.stamp_s > 11.0)
    cut = type(command)(command.stamp_s[kept], command.values[kept], None, command.frame)
    recording.robots["robot1"] = type(robot)(robot.name, robot.robot_type, {**robot.series, "command": cut})
    ((_, (motion,)),), _ = recorded_motions(recording, None)
    (out,) = roll_out_all([motion], [spec], (1.0,))
    ends = out.windows.end_s[0][out.windows.valid[0]]
    starts = out.windows.start_s[out.windows.valid[0]]
    assert not ((ends > 8.7) & (starts < 10.9)).any()
    assert (starts > 11.1).any()
    assert (ends < 8.4).any()
