"""The sections of a report show what there is, and its checks judge as they should."""

import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from testudo_analysis.replay import mutations_detected, reinfer
from testudo_analysis.replay.open_loop import open_loop
from testudo_analysis.report.fleet_summary import pair_distances, summarise_fleet
from testudo_analysis.report.report_data import (
    EvaluationRow,
    FleetSection,
    FlownRun,
    ParitySection,
    ReinferenceSection,
    ReportData,
    TrainingSection,
)
from testudo_analysis.report.summary import all_passed, share, verdicts, write_summary
from testudo_analysis.run_page.page_data import Severity
from testudo_analysis.run_page.report_sections import report_findings, report_sections
from testudo_analysis.run_page.training_curves import training_panels, warnings_of
from testudo_hardware.spec import load_robot
from testudo_runs.run_reader import PlantEvent, Track

ROWS = tuple(
    {
        "update": k,
        "decisions": 16384 * k,
        "seconds": 0.2 * k,
        "train/success": k / 50,
        "train/return": k - 20.0,
        "shield/intervention_rate": 0.4 - k / 200,
        "train/contacts": 0.0,
    }
    for k in range(1, 50)
)


def page(data):
    """Return the markup of all sections."""
    return "".join(f'<section id="{one.anchor}">{one.title}{one.markup}</section>' for one in report_sections(data))


