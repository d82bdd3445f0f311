"""The page of a run says what happened in the order of severity, with the error beside each claim."""

import base64
import json
import re
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from tests.analysis.incident.stories import driven, meeting, recording, story
from tests.sim.recorded_run import record_run

from testudo_analysis.commands.report import ReportOptions, report
from testudo_analysis.gap.margin_checks import MarginCheck
from testudo_analysis.incident.find_incidents import find_incidents
from testudo_analysis.incident.incident import IncidentKind, IncidentThresholds
from testudo_analysis.incident.incident_replay import IncidentReplay
from testudo_analysis.rendering.animation import Animation, AnimationScene, Trajectory
from testudo_analysis.replay.variants import REAL, VariantOutcome, VariantPaths
from testudo_analysis.run_page.build_page import RunContents, episode_page, judged, run_page
from testudo_analysis.run_page.document import document
from testudo_analysis.run_page.incident_sections import incident_sections
from testudo_analysis.run_page.margin_bars import margin_bars, margin_findings, margin_severity
from testudo_analysis.run_page.page_data import CANNOT_TELL, Finding, RunPage, Severity, packed
from testudo_analysis.run_page.run_events import MOMENT_S, run_events, severity_of
from testudo_deploy.shield.velocity_projection import Arena
from testudo_deploy.station_page.run_list import _of_report
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment.prepare import prepare_run
from testudo_runs.recording.write import write_recording

SPEC = load_robot("gritsbot_x")


def contents(told):
    bounds = IncidentThresholds.of(told)
    return RunContents(told, tuple(find_incidents(told, bounds)), bounds)


def overlapping(by_m):
    """Return two robots that stand with an overlap of so many metres."""
    apart = 2 * SPEC.body_radius_m - by_m
    still = [driven(name, (x, 0.0), 0.0, lambda _: (0.0, 0.0), 2.0) for name, x in (("r0", 0.0), ("r1", apart))]
    return story(*still)


@pytest.mark.parametrize(("by_m", "severity"), [(0.002, Severity.DOUBT), (0.06, Severity.BAD)])
def test_an_overlap_within_the_error_of_the_poses_cannot_be_told(by_m, severity):
    page = run_page(contents(overlapping(by_m)))
    assert page.severity is severity
    first = page.findings[0]
    assert ("may have touched" if severity is Severity.DOUBT else "touched") in first.what
    error_mm = 1e3 * 2**0.5 * SPEC.position_error_m
    assert f"overlap {1e3 * by_m:.0f} mm, pose error {error_mm:.0f} mm" in first.doubt
    assert (CANNOT_TELL in first.doubt) == (severity is Severity.DOUBT)
    assert first.command.startswith("testudo incident run --incident 0")


def test_true_poses_of_a_plant_leave_no_doubt(make_artefact):
    run = record_run(make_artefact("gritsbot_x"), SPEC, seconds=1.0)
    team = prepare_run(run)
    (contact,) = [item for item in find_incidents(overlapping(0.002)) if item.kind is IncidentKind.CONTACT]
    assert severity_of(team, contact) is Severity.BAD


def test_incidents_are_grouped_by_moment_and_know_their_place():
    told = meeting(0.02)
    found = find_incidents(told)
    (contact,) = [item for item in found if item.kind is IncidentKind.CONTACT]
    late = replace(contact, begin_s=contact.begin_s + MOMENT_S + 0.1)
    soon = replace(contact, kind=IncidentKind.STOP, begin_s=contact.begin_s + MOMENT_S - 0.1)
    events = run_events(told, [contact, soon, late])
    assert [event.moment for event in events] == [0, 0, 1]
    assert min(events, key=lambda event: event.weight).number == 0
    assert max(events, key=lambda event: event.weight).kind == "stop"


def check(p99, worst):
    return MarginCheck("layer 1: model", "error", "m", 0.1, 0.01, p99, worst, 0.0, 100, p99 <= 0.1, "r0")


