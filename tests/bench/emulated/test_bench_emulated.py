"""Emulated vendors' robots in lock-step: they arrive with the filter, and do not start without it."""

import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from testudo_bench.emulated import bench_emulated as bench
from testudo_bench.emulated.emulated_faults import ROWS, FaultOutcome
from testudo_bench.emulated.emulated_robot import PoseErrors
from testudo_bench.emulated.lock_step_fleet import LockStep
from testudo_bench.emulated.prepared_case import PreparedCase, prepared
from testudo_bench.emulated.vendor_cases import CASES, robot_tables
from testudo_deploy.guard.flight_guard import GuardPhase
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import parse_robot


def outcome(name, number):
    """Return what an episode counts, without running it."""
    arrived = name != "turtlebot4_raw"
    return {
        "number": number,
        "stated_m": 0.05,
        "outcome": "arrived" if arrived else "timeout",
        "time_s": 20.0 + number,
        "contacts": 0,
        "separation_m": 0.9,
        "errors": {"count": 100, "square_m2": 0.01, "worst_m": 0.03, "beyond": 1},
        "ticks": {"passed": 3, "projected": 1},
    }


def injected(name, number):
    """Return what an injection leads to, without it: the last one comes to no end."""
    stood_s = 0.5 if number < len(ROWS) - 1 else math.inf
    found = FaultOutcome(ROWS[number].name, stood_s, 1.0, "stale_pose", 0)
    return {"number": number, "holds": found.holds, **asdict(found)}


class Inline:
    """Runs what is submitted at once."""

    def __init__(self, *_):
        self.shutdown = lambda **_: None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def submit(self, function, *arguments):
        future = bench.Future()
        future.set_result(function(*arguments))
        return future


@pytest.fixture
def told(monkeypatch):
    calls = []
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(bench, "episode", lambda name, number: calls.append((name, number)) or outcome(name, number))
    monkeypatch.setattr(bench, "fault", injected)
    return calls


def test_it_counts_arrivals_contacts_and_poses_beyond_what_is_stated(told):
    result = bench.bench_emulated(robot="turtlebot4_", repeats=20)
    figures = {one["case"]: one for one in result.values["cases"]}
    assert {name for name, _ in told} == {one.name for one in CASES if one.name.startswith("turtlebot4_")}
    tf, raw = figures["turtlebot4_tf"], figures["turtlebot4_raw"]
    assert (tf["episodes"], raw["episodes"]) == (20, 2)
    assert (tf["success"], tf["contacts"], tf["holds"]) == (1.0, 0, True)
    assert (tf["pose_rms_m"], tf["beyond"]) == (pytest.approx(0.01), 0.01)
    assert (raw["success"], raw["median_s"], raw["holds"]) == (0.0, None, True)
    assert all(len(row) == len(bench.COLUMNS) for row in result.rows)


def test_faults_are_injected_once_into_each_case_with_a_bar_and_one_that_goes_on_fails(told):
    (shown,) = bench.bench_emulated(robot="turtlebot4_", repeats=1).more
    assert {row[0] for row in shown.rows} == {"turtlebot4_tf"}
    assert [row[-1] for row in shown.rows] == ["held"] * (len(ROWS) - 1) + ["FAILED"]


def test_a_contact_or_a_control_that_arrives_fails(told, monkeypatch):
    monkeypatch.setattr(bench, "episode", lambda name, number: outcome("", number) | {"contacts": number})
    figures = {one["case"]: one for one in bench.bench_emulated(robot="turtlebot4", repeats=2).values["cases"]}
    assert figures["turtlebot4"]["holds"] is False
    figures = {one["case"]: one for one in bench.bench_emulated(robot="turtlebot4_raw", repeats=10).values["cases"]}
    assert figures["turtlebot4_raw"]["holds"] is False


def test_it_goes_on_from_its_file(told, tmp_path):
    saved = tmp_path / "emulated.json"
    bench.bench_emulated(robot="nav2", repeats=2, saved=saved)
    bench.bench_emulated(robot="nav2", repeats=3, saved=saved)
    assert told == [("nav2", 0), ("nav2", 1), ("nav2", 2)]
    assert [one["number"] for one in json.loads(saved.read_text())["episodes"]["nav2"]] == [0, 1, 2]


