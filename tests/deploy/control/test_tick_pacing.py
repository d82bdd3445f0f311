"""When a robot ticks: on poses at about its own rate, alone without them; and what counts as late."""

import numpy as np
import pytest

from testudo_deploy.control.control_tick import EARLY_SHARE, WAIT_SHARE, TickPacer

PERIOD_S = 0.02


def ticks(poses_s, until_s):
    """Return when a robot ticks that gets poses at these times, and its pacer."""
    pacer, times, poses, alone_s = TickPacer(PERIOD_S), [], sorted(poses_s), PERIOD_S
    while True:
        on_pose = bool(poses) and poses[0] < alone_s
        now_s = poses.pop(0) if on_pose else alone_s
        if now_s >= until_s:
            return np.array(times), pacer
        if not on_pose or pacer.is_due(now_s):
            pacer.begin(now_s, on_pose=on_pose)
            times.append(now_s)
            alone_s = now_s + pacer.alone_s(now_s)


@pytest.mark.parametrize("drift", [0.99, 1.0, 1.01])
@pytest.mark.parametrize("jitter_s", [0.0, 0.003])
def test_with_poses_at_its_rate_it_ticks_on_each_of_them_and_is_never_late(drift, jitter_s):
    """Also if the clock of the poses runs a little faster or slower for a minute, and each comes a little off."""
    rng = np.random.default_rng(0)
    poses = np.sort(1.0 + np.arange(3000) * PERIOD_S * drift + rng.uniform(-jitter_s, jitter_s, 3000))
    found, pacer = ticks(poses, poses[-1])
    on_poses = np.isin(found[50:], poses)
    assert on_poses.mean() > 0.99
    assert len(found) == pytest.approx(3000 + 1.0 / PERIOD_S, rel=0.01)
    assert (pacer.late_ticks, pacer.missed_ticks) == (0, 0)


@pytest.mark.parametrize("rate_hz", [100.0, 200.0, 500.0])
def test_with_faster_poses_it_keeps_its_rate_and_begins_on_a_pose(rate_hz):
    poses = np.arange(0, 10, 1 / rate_hz)
    found, _ = ticks(poses, 10.0)
    assert np.isin(found, poses).all()
    assert len(found) == pytest.approx(10.0 / PERIOD_S, rel=0.05)


def test_without_poses_it_keeps_its_rate_by_itself():
    found, pacer = ticks([], 10.0)
    assert np.diff(found)[1:] == pytest.approx(PERIOD_S)
    assert pacer.late_ticks == 0


@pytest.mark.parametrize("period_s", [0.05, 0.033, 0.027])
def test_with_slower_poses_it_keeps_its_rate(period_s):
    found, _ = ticks(np.arange(0, 10, period_s), 10.0)
    assert np.diff(found).max() <= PERIOD_S * (1 + EARLY_SHARE + WAIT_SHARE) + 1e-9
    assert len(found) == pytest.approx(10.0 / PERIOD_S, rel=0.1)


def test_a_stall_counts_as_late_and_its_ticks_as_missed():
    pacer = TickPacer(PERIOD_S)
    pacer.begin(0.0)
    assert pacer.begin(0.125) == pytest.approx(0.105)
    assert (pacer.late_ticks, pacer.missed_ticks) == (1, 5)
    assert pacer.begin(0.145) == pytest.approx(0.0)
    assert pacer.worst_late_s == pytest.approx(0.105)


def test_a_clock_that_is_set_back_begins_a_new_grid():
    pacer = TickPacer(PERIOD_S)
    pacer.begin(3600.0)
    assert pacer.is_due(1.0)
    assert pacer.alone_s(1.0) <= 2 * PERIOD_S
    assert pacer.begin(1.0) == 0.0
    assert not pacer.is_due(1.0 + PERIOD_S / 2)
    assert pacer.is_due(1.0 + PERIOD_S)


@pytest.mark.parametrize("early_s", [0.001, 0.006, 0.010, 0.014, 0.019])
def test_poses_at_any_phase_begin_its_ticks_soon(early_s):
    """Poses that come too early for a tick and too late for the one before must not miss all ticks for ever."""
    pacer = TickPacer(PERIOD_S)
    pacer.begin(0.0)
    poses = np.arange(1, 500) * PERIOD_S - early_s
    found, alone_s = [], PERIOD_S
    for pose_s in poses:
        while alone_s < pose_s:
            pacer.begin(alone_s, on_pose=False)
            found.append(alone_s)
            alone_s += pacer.alone_s(alone_s)
        if pacer.is_due(pose_s):
            pacer.begin(pose_s)
            found.append(pose_s)
            alone_s = pose_s + pacer.alone_s(pose_s)
    assert np.isin(found[20:], poses).all()
    assert np.diff(found).min() >= 0.44 * PERIOD_S  # alone at the end of its wait, then on an early pose