def test_a_margin_whose_worst_sample_is_beyond_it_is_not_green():
    covered, exceeded, missed = check(0.05, 0.09), check(0.05, 0.27), check(0.2, 0.3)
    found = [margin_severity(one) for one in (covered, exceeded, missed)]
    assert found == [Severity.GOOD, Severity.DOUBT, Severity.BAD]
    markup = margin_bars([covered, exceeded, missed])
    assert re.findall(r'class="pill (\w+)"', markup) == ["bad", "doubt", "good"]  # the worst first
    assert "worst 270 mm (2.7 x) · covers 100 mm" in markup
    findings = margin_findings([covered, exceeded, missed], "run", "gritsbot_x")
    assert [finding.severity for finding in findings] == [Severity.BAD, Severity.DOUBT]
    assert "2.7 times" in findings[1].what


def test_the_verdict_follows_the_worst_finding():
    def judge(*kinds):
        return judged(RunPage("t", "", Severity.GOOD, "", "", tuple(Finding(kind, str(kind)) for kind in kinds)))

    assert judge().severity is Severity.GOOD
    assert judge(Severity.NOTE).severity is Severity.GOOD
    worst = judge(Severity.NOTE, Severity.DOUBT, Severity.BAD)
    assert (worst.severity, worst.verdict) == (Severity.BAD, "1 fault")
    assert [finding.severity for finding in worst.findings] == [Severity.BAD, Severity.DOUBT, Severity.NOTE]


def test_series_survive_packing():
    values = np.array([[0.1, -3.0], [np.nan, 500.0], [0.7, 2.0]])
    table = packed(values)
    whole = np.frombuffer(base64.b64decode(table["numbers"]), "<i2").reshape(3, 2).astype(float)
    found = np.where(whole == -32768, np.nan, np.array(table["middle"]) + np.array(table["step"]) * whole)
    np.testing.assert_allclose(found, values, atol=500 / 32767)
    assert packed(np.full((2, 1), np.nan))["numbers"]