class Page(HTMLParser):
    """Collects the sections, and refuses markup whose tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def evaluation(success=0.99, contacts=0, size=4):
    return EvaluationRow(
        size, 1000, success, success - 0.01, 1.0, contacts, contacts, 0.003, 0.2, 0.21, 1, 14.0,
        0.6, 0.98,
    )  # fmt: skip


def parity(error=4e-7):
    return ParitySection(1e-5, 10240, error, error, 500, 16, error, 1e-3, error)


@pytest.fixture(scope="module")
def data(recorded, make_artefact):
    """Return a report with every section."""
    artefact = make_artefact("gritsbot_x")
    finished = PlantEvent(
        106.0,
        "finished",
        {"outcome": "arrived", "contacts": 0, "separation_m": 0.2, "closest": ["r0", "r1"]},
    )
    run = replace(recorded, events=(finished,))
    return ReportData(
        "Three <robots> & a policy",
        "made for a test",
        wall_s=170.0,
        wall_bar_s=300.0,
        training=TrainingSection(ROWS, 40.0, 9.0, {"algorithm": "mappo"}),
        training_bar_s=60.0,
        evaluation=(evaluation(), evaluation(size=8)),
        parity=parity(),
        fleet=FleetSection(run, artefact.contract, tolerance_m=1.1),
        reinference=ReinferenceSection(reinfer(run, artefact), mutations_detected(run, artefact)),
        gap=open_loop(run, load_robot("gritsbot_x")),
        contract=artefact.contract,
        versions={"testudo": "0.1.0"},
        hashes={"policy.onnx": artefact.sha256},
        next_steps=(("testudo replay run --alter", "see it fail"),),
    )


def test_the_sections_hold_everything(data):
    assert Page(page(data)).ids == [
        "checks", "fleet", "training", "evaluation", "reinference", "parity", "terms", "versions", "next",
    ]  # fmt: skip


def test_the_page_says_what_the_data_say(data):
    text = page(data)
    for words in (
        "stale_pose",
        "localisation",
        "teacher-forced",
        data.hashes["policy.onnx"],
        "testudo replay run --alter",
        "neighbour_age_s",
    ):
        assert words in text


def test_a_report_of_nothing_is_a_page_too(tmp_path):
    empty = ReportData("nothing yet")
    assert verdicts(empty) == ()
    found = Page(page(empty))
    assert found.ids == []
    values = json.loads(write_summary(empty, tmp_path / "summary.json").read_text())
    assert values["passed"] is True
    assert values["verdicts"] == []


@pytest.mark.parametrize(
    "section",
    ["training", "evaluation", "parity", "fleet", "reinference", "contract", "versions"],
)
def test_each_section_stands_alone(data, section):
    alone = ReportData("one", **{section: getattr(data, section)})
    assert len(Page(page(alone)).ids) >= 1


def test_everything_fine_passes(data):
    lines = verdicts(data)
    assert all_passed(lines)
    assert [line.name for line in lines if line.passed is None] == [
        "least distance of two robots",
        "gap of the training model after 0.5 s",
        "gap of the training model after 2 s",
    ]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("success, 4", lambda d: replace(d, evaluation=(evaluation(success=0.97),))),
        ("contacts, 4", lambda d: replace(d, evaluation=(evaluation(contacts=1),))),
        ("ONNX against JAX", lambda d: replace(d, parity=parity(2e-5))),
        ("ONNX against JAX", lambda d: replace(d, parity=parity(math.nan))),
        ("robots that arrived", lambda d: replace(d, fleet=replace(d.fleet, tolerance_m=0.01))),
        (
            "re-inference",
            lambda d: replace(
                d,
                reinference=replace(d.reinference, result=replace(d.reinference.result, tolerance=-1)),
            ),
        ),
        (
            "changed inputs",
            lambda d: replace(
                d,
                reinference=replace(d.reinference, altered=(replace(d.reinference.altered[0], caught=False),)),
            ),
        ),
    ],
)
def test_what_fails_is_said_to_fail(data, tmp_path, name, spoil):
    spoilt = spoil(data)
    failed = [line.name for line in verdicts(spoilt) if line.passed is False]
    assert len(failed) == 1
    assert failed[0].startswith(name)
    assert not all_passed(verdicts(spoilt))
    (bad,) = [finding.what for finding in report_findings(spoilt) if finding.severity is Severity.BAD]
    assert bad.startswith(f"Check failed: {failed[0]}")
    assert json.loads(write_summary(spoilt, tmp_path / "s.json").read_text())["passed"] is False


def test_a_slow_machine_is_shown_and_does_not_fail(data):
    slow = replace(data, wall_s=900.0, training=replace(data.training, seconds=500.0))
    lines = verdicts(slow)
    assert [line.name for line in lines if line.passed is False] == [
        "training with compilation",
        "the whole job",
    ]
    assert all_passed(lines)
    assert Severity.BAD not in {finding.severity for finding in report_findings(slow)}


def test_the_summary_is_strict_json(data, tmp_path):
    odd = replace(
        data,
        evaluation=(replace(evaluation(), minimum_separation_m=math.inf),),
        parity=parity(math.nan),
    )
    text = write_summary(odd, tmp_path / "summary.json").read_text()
    values = json.loads(text, parse_constant=pytest.fail)
    assert values["schema"] == "testudo/summary/1"
    assert values["evaluation"][0]["minimum_separation_m"] is None
    assert values["parity"]["max_error"] is None
    assert values["fleet"]["robots"][0]["robot"] == "r0"
    assert values["reinference"]["passed"] is True
    assert values["open_loop"]["rows"][0]["errors"]["count"] > 0
    assert values["training"]["last"]["update"] == 49


def moved(run, paths, period=0.1):
    """Return the run with true positions (T, 2) by robot, one every ``period``."""
    truth = {}
    for name, path in paths.items():
        place = np.array(path, float)
        stamps = 100.0 + period * np.arange(len(place))
        truth[name] = Track(stamps, stamps, place, np.zeros(len(place)), np.zeros_like(place))
    names = tuple(paths)
    fleet = replace(run.fleet, robots=tuple(run.fleet.robot(name) for name in names))
    ticks = {name: run.ticks[name] for name in names}
    return replace(run, fleet=fleet, ticks=ticks, truth=truth)


def test_the_fleet_summary_by_hand(recorded, make_artefact):
    (gx, gy), (hx, hy) = (recorded.fleet.robot(name).goal_world for name in ("r0", "r1"))
    # r0 comes along x in steps of 0.1 m and stops on its goal; r1 visits its goal and leaves again
    first = [(gx - 0.1 * max(0, 20 - k), gy) for k in range(30)]
    second = [(hx, hy + 0.5 - 0.1 * k) if k < 6 else (hx, hy + 0.1 * (k - 5)) for k in range(30)]
    run = moved(recorded, {"r0": first, "r1": second})
    section = FleetSection(run, make_artefact("gritsbot_x").contract, tolerance_m=0.15)
    summary = summarise_fleet(section)
    one, other = summary.robots
    assert one.arrived_s == pytest.approx(1.9)  # 20 steps to the goal, one less into its tolerance
    assert one.path_m == pytest.approx(2.0)
    assert one.goal_distance_m == pytest.approx(0.0)
    assert other.arrived_s is None
    assert other.goal_distance_m == pytest.approx(2.4)
    assert (summary.arrived, summary.arrival_s, summary.contacts) == (1, None, None)
    apart = [math.dist(p, q) for p, q in zip(first, second, strict=True)]
    assert summary.minimum_separation_m == pytest.approx(min(apart))
    assert summary.closest == ("r0", "r1")
    times, distances = pair_distances(run)
    np.testing.assert_allclose(distances["r0", "r1"], apart)
    assert times[1] - times[0] == pytest.approx(0.1)
    assert one.ticks == len(run.ticks["r0"])
    assert one.braked["stale_pose"] == sum(t.reason == "stale_pose" for t in run.ticks["r0"])


def test_the_plant_has_the_last_word_on_contacts(data):
    summary = summarise_fleet(data.fleet)
    assert (summary.contacts, summary.minimum_separation_m) == (0, 0.2)
    assert summary.closest == ("r0", "r1")
    touched = PlantEvent(101.0, "state", {"contacts": 2, "separation_m": None})
    run = replace(data.fleet.run, events=(touched,))
    lines = verdicts(replace(data, fleet=replace(data.fleet, run=run)))
    assert [line.value for line in lines if line.passed is False] == ["2"]


def flown_runs(**changes):
    good = [FlownRun(k, "arrived", 9.0, 0, 0.7, 0.6, 0.58, 3, 2000, 1.5) for k in range(3)]
    return (*good, replace(good[0], seed=3, **changes))


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({}, []),
        pytest.param({"outcome": "timeout"}, ["arrived, 4 runs over ROS 2"], marks=pytest.mark.slow),
        ({"contacts": 2}, ["contacts, 4 runs over ROS 2"]),
    ],
)
def test_every_one_of_several_runs_counts(data, tmp_path, changes, failed):
    whole = replace(data, runs=flown_runs(**changes))
    assert [line.name for line in verdicts(whole) if line.passed is False] == failed
    assert "4 runs, each from another start" in page(whole)
    written = json.loads(write_summary(whole, tmp_path / "s.json").read_text())["runs"]
    assert [run["seed"] for run in written] == [0, 1, 2, 3]


def test_control_points_that_came_too_near_are_told(data):
    whole = replace(data, runs=flown_runs(control_points_m=0.55))
    (line,) = [line for line in verdicts(whole) if line.name.startswith("control points")]
    assert line.value == "30 mm"


def test_a_robot_alone_has_no_separation(recorded, make_artefact):
    run = moved(recorded, {"r0": [(0, 0), (0.1, 0), (0.2, 0)]})
    section = FleetSection(run, make_artefact("gritsbot_x").contract)
    assert summarise_fleet(section).minimum_separation_m is None
    assert Page(page(ReportData("alone", fleet=section))).ids == ["checks", "fleet"]


def test_a_run_without_truth_shows_what_was_measured(data):
    empty = Track(*(np.zeros((0, *shape)) for shape in ((), (), (2,), (), (2,))))
    run = replace(data.fleet.run, truth=dict.fromkeys(data.fleet.run.truth, empty), events=())
    section = replace(data.fleet, run=run)
    assert summarise_fleet(section).minimum_separation_m > 0.1


def test_training_is_read_as_far_as_it_was_written(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in ROWS[:5]) + '\n{"update": 6, "dec')
    section = TrainingSection.read(file, compile_s=3.0)
    assert [row["update"] for row in section.rows] == [1, 2, 3, 4, 5]
    assert section.seconds == pytest.approx(1.0)
    file.write_text("")
    assert TrainingSection.read(file).rows == ()
    assert training_panels(()) == []
    assert training_panels([{"loss": 1.0}, {"loss": 0.5}]) == []


def test_the_curve_of_success_begins_where_it_is_known_and_says_so():
    whole = [{"decisions": 100.0 * k, "train/contacts": 0.0} for k in range(5)]
    known = [row | {"train/success": 0.5, "train/episode_length": 80.0} for row in whole[3:]]
    success, *_ = training_panels([*whole[:3], *known])
    assert success.curves[0].x == (0.0, 300.0, 400.0)
    assert success.curves[0].y == (None, 0.5, 0.5)
    assert "only short, that is easy, episodes have ended" in success.about
    assert warnings_of(known) == []
    (warning,) = warnings_of(ROWS)
    assert "each single update" in warning


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (1.0, 2, "100 %"),
        (0.98, 2, "98 %"),
        (0.9965, 2, "99.65 %"),
        (0.2, 0, "20 %"),
        (0.0, 1, "0 %"),
    ],
)
def test_shares_without_idle_zeros(value, digits, shown):
    assert share(value, digits) == shown
