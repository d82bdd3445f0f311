"""The gap of two real ground robots over five minutes: dead reckoning, what is wrong with the file, and where."""

import pytest
from tests.sim.real_data import utias_folder

from testudo_analysis.gap.gap_analysis import analyse
from testudo_runs.alignment import prepare
from testudo_runs.importing.run_import import ImportRequest, import_run
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording, RobotRecording, Series

FROM_S, TO_S = 100.0, 400.0


def part(series):
    inside = (series.stamp_s >= FROM_S) & (series.stamp_s <= TO_S)
    return Series(series.stamp_s[inside], series.values[inside], None, series.frame)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = utias_folder()
    files = [folder / f"Robot{k}_{kind}.dat" for k in (1, 2) for kind in ("Odometry", "Groundtruth")]
    run = tmp_path_factory.mktemp("real") / "run"
    import_run(ImportRequest(tuple(files)), run)
    found = load_recording(run)
    robots = {
        name: RobotRecording(name, robot.robot_type, {role: part(s) for role, s in robot.series.items()})
        for name, robot in found.robots.items()
    }
    return analyse(prepare(Recording(robots, found.start_ns, run, found.info)))[0]


def test_dead_reckoning_is_off_by_what_others_found(report):
    (gap,) = report.types
    row = gap.find("dead reckoning", "position", 2.0)
    assert row.count > 25_000
    # its README: median about 11 mm after 2 s, p90 34 to 41 mm, over the whole run
    assert row.median.value == pytest.approx(0.011, abs=0.003)
    assert 0.02 < row.p90.value < 0.05
    assert row.median.low < row.median.value < row.median.high


def test_speed_that_is_lost_in_turns_is_what_is_wrong(report):
    (gap,) = report.types
    first = gap.causes["nominal"][0]
    assert first.kind == "turn slip"
    assert first.named
    assert 0.7 < first.effect.value < 1.3
    turning = [cell for cell in gap.state["nominal"].worst if "turning" in cell.words]
    assert turning


def test_a_slow_run_stays_within_the_margins_and_has_no_score(report):
    (gap,) = report.types
    checks = {check.term: check for check in gap.margins}
    assert checks["layer 1: model"].within
    assert checks["layer 2: tube error"].within
    assert report.score.rows == ()
    assert "imported" in report.score.note