def test_drones_are_in_space_with_their_heights(make_artefact):
    run = record_run(make_artefact("crazyflie_2x"), load_robot("crazyflie_2x"), seconds=1.0)
    page = run_page(RunContents(prepare_run(run)))
    assert page.scene.flies
    assert {body.kind for body in page.scene.bodies} == {"drone"}
    assert page.scene.bodies[0].poses[:, 2] == pytest.approx(1.0, abs=0.2)
    assert "Height" in [plot.name for plot in page.plots]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the folder with all that the verb writes for an imported run."""
    folder = tmp_path_factory.mktemp("reported")
    write_recording(recording(meeting(0.03)), folder / "run")
    has_rerun = find_spec("rerun") is not None
    status = report(
        folder / "run",
        json=folder / "page.json",
        rerun=folder / "run.rrd" if has_rerun else None,
        foxglove=folder / "layout.json",
        options=ReportOptions(worst=0),
    )
    assert status == 0
    return folder


def test_the_verb_writes_one_page_that_fetches_nothing(written):
    text = (written / "run" / "report.html").read_text(encoding="utf-8")
    for anchor in ("verdict", "timeline", "margins", "model", "where", "score"):
        assert f'id="{anchor}"' in text
    # the station page lists runs with their verdicts
    assert (
        _of_report(written / "run" / "report.html")
        == re.search(r'class="badge (\w+)".*?</span>([^<]+)<', text).groups()
    )
    # one row for each robot, one panel for each robot
    values = json.loads((written / "page.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert [row["robot"] for row in values["plots"][0]["rows"]] == ["r0", "r1"]
    assert [panel["title"] for panel in values["charts"]["robots"]] == ["r0", "r1"]
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "@import" not in text


def test_the_model_that_was_predicted_with_is_in_the_scene_and_its_error_over_the_run(written):
    values = json.loads((written / "page.json").read_text(encoding="utf-8"))
    assert all(body["model"] for body in values["scene"]["bodies"])
    assert "Error of the model" in [plot["name"] for plot in values["plots"]]


def outcome(way, least_m, off_m):
    return VariantOutcome(way, 1.0, 2.0, 1, 0, 0, least_m, least_m, None, None, None, None, off_m)


def test_an_outcome_nearer_to_contact_than_the_drift_of_the_model_cannot_be_told():
    told = meeting(0.03)
    (contact,) = [item for item in find_incidents(told) if item.kind is IncidentKind.CONTACT]
    ways = outcome(REAL, 0.13, None), outcome("commands, shield", 0.3, 0.2), outcome("commands, no shield", 0.16, 0.05)
    paths = VariantPaths(np.zeros((3, 2, 2, 1)), np.zeros((3, 2, 1)))
    item = IncidentReplay(replace(contact, from_s=1.0, aftermath=ways), told, tuple((way, paths) for way in ways))
    (section,) = incident_sections([item])
    assert re.findall(r"(▲ no|✔ yes)", section.markup) == ["✔ yes", "▲ no"]
    assert section.markup.count("50 mm</td>") == 2
    (panel,) = section.charts["aftermath0"]
    assert [curve.name for curve in panel.curves] == [REAL, "commands, shield", "commands, no shield", "contact"]


def test_rerun_and_foxglove_get_the_same_run(written):
    if (written / "run.rrd").exists():
        assert (written / "run.rrd").read_bytes()[:4] in (b"RRF2", b"RRIO")
    layout = json.loads((written / "layout.json").read_text(encoding="utf-8"))
    paths = [series["value"] for series in layout["configById"]["Plot!commands"]["paths"]]
    assert paths == ["/r0/cmd_vel.twist.linear.x", "/r1/cmd_vel.twist.linear.x"]
    assert set(layout["configById"]["3D!scene"]["topics"]) == {"/r0/pose", "/r1/pose"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"rerun": "x.txt"}, "expected a file that ends in .rrd"),
        ({"foxglove": "x.txt"}, "expected a file that ends in .json"),
        ({"options": ReportOptions(worst=-1)}, "--worst: found -1"),
        ({"options": ReportOptions(training="nowhere")}, "found no metrics.jsonl"),
    ],
)
def test_bad_options_are_one_sentence(written, tmp_path, more, told):
    if "rerun" in more and find_spec("rerun") is None:
        pytest.skip("the package rerun-sdk is not installed")
    from pathlib import Path

    given = {name: value if name == "options" else tmp_path / value for name, value in more.items()}
    if "options" in given and given["options"].training:
        given["options"] = replace(given["options"], training=Path("nowhere"))
    given.setdefault("options", ReportOptions(worst=0))
    given["options"] = replace(given["options"], gap=False)
    with pytest.raises(TestudoError, match=told):
        report(written / "run", out=tmp_path / "page.html", **given)


def test_rerun_is_refused_where_it_is_not_installed(written, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(TestudoError, match="pip install"):
        report(written / "run", out=tmp_path / "page.html", rerun=tmp_path / "run.rrd")


def test_a_cause_that_recurs_is_one_finding_with_all_its_moments():
    still = Finding(Severity.DOUBT, "r0 stood", at_s=1.0, moments=tuple(float(k) for k in range(10)))
    text = document(replace(run_page(contents(meeting(1.0))), findings=(still,)))
    assert re.findall(r'data-at="([\d.]+)"', text) == ["1.000", "0.000", "2.000", "3.000", "4.000", "5.000", "6.000"]
    assert "and 3 more" in text


def test_names_are_escaped():
    told = meeting(1.0)
    named = replace(told, robots=tuple(replace(robot, name=f"<{robot.name}>") for robot in told.robots))
    text = document(run_page(contents(named)))
    assert "<r0>" not in text


def test_what_is_not_searched_for_is_not_called_fine():
    told = meeting(1.0)
    missing = run_page(RunContents(told, notes=("incidents are not searched for: of several kinds",)))
    assert missing.severity is Severity.DOUBT
    assert not missing.searched
    damaged = replace(told, source=replace(told.source, complete=False), warnings=("a chunk is lost",))
    assert run_page(contents(damaged)).severity is Severity.DOUBT
    track = Trajectory(np.array([0.0, 1.0]), np.zeros((2, 1, 2)), np.zeros((2, 1)))
    episode = episode_page(Animation(AnimationScene((SPEC,), Arena((-1.0, -1.0), (1.0, 1.0))), track))
    assert (episode.severity, episode.verdict, episode.searched) == (Severity.NOTE, "not judged", False)