def test_a_file_or_a_robot_that_is_another_is_refused(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(TestudoError, match=r"other\.json: schema: found None"):
        bench.bench_emulated(saved=tmp_path / "other.json")
    with pytest.raises(TestudoError, match="--robot: found 'roomba', expected turtlebot4, "):
        bench.bench_emulated(robot="roomba")


def test_every_case_makes_a_fleet_with_the_numbers_of_its_profile(tmp_path):
    case = next(one for one in CASES if one.name == "turtlebot4")
    prepared = PreparedCase(case, tmp_path)
    fleet = prepared.fleet(0)
    emulation = fleet.robots[0].link.profile.emulation
    assert (emulation.latency_low.value, emulation.dead_man.value, emulation.odometry_drift.value) == (0.14, 0.5, 0.01)
    assert (prepared.spec.dead_man_s, prepared.spec.position_error_m) == (0.5, 0.05)
    assert len({robot.initial_position_world for robot in fleet.robots}) == 4


def test_errors_of_poses_are_counted_against_what_is_stated():
    errors = PoseErrors()
    for off_m in (0.03, 0.04):
        errors.add(off_m, 0.035)
    assert (errors.count, errors.worst_m, errors.beyond) == (2, 0.04, 1)
    assert errors.square_m2 == pytest.approx(0.0025)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arrives"), [("turtlebot4", True), ("turtlebot4_tf", True), ("turtlebot4_raw", False)]
)
def test_four_turtlebots_with_poses_of_5_cm_arrive_with_the_filter_and_never_start_without_it(name, arrives):
    found = bench.episode(name, 0)
    assert (found["outcome"] == "arrived", found["contacts"]) == (arrives, 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row.name for row in ROWS])
def test_a_turtlebot_stands_in_time_after_each_fault(number):
    found = bench.fault("faults turtlebot4", number)
    if ROWS[number].name == "radio of the vehicle lost":
        assert (found["holds"], found["reason"]) == (None, "its driver has no radio")
    else:
        assert found["holds"], found


FALLS = "nothing brakes it without set-points: it levels out after 0.5 s and falls after 2 s"
LEFT_OUT = {
    "crazyswarm2": {
        "wheels blocked": "it has no wheels",
        "guard killed": FALLS,
        "radio of the vehicle lost": FALLS,
    },
    "crazyswarm2_brake": {"wheels blocked": "it has no wheels"},
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_drones_have_every_fault_or_say_why_not_and_no_episodes(name, told):
    case = next(one for one in CASES if one.name == name)
    spec = parse_robot(robot_tables(case), name)
    assert {row.name: why for row in ROWS if (why := row.left_out(spec))} == LEFT_OUT[name]
    result = bench.bench_emulated(robot=name)
    assert (told, result.rows) == ([], [])
    (shown,) = result.more
    assert {row[0] for row in shown.rows} >= {name}


def test_a_fault_that_does_not_apply_counts_neither_way(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(bench, "_prepared", lambda _: SimpleNamespace(spec=SimpleNamespace(), fleet=lambda _: None))
    rows = [replace(ROWS[0], left_out=lambda _: "it has none"), replace(ROWS[0], left_out=lambda _: "")]
    monkeypatch.setattr(bench, "ROWS", rows)
    monkeypatch.setattr(bench, "run_fault", lambda row, *_: FaultOutcome(row.name, 0.5, 1.0, "stale_pose", 0))
    (shown,) = bench.bench_emulated(robot="crazyswarm2_brake").more
    assert shown.title == "faults: 1 of 1 held, 1 do not apply"
    assert [(row[4], row[-1]) for row in shown.rows] == [("it has none", "does not apply"), ("stale_pose", "held")]


def test_a_drone_sends_no_set_point_before_it_has_taken_off(tmp_path):
    """On the ground it would start the motors. Control: the same commands go to the vehicle once its guard flies."""
    case = next(one for one in CASES if one.name == "crazyswarm2")
    drone, sent = LockStep(prepared(case, tmp_path).fleet(0), 0).robots[0], []
    drone._plant = SimpleNamespace(command=lambda *values: sent.append(values))
    drone._brake(1.0)
    assert not sent
    drone.flight.phase = GuardPhase.FLY
    drone._brake(1.0)
    assert len(sent) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row.name for row in ROWS])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_drone_hovers_in_time_after_each_fault(name, number):
    found = bench.fault(f"faults {name}", number)
    assert found["reason"] == LEFT_OUT[name][ROWS[number].name] if found["holds"] is None else found["holds"], found
