"""Open-loop replay: no error in the world that is the model, the right error in one that is not."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.sim.recorded_run import record_run

from testudo_analysis.replay.open_loop import HORIZONS_S, open_loop
from testudo_analysis.replay.rollout_inputs import CommandTimeline, command_timeline
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_runs.run_reader import Track

ROBOTS = ("gritsbot_x", "crazyflie_2x", "robomaster_s1")


def tick_like(recorded, sequence, stamp_s, sent_command):
    return replace(recorded.ticks["r0"][0], sequence=sequence, stamp_s=stamp_s, sent_command=sent_command)


@pytest.mark.parametrize(("name", "p99"), [("gritsbot_x", 1e-4), ("crazyflie_2x", 1e-3), ("robomaster_s1", 1e-3)])
def test_a_run_of_the_very_model_has_no_gap(make_artefact, name, p99, monkeypatch):
    # replay cuts time elsewhere than the world did, which a step on an arc notices in the second
    # order, and one at the limit of acceleration of a drone or a base in the first
    spec = load_robot(name)
    # without the deadlock rule: a robot that starts to give way does so at that limit
    monkeypatch.setattr(DeadlockResolver, "resolved", lambda self, point, table, first, nominal: nominal)
    run = record_run(make_artefact(name), spec, seconds=4.0, silent=((1, 50, 60),))
    gap = open_loop(run, spec)
    assert gap.horizons_s == HORIZONS_S
    for row in gap.rows:
        assert row.errors.p99 <= p99, row
        assert row.errors.median <= max(1e-4, p99 / 5), row
    travel = gap.find("position", 2.0).travel_m
    assert travel > 0.05


OTHERS = [{"lag": 1.2}, {"delay": 0.8}, {"scale": 1.1}]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        # each error with one robot; all of both with the slow tests
        pytest.param(name, other, marks=[] if i == j else [pytest.mark.slow])
        for i, name in enumerate(ROBOTS)
        for j, other in enumerate(OTHERS)
    ],
)
def test_a_run_of_another_model_has_one(make_artefact, name, other):
    spec = load_robot(name)
    gap = open_loop(record_run(make_artefact(name), spec, seconds=2.5, **other), spec)
    assert gap.find("position", 0.5).errors.p99 > 5e-4
    assert gap.find("speed", 0.1).errors.p99 > 1e-3


def test_a_scale_error_grows_with_the_way(make_artefact):
    spec = load_robot("gritsbot_x")
    gap = open_loop(record_run(make_artefact("gritsbot_x"), spec, scale=0.9), spec)
    medians = [gap.find("position", horizon).errors.median for horizon in HORIZONS_S]
    assert medians == sorted(medians)
    # ten per cent less speed: predicted way is the true one over 0.9
    row = gap.find("position", 2.0)
    assert row.errors.median == pytest.approx(row.travel_m / 9, rel=0.25)


def test_robots_and_the_pool_agree(recorded):
    gap = open_loop(recorded, load_robot("gritsbot_x"))
    assert gap.robots == ("r0", "r1", "r2", "all")
    assert gap.channels == ("x", "y", "position", "yaw", "speed")
    for horizon in HORIZONS_S:
        counts = [gap.find("yaw", horizon, robot).errors.count for robot in gap.robots]
        assert sum(counts[:3]) == counts[3]
    starts = len(recorded.truth["r1"].stamp_s)
    assert gap.find("x", 0.1, "r1").errors.count == pytest.approx(starts - 3, abs=2)
    assert json.dumps(gap.to_dict(), allow_nan=False)


def test_odometry_as_reference_brings_its_noise(make_artefact):
    spec = load_robot("gritsbot_x")
    run = record_run(make_artefact("gritsbot_x"), spec, noise_m=0.004)
    exact = open_loop(run, spec).find("position", 0.1).errors.median
    noisy = open_loop(run, spec, reference="odometry").find("position", 0.1).errors.median
    assert exact < 1e-5
    # two samples with 4 mm in each of two axes: a Rayleigh median of 4 mm * sqrt(2) * 1.177
    assert noisy == pytest.approx(0.004 * math.sqrt(2) * 1.177, rel=0.15)


def test_errors_of_a_robot_that_stands_while_the_record_says_it_drives(recorded):
    """By hand: v -> 0.1 m/s with lag; way 0.1 (t - lag (1 - exp(-t / lag))) after the delay."""
    spec = load_robot("gritsbot_x")
    period, delay, lag = spec.control_period_s, spec.command_delay_s, spec.velocity_lag_s
    stamps = 10.0 + period * np.arange(90)
    ticks = tuple(tick_like(recorded, k, stamp, (0.1, 0.0)) for k, stamp in enumerate(stamps))
    zeros = np.zeros((len(stamps), 2))
    still = Track(stamps, stamps, zeros, zeros[:, 0] + math.pi, zeros)
    run = replace(
        recorded,
        ticks={**dict.fromkeys(recorded.ticks, ()), "r0": ticks},
        truth={**recorded.truth, "r0": still},
    )
    gap = open_loop(run, spec, horizons_s=(0.99,))
    t = 30 * period
    way = 0.1 * (t - lag * (1 - math.exp(-t / lag)))
    row = gap.find("x", 0.99)
    assert row.errors.median == pytest.approx(way, rel=1e-9)
    assert gap.find("y", 0.99).errors.p99 == pytest.approx(0.0, abs=1e-12)
    assert gap.find("speed", 0.99).errors.median == pytest.approx(0.1 * (1 - math.exp(-t / lag)), rel=1e-9)
    # starts before the first command acts: two samples lie within the delay of 0.05 s
    assert delay == pytest.approx(0.05)
    early = replace(run, truth={**recorded.truth, "r0": track_part(still, [0, 30])})
    row = open_loop(early, spec, horizons_s=(0.99,)).find("x", 0.99)
    acting = t - delay
    assert row.errors.count == 1
    assert row.errors.median == pytest.approx(0.1 * (acting - lag * (1 - math.exp(-acting / lag))), rel=1e-9)


def track_part(track, index):
    return Track(
        track.stamp_s[index],
        track.received_s[index],
        track.position_world[index],
        track.yaw[index],
        track.velocity[index],
    )


def test_the_timeline_by_hand(recorded):
    model = motion_model(load_robot("gritsbot_x"))
    delay, period = model.spec.command_delay_s, model.spec.control_period_s
    assert model.spec.dead_man_s == 0.1
    ticks = [
        tick_like(recorded, 0, 1.0, (0.1, 0.0)),
        tick_like(recorded, 1, 1.04, (0.2, 0.0)),
        tick_like(recorded, 2, 1.3, (0.1, 0.5)),
        tick_like(recorded, 4, 1.4, (9.0, 0.0)),
    ]
    line = command_timeline(model, ticks)
    begins = [-math.inf, 1.0, 1.04, 1.14, 1.3, 1.4, 1.4 + period]
    assert line.begin_s - delay == pytest.approx(begins)
    effective = [(0, 0), (0.1, 0), (0.2, 0), (0, 0), (0.1, 0.5), (0.2, 0), (0, 0)]
    np.testing.assert_allclose(line.effective.T, effective)
    # tick 3 is lost: what acts after tick 2 is not known, nor what comes after the end
    assert line.known.tolist() == [True, True, True, True, False, True, False]
    assert not command_timeline(model, ticks[1:]).known[0]


def test_lost_ticks_and_poses_only_cost_windows(recorded):
    spec = load_robot("gritsbot_x")
    whole = open_loop(recorded, spec).find("x", 0.5, "r1").errors
    kept = tuple(tick for tick in recorded.ticks["r1"] if not 90 <= tick.sequence < 95)
    lost = replace(recorded, ticks={**recorded.ticks, "r1": kept})
    errors = open_loop(lost, spec).find("x", 0.5, "r1").errors
    assert whole.count - 25 < errors.count < whole.count - 15
    assert errors.p99 < 1e-4
    truth = recorded.truth["r1"]
    holes = track_part(truth, [k for k in range(len(truth.stamp_s)) if not 90 <= k < 95])
    errors = open_loop(replace(recorded, truth={**recorded.truth, "r1": holes}), spec)
    assert errors.find("x", 0.5, "r1").errors.count == whole.count - 10


def test_what_cannot_be_replayed_is_refused(recorded):
    spec = load_robot("gritsbot_x")
    empty = Track(*(np.zeros((0, *shape)) for shape in ((), (), (2,), (), (2,))))
    none = replace(recorded, truth=dict.fromkeys(recorded.truth, empty))
    with pytest.raises(TestudoError, match="found no robot with both tick records and truth"):
        open_loop(none, spec)
    with pytest.raises(TestudoError, match=r"found no stretch without gaps of 100\.0 s"):
        open_loop(recorded, spec, horizons_s=(100.0,))


def test_a_window_is_known_only_if_its_last_command_is():
    line = CommandTimeline(np.array([-np.inf, 0.0, 1.0, 2.0]), np.zeros((2, 4)), np.array([False, True, True, False]))
    first, last = np.array([1, 1, 1, 0, 3]), np.array([1, 2, 3, 2, 3])
    assert line.all_known(first, last).tolist() == [True, True, False, False, False]
