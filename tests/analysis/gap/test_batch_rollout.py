"""The batched roll-out of all starts is that of each start alone, and its windows are those that can be known."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_analysis.gap.batch_rollout import roll_out_all
from testudo_analysis.gap.gap_analysis import HORIZONS_S
from testudo_analysis.gap.replayed_robots import robots_by_type
from testudo_analysis.replay import batched_rollout, compiled_rollout, rollout_blocks
from testudo_analysis.replay.batched_rollout import dead_reckoning
from testudo_analysis.replay.rollout_inputs import pick_windows, timeline_of
from testudo_bench.synthetic_data.synthetic_runs import synthetic_recording
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare


def motions_of(spec, **options):
    ((_, motions),), left_out = robots_by_type(prepare(synthetic_recording(spec, **options)))
    assert not left_out
    return motions


def windows_of(model, motions):
    timelines = [timeline_of(model, motion.pieces) for motion in motions]
    return timelines, [
        pick_windows(timeline, motion.trajectory, HORIZONS_S, 0.015)
        for timeline, motion in zip(timelines, motions, strict=True)
    ]


def alone(model, timeline, state, start_s, end_s, longest_s=0.005):
    """Return the state at the end from one start, in steps of at most so long."""
    now_s, lag = start_s, np.array(model.spec.velocity_lag_s)
    while now_s < end_s:
        acting = timeline.acting(now_s)
        border = timeline.begin_s[acting + 1] if acting + 1 < len(timeline.begin_s) else np.inf
        until_s = min(now_s + longest_s, border, end_s)
        state = model.step(state, timeline.effective[:, acting], LagResponse.create(np.array(until_s - now_s), lag))
        now_s = until_s
    return state


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x", "irobot_create"])
def test_all_starts_at_once_are_each_start_alone(name):
    spec = load_robot(name)
    motions = motions_of(spec, seconds=6.0, pose_period_s=0.03, seed=3)
    model = motion_model(spec)
    outs = roll_out_all(motions, [spec], HORIZONS_S)
    far = []
    for out, timeline in zip(outs, windows_of(model, motions)[0], strict=True):
        windows, (made,) = out.windows, out.predicted
        assert windows.valid.any(axis=1).all()
        for s in range(0, len(windows.start), 11):
            state = MotionState(windows.state.position_world[:, s], windows.state.yaw[s], windows.state.velocity[:, s])
            for h in np.flatnonzero(windows.valid[:, s]):
                one = alone(model, timeline, state, windows.start_s[s], windows.end_s[h, s])
                np.testing.assert_allclose(made.position_world[:, h, s], one.position_world, atol=2e-3)
                np.testing.assert_allclose(made.velocity[:, h, s], one.velocity, atol=5e-3)
                np.testing.assert_allclose(made.yaw[h, s], one.yaw, atol=2e-3)
                far.append(np.abs(made.position_world[:, h, s] - one.position_world).max())
    # steps of at most 50 ms against 5 ms: what a step costs on an arc and at a limit of acceleration
    assert np.median(far) < 2e-4


def test_with_short_steps_it_is_each_start_alone_to_rounding(monkeypatch):
    """The same steps in another order: where time is cut does not matter if it is cut finely."""
    spec = load_robot("irobot_create")
    model, motions = motion_model(spec), motions_of(spec, seconds=4.0, robots=1)
    (timeline,), (windows,) = windows_of(model, motions)
    monkeypatch.setattr(rollout_blocks, "LONGEST_STEP_S", 5e-4)
    (made,) = batched_rollout.rollout(model, [timeline], [windows.starts], exact=True)
    for s in range(0, len(windows.start), 37):
        state = MotionState(windows.state.position_world[:, s], windows.state.yaw[s], windows.state.velocity[:, s])
        for h in np.flatnonzero(windows.valid[:, s]):
            one = alone(model, timeline, state, windows.start_s[s], windows.end_s[h, s], 5e-4)
            np.testing.assert_allclose(made.position_world[:, h, s], one.position_world, atol=2e-7)
            np.testing.assert_allclose(made.yaw[h, s], one.yaw, atol=2e-6)


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_precision_blocks_and_compilation_change_nothing_but_rounding(name, monkeypatch):
    spec = load_robot(name)
    model, motions = motion_model(spec), motions_of(spec, seconds=8.0)
    timelines, windows = windows_of(model, motions)
    exact = batched_rollout.rollout(model, timelines, [own.starts for own in windows], exact=True)

    def same(found, atol):
        for one, other, own in zip(found, exact, windows, strict=True):
            for field in ("position_world", "yaw", "velocity"):
                np.testing.assert_allclose(
                    getattr(one, field)[..., own.valid], getattr(other, field)[..., own.valid], rtol=0, atol=atol
                )

    same(batched_rollout.rollout(model, timelines, [own.starts for own in windows]), 1e-5)
    monkeypatch.setattr(batched_rollout, "CALL", 17)
    same(batched_rollout.rollout(model, timelines, [own.starts for own in windows], exact=True), 1e-12)


def test_many_parameter_sets_share_their_windows_and_one_program():
    spec = load_robot("gritsbot_x")
    motions = motions_of(spec, seconds=8.0)
    candidates = [
        replace(spec, velocity_lag_s=lag, command_delay_s=delay) for lag in (0.05, 0.1, 0.2) for delay in (0.0, 0.05)
    ]
    outs = roll_out_all(motions, candidates, HORIZONS_S)
    for out in outs:
        assert len(out.predicted) == len(candidates)
        ends = [np.median(np.abs(state.velocity[0][out.windows.valid])) for state in out.predicted]
        assert len(set(np.round(ends, 6))) > 1
    programs = []
    for spec in candidates:
        model = motion_model(spec)
        timelines, windows = windows_of(model, motions)
        starts = [
            batched_rollout.RolloutStarts(
                own.state, own.start_s, own.start_s + 0 * own.end_s, own.segment, own.segment + 0 * own.end_segment
            )
            for own in windows
        ]
        batched_rollout.rollout(model, timelines, starts)
        programs.append(len(compiled_rollout._PROGRAMS))
    assert programs[0] == programs[-1] > 0


def test_dead_reckoning_does_at_once_what_it_is_told():
    spec = load_robot("irobot_create")
    recording = synthetic_recording(spec, seconds=8.0, robots=1)
    ((_, (motion,)),), _ = robots_by_type(prepare(recording))
    (out,) = roll_out_all([motion], [dead_reckoning(spec)], HORIZONS_S)
    end_s, valid = out.windows.end_s[0], out.windows.valid[0]
    acting = np.searchsorted(motion.pieces.begin_s, end_s, side="left") - 1
    np.testing.assert_allclose(
        out.predicted[0].velocity[:, 0][:, valid], motion.pieces.values[:, acting][:, valid], atol=1e-5
    )


def test_nothing_is_replayed_over_commands_that_are_not_known():
    spec = load_robot("gritsbot_x")
    recording = synthetic_recording(spec, seconds=20.0, robots=1)
    robot = recording.robots["robot1"]
    command = robot.series["command"]
    kept = (command.stamp_s < 8.0) | (command.stamp_s > 11.0)
    cut = type(command)(command.stamp_s[kept], command.values[kept], None, command.frame)
    recording.robots["robot1"] = type(robot)(robot.name, robot.robot_type, {**robot.series, "command": cut})
    ((_, (motion,)),), _ = robots_by_type(prepare(recording))
    (out,) = roll_out_all([motion], [spec], (1.0,))
    ends = out.windows.end_s[0][out.windows.valid[0]]
    starts = out.windows.start_s[out.windows.valid[0]]
    assert not ((ends > 8.7) & (starts < 10.9)).any()
    assert (starts > 11.1).any()
    assert (ends < 8.4).any()
