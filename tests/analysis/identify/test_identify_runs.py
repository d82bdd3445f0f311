"""Several runs: a file for each robot and one of all; and an identification that is worse than none is not written."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_analysis.commands.identify import identify
from testudo_analysis.identify.estimation.identification_result import HeldOut, Identification, Quantiles
from testudo_analysis.identify.held_out_verdict import refuse_worse
from testudo_bench.synthetic_data.synthetic_runs import Truth, synthetic_run
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare
from testudo_runs.recording.recording import Series
from testudo_runs.recording.write import write_recording

pytestmark = pytest.mark.usefixtures("optimised")

SPEC = load_robot("irobot_create")
TRUTH = Truth(0.14, 0.11, 1.04, 0.95)


def test_runs_give_a_file_for_each_robot_and_one_that_covers_them(tmp_path, capsys):
    runs = []
    for seed, scale in ((1, 1.04), (2, 1.08)):
        runs.append(tmp_path / f"run{seed}")
        recording = synthetic_run(SPEC, replace(TRUTH, speed_scale=scale), robots=1, duration_s=40, seed=seed)
        write_recording(recording, runs[-1], {"source": "synthetic"})
    assert identify(tuple(runs), out=tmp_path / "robots") == 0
    assert {path.name for path in (tmp_path / "robots").iterdir()} == {"fleet.toml", "r0.toml"}
    shown = capsys.readouterr().out
    assert "fitted to the other runs" in shown
    assert "95 % bands" in shown
    fleet = load_robot(tmp_path / "robots" / "fleet.toml")
    scale = fleet.quantities["dynamics.speed_scale"]
    assert all(scale.low <= true <= scale.high for true in (1.04, 1.08))  # of both runs
    assert "run1, run2" in scale.source
    assert fleet.motion_noise
    with pytest.raises(TestudoError, match=r"--out: found .*one\.toml for 2 runs, expected a folder"):
        identify(tuple(runs), out=tmp_path / "one.toml")


def judged(recording, ours):
    """Judge an identification of a run whose median held-out error is ``ours`` times that of dead reckoning."""
    baseline, mine = Quantiles(0.02, 0.05, 100), Quantiles(0.02 * ours, 0.05 * ours, 100)
    row = HeldOut("r0", 2.0, "position", "m", baseline, baseline, mine)
    refuse_worse(Identification(SPEC.name, ("r0",), (), (row,)), [prepare(recording)], SPEC)


@pytest.fixture(scope="module")
def run():
    return synthetic_run(SPEC, TRUTH, robots=1, duration_s=60, seed=3)


def with_series(run, role, change):
    robot = run.robots["r0"]
    series = robot.series[role]
    changed = replace(series, values=change(series.values.copy()))
    return replace(run, robots={"r0": replace(robot, series=dict(robot.series) | {role: changed})})


def test_an_identification_that_is_better_or_as_good_is_accepted(run):
    judged(run, 0.5)
    judged(run, 1.02)


def other_topic(values):
    return np.random.default_rng(0).permutation(values)


def y_up(values):
    values[:, [1, 2]] = values[:, [2, 1]]
    return values


@pytest.mark.parametrize(
    ("role", "change", "reason"),
    [
        ("command", other_topic, "wrong topic: the commands of r0 hardly correlate with its motion"),
        ("pose", y_up, "axes or units: r0: pose"),
        ("pose", lambda values: values, "too little data"),
    ],
)
def test_one_that_is_worse_is_refused_with_the_likely_reason(run, role, change, reason):
    with pytest.raises(TestudoError, match="50% larger") as caught:
        judged(with_series(run, role, change), 1.5)
    assert "nothing is written; likely reason" in str(caught.value)
    assert reason in str(caught.value)


def test_a_clock_that_is_minutes_off_is_named(run):
    robot = run.robots["r0"]
    pose = robot.series["pose"]
    late = Series(pose.stamp_s, np.roll(pose.values, len(pose.values) // 4, axis=0))
    moved = replace(run, robots={"r0": replace(robot, series=dict(robot.series) | {"pose": late})})
    with pytest.raises(TestudoError, match=r"likely reason: (clock|wrong topic)"):
        judged(moved, 1.5)
