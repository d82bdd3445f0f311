"""The report finds nothing where nothing is wrong, and names what is wrong where something is."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.analysis.gap.runs import ROBOT, report_of

from testudo_analysis.gap.block_bootstrap import TimeBlocks, quantiles
from testudo_analysis.gap.gap_analysis import analyse, compare
from testudo_analysis.gap.margin_checks import _check
from testudo_analysis.identify.residual_motion.ground_noise import recorded_coverage
from testudo_bench.synthetic_data.synthetic_runs import synthetic_recording
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import MOTION_NOISE
from testudo_hardware.spec import Quantity, load_robot
from testudo_runs.alignment import prepare
from testudo_runs.recording.load import recording_of_run
from testudo_runs.recording.recording import Recording, RobotRecording


@pytest.fixture(scope="module")
def exact():
    """Return the report of robots that are just as their file says."""
    return report_of()


def named(report, model="nominal"):
    return [cause.kind for cause in report.types[0].causes[model] if cause.named]


def test_a_recording_replayed_with_its_own_parameters_has_no_gap(exact):
    report, _ = exact
    (gap,) = report.types
    row = gap.find("nominal", "position", 2.0)
    assert row.median.value < 0.01 * row.travel_m
    assert row.p90.value < 0.02 * row.travel_m
    assert gap.find("nominal", "yaw", 2.0).median.value < 0.01
    assert gap.find("dead reckoning", "position", 2.0).median.value > 5 * row.median.value
    assert all(check.within for check in gap.margins)
    assert report.left_out == {}


def test_ten_per_cent_of_speed_is_named_as_a_scale():
    report, _ = report_of({"all": {"speed_scale": 0.9}})
    first = report.types[0].causes["nominal"][0]
    assert first.kind == "speed scale"
    assert first.named
    assert first.words.startswith("scale-like: the model drives too far by ")
    assert first.effect.value == pytest.approx(0.1, abs=0.005)
    assert first.explains > 0.25
    row = report.types[0].find("nominal", "position", 2.0)
    assert row.median.value == pytest.approx(row.travel_m / 9, rel=0.3)


@pytest.mark.parametrize(
    ("truth", "kind", "effect"),
    [({"turn_scale": 0.9}, "turn scale", 0.1), ({"command_delay_s": 0.11}, "response", 0.06)],
)
def test_other_errors_are_named_too(truth, kind, effect):
    report, _ = report_of({"all": truth})
    cause = next(c for c in report.types[0].causes["nominal"] if c.kind == kind)
    assert cause.named
    assert cause.effect.value == pytest.approx(effect, rel=0.25)
    assert "speed scale" not in named(report)


def test_identified_parameters_take_the_error_away():
    spec = load_robot(ROBOT)
    identified = replace(spec, speed_scale=0.9)
    report, _ = report_of({"all": {"speed_scale": 0.9}}, identified=identified)
    (gap,) = report.types
    assert gap.models == ("dead reckoning", "nominal", "identified")
    assert gap.best == "identified"
    assert named(report, "identified") == []
    change = next(
        d
        for d in gap.differences
        if (d.first, d.second, d.robot, d.channel, d.horizon_s) == ("nominal", "identified", "all", "position", 2.0)
    )
    assert change.significant
    assert change.relative < -0.8
    assert json.dumps(report.to_dict(), allow_nan=False)


def test_a_file_with_a_residual_motion_has_bands_and_one_without_has_none(exact):
    assert exact[0].types[0].coverage == {}
    robots = prepare(synthetic_recording(load_robot(ROBOT), seconds=30.0, robots=1)).robots
    wide, narrow = (recorded_coverage(robots, noisy(robots[0].spec, scale)) for scale in (1.0, 0.01))
    assert {(row.channel, row.horizon_s) for row in wide} == set(product(("along", "across", "turn"), (0.5, 1.0, 2.0)))
    for row, small in zip(wide, narrow, strict=True):
        assert row.inside > 0.95  # far wider than the errors of an exact model
        assert row.width > small.width
        assert small.inside <= row.inside


def noisy(spec, scale):
    """Return a robot with a residual motion, ``scale`` times a large one."""
    values = {key: rule.low for key, rule in MOTION_NOISE.items() if ".up_" not in key}
    values |= {f"motion_noise.{name}_deviation": 0.05 * scale for name in ("along", "across", "turn")}
    values |= {f"motion_noise.{name}_correlation": 0.3 for name in ("along", "across", "turn")}
    noise = {key: Quantity(value, MOTION_NOISE[key].unit, "test", value, value) for key, value in values.items()}
    return replace(spec, motion_noise=noise)


def test_the_robot_that_is_other_is_the_worst_place():
    report, _ = report_of({"robot2": {"speed_scale": 0.85}}, robots=3)
    worst = report.types[0].state["nominal"].worst
    assert worst
    assert ("robot", "robot2") in worst[0].where
    assert [cell.ratio.value for cell in worst] == sorted((cell.ratio.value for cell in worst), reverse=True)
    assert worst[0].ratio.low > 1


def test_latency_is_told_as_the_model_has_it(exact):
    report, _ = exact
    found = report.types[0].latencies
    assert {latency.channel for latency in found} == {"speed", "turn rate"}
    for latency in found:
        assert latency.real_s.value == pytest.approx(latency.model_s, abs=0.02)
    late, _ = report_of({"all": {"command_delay_s": 0.15}})
    for latency in late.types[0].latencies:
        assert latency.real_s.value == pytest.approx(latency.model_s + 0.1, abs=0.025)


def test_a_run_beyond_a_margin_is_told():
    report, _ = report_of({"all": {"command_delay_s": 0.4}})
    beyond = [check for check in report.types[0].margins if not check.within]
    assert "guarantee: velocity_lag_high_s + command_delay_high_s" in {check.term for check in beyond}
    assert all(check.p99 > check.limit for check in beyond)


@pytest.mark.parametrize("robot", ["crazyflie_2x", pytest.param("robomaster_s1", marks=pytest.mark.slow)])
def test_points_in_the_plane_and_in_space_are_replayed(robot):
    report, _ = report_of({"all": {"speed_scale": 0.9}}, robot=robot, seconds=40.0)
    (gap,) = report.types
    assert ("up" in gap.channels) == (robot == "crazyflie_2x")
    row = gap.find("nominal", "position", 2.0)
    assert row.median.value == pytest.approx(row.travel_m / 9, rel=0.4)
    assert gap.causes["nominal"][0].kind == "speed scale"


def test_two_files_and_two_runs_are_compared():
    spec = load_robot(ROBOT)
    recording = synthetic_recording(spec, truth={"all": {"speed_scale": 0.9}})
    report, one = analyse(prepare(recording))
    _, same = analyse(prepare(recording))
    again = compare(one, same, ("a", "b"), report.horizons_s)
    assert all(row.median.value == 0 and not row.significant for row in again)
    _, other = analyse(prepare(synthetic_recording(spec, seed=5)), seed=1)
    rows = compare(one, other, ("this", "other"), report.horizons_s)
    far = next(row for row in rows if (row.robot, row.channel, row.horizon_s) == ("all", "position", 2.0))
    assert far.significant
    assert far.median.is_below


def test_a_run_of_ours_is_replayed_and_scored(recorded):
    from testudo_analysis.gap.predicted_score import score_of

    recorded = replace(recorded, info={"start_steady_s": 100.0, "start_wall_ns": 0, "versions": {}})
    report, _ = analyse(prepare(recording_of_run(recorded)))
    (gap,) = report.types
    assert gap.robots == ("r0", "r1", "r2")
    row = gap.find("nominal", "position", 1.0)
    assert row.median.value < 0.05 * row.travel_m
    assert report.score.rows == ()
    assert "no predicted score" in report.score.note
    values = {
        "success": 0.99,
        "success_low": 0.98,
        "success_high": 1.0,
        "contacts": 0,
        "episodes": 100,
        "minimum_separation_m": 0.2,
        "time_to_success_s": 12.0,
        "intervention_rate": 0.1,
    }
    contract = type("Contract", (), {"arena": None})
    result = score_of(recorded, contract, {"3": values, "8": values})
    assert [row.name for row in result.rows][:2] == ["success", "contacts"]
    assert "100 held-out episodes of 3 robots" in result.note
    for other in ({}, {"success": 0.9}, {"3": {"success": 0.9}}):
        assert "no evaluation" in score_of(recorded, contract, other).note


def test_what_cannot_be_replayed_is_told_and_the_rest_is_replayed():
    recording = synthetic_recording(load_robot(ROBOT), seconds=10.0)
    robots = dict(recording.robots)
    only = robots["robot2"].series
    robots["robot2"] = RobotRecording("robot2", ROBOT, {"pose": only["pose"]})
    robots["robot3"] = RobotRecording("robot3", "", only)
    report, _ = analyse(prepare(Recording(robots, 0, None, recording.info)))
    assert report.types[0].robots == ("robot1",)
    assert "no command is recorded" in report.left_out["robot2"]
    assert "--robot-type" in report.left_out["robot3"]
    with pytest.raises(TestudoError, match="no robot can be replayed"):
        analyse(prepare(Recording({"robot3": robots["robot3"]}, 0, None, recording.info)))


def test_doubles_backward_stamps_and_gaps_cost_only_what_they_touch(exact):
    recording = synthetic_recording(load_robot(ROBOT))
    rng = np.random.default_rng(1)
    robots = {}
    for name, robot in recording.robots.items():
        pose = robot.series["pose"]
        index = np.sort(rng.choice(len(pose), int(0.97 * len(pose)), replace=False))
        index = index[(pose.stamp_s[index] < 30.0) | (pose.stamp_s[index] > 32.0)]
        index = np.insert(index, [100, 100, 500], index[[100, 90, 300]])
        mixed = type(pose)(pose.stamp_s[index], pose.values[index], None, pose.frame)
        robots[name] = RobotRecording(name, ROBOT, {**robot.series, "pose": mixed})
    report, _ = analyse(prepare(Recording(robots, 0, None, recording.info)))
    whole, torn = (r.types[0].find("nominal", "position", 1.0) for r in (exact[0], report))
    assert torn.count > 0.9 * whole.count - 400
    assert torn.median.value < 2 * whole.median.value + 1e-4
    assert any("doubles" in note for note in report.notes)


def test_intervals_grow_with_what_is_common_to_a_block():
    rng = np.random.default_rng(0)
    times = np.arange(0.0, 300.0, 0.1)
    lone = rng.standard_normal(len(times))
    shared = np.repeat(rng.standard_normal(30), 100)
    blocks = TimeBlocks.create([times])
    widths = []
    for values in (lone, shared):
        (median,), (samples,) = quantiles(blocks, values, (0.5,))
        assert median == pytest.approx(np.median(values))
        widths.append(float(np.ptp(np.percentile(samples, (2.5, 97.5)))))
    # standard error of a median is 1.25 sigma / sqrt(n): n is 3,000 in one case and 30 in the other
    assert widths[0] == pytest.approx(3.92 * 1.25 / np.sqrt(3000), rel=0.4)
    assert widths[1] > 5 * widths[0]


def test_the_worst_sample_of_a_margin_and_its_robot_belong_together():
    """One robot has a stray sample, the other is worse as a rule."""
    by_robot = {"calm": np.append(np.full(500, 0.1), 9.0), "rough": np.full(500, 0.5)}
    (check,) = _check("a term", "a residual", "m", 1.0, by_robot)
    assert (check.robot, check.worst) == ("calm", 9.0)
