"""The verb from run to forecast to score, in memory and with few fleets; what it refuses."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.sim.recorded_run import record_run

from testudo_analysis.forecast.forecast import Forecast, ForecastError
from testudo_analysis.forecast.forecast_plot import past_text
from testudo_analysis.forecast.forecast_task import task_of_runs
from testudo_analysis.forecast.make_forecast import ForecastSettings, make_forecast, sampled_team
from testudo_analysis.forecast.score_forecast import score_forecast
from testudo_deploy.cli import main
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment.prepare import prepare_run
from testudo_sim.go_to_goal import write_go_to_goal_policy

SPEC = load_robot("gritsbot_x")
OPTIONS = ("--fleets", "4", "--horizon", "16")


def recording_at(run, start_ns, **changes):
    """Return the recording of a run that began at a wall time [ns]."""
    run = replace(run, info={**run.info, "start_wall_ns": start_ns}, **changes)
    recording = prepare_run(run)
    return replace(recording, contract=PolicyArtefact.load(run.policy_path).contract)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run of two robots that pass each other, and arrive."""
    path = tmp_path_factory.mktemp("policy") / "policy.onnx"
    write_go_to_goal_policy(path, SPEC, team_size=2)
    return record_run(PolicyArtefact.load(path), SPEC, seconds=14.0, count=2, scale=0.9)


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    """Return the file of a forecast that starts from the run."""
    file = tmp_path_factory.mktemp("forecasts") / "tuesday.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("testudo_analysis.commands.forecast.load_team", lambda *_, **__: recording_at(run, 10**18))
        assert main(["forecast", "run", *OPTIONS, "--out", str(file)]) == 0
    return file


def test_a_forecast_says_every_quantity_and_is_scored_by_the_next_run(made, run, monkeypatch, capsys):
    forecast = Forecast.load(made)
    names = {f"{name}.{robot}" for name in ("time_to_goal", "latency") for robot in ("r0", "r1")}
    assert {one.name for one in forecast.quantities} == {"success", "least_separation", "interventions", *names}
    one = next(one for one in forecast.quantities if one.name == "time_to_goal.r0")
    assert forecast.inputs.poses == "true"
    assert forecast.inputs.past == ()  # one run says nothing of how runs scatter
    low, high = one.interval(0.95)
    assert 5.0 < low <= one.median <= high < 16.0
    assert one.last == pytest.approx(one.median, rel=0.35)
    assert made.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    later = recording_at(run, time.time_ns() + 10**9)
    monkeypatch.setattr("testudo_analysis.commands.forecast.load_team", lambda *_, **__: later)
    score = ["forecast", "--score", "run", "--forecast", str(made)]
    numbers = made.with_name("score.json")
    assert main([*score, "--json", str(numbers)]) == 0
    found = json.loads(numbers.read_text())
    assert found["summary"]["covered_of"] == 6
    assert all(one["crps"] >= 0 for one in found["quantities"])
    assert made.with_name("tuesday_scored.png").is_file()
    assert main(score) == 2
    assert "line 2 already has the score" in capsys.readouterr().err
    assert main(["forecast", "--ledger", str(made.with_name("ledger.jsonl"))]) == 0
    assert "all 2 entries are as written" in capsys.readouterr().out


class EarlyFleets:
    """In place of simulated fleets: ten milliseconds earlier than the run, and no more to a nominal one."""

    def __init__(self, team, optimised):
        self.names, self.rng = team.names, np.random.default_rng(0)

    def drawn(self, seed, count, starts):
        return Batch(LATENCY_S - 0.01 + 0.002 * self.rng.standard_normal(count))

    def nominal(self, seed, count, starts):
        return Batch(np.full(count, 0.05))

    def outcomes(self, worlds, seed, share):
        return {f"latency.{name}": worlds.values for name in self.names}


class Batch:
    def __init__(self, values):
        self.values = values

    def and_also(self, other):
        return Batch(np.concatenate([self.values, other.values]))


LATENCY_S = 0.1


def test_a_forecast_is_moved_by_what_past_runs_showed_and_says_how_well_that_does(run, monkeypatch):
    monkeypatch.setattr("testudo_analysis.forecast.make_forecast.FleetSimulator", EarlyFleets)
    artefact, settings = PolicyArtefact.load(run.policy_path), ForecastSettings(60, 16.0)
    task = task_of_runs([recording_at(run, 10**18)] * 6, 16.0)
    assert task.past[0].observed["latency.r0"] == task.last["latency.r0"][0]
    shown = {f"latency.{name}": LATENCY_S for name in ("r0", "r1")}
    past = tuple(replace(one, observed=shown) for one in task.past)

    def latency(past):
        forecast = make_forecast(replace(task, past=past), artefact, (), settings)
        return forecast, next(one for one in forecast.quantities if one.name == "latency.r1")

    forecast, moved = latency(past)
    assert moved.median == pytest.approx(LATENCY_S, abs=1e-3)
    assert set(moved.nominal) == {0.05}
    assert [(one.kind, one.runs) for one in forecast.inputs.past] == [("latency", 6)]
    assert forecast.inputs.past[0].bias == pytest.approx(0.01 / 0.002, rel=0.2)
    assert forecast.inputs.past_coverage.numbers == 12
    assert "each left out once: " in past_text(forecast)
    other = tuple(replace(one, policy_sha256="0" * 64) for one in past)  # another policy says nothing of this one
    for none in ((), past[:2], other):
        assert latency(none)[1].median == pytest.approx(LATENCY_S - 0.01, abs=1e-3)


def test_a_changed_forecast_is_found(made, tmp_path, capsys):
    values = json.loads(made.read_text())
    values["quantities"][0]["samples"][0] += 1.0
    file = tmp_path / "forecast.json"
    file.write_text(json.dumps(values))
    with pytest.raises(ForecastError, match="was changed: its content has the hash"):
        Forecast.load(file)
    (tmp_path / "ledger.jsonl").write_text(made.with_name("ledger.jsonl").read_text())
    assert main(["forecast", "--ledger", str(tmp_path / "ledger.jsonl")]) == 1
    assert "changed or missing: tuesday.json" in capsys.readouterr().out


def other_policy(run):
    return {"fleet": replace(run.fleet, policy_sha256="0" * 64)}


def other_robot(run):
    slower = {**SPEC.quantities, "limits.speed": replace(SPEC.quantities["limits.speed"], value=0.1)}
    robots = (replace(run.fleet.robots[0], spec=replace(SPEC, quantities=slower)), *run.fleet.robots[1:])
    return {"fleet": replace(run.fleet, robots=robots)}


def other_goal(run):
    robots = (replace(run.fleet.robots[0], goal_world=(0.0, 0.0)), *run.fleet.robots[1:])
    return {"fleet": replace(run.fleet, robots=robots)}


def own_poses(run):
    truth = {
        name: replace(track, **{key: value[:0] for key, value in vars(track).items() if hasattr(value, "shape")})
        for name, track in run.truth.items()
    }
    return {"truth": truth}


def cut(run):
    truth = {
        name: replace(track, **{key: value[:100] for key, value in vars(track).items() if hasattr(value, "shape")})
        for name, track in run.truth.items()
    }
    return {"truth": truth}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (other_policy, "policy: found 000000000000, the forecast is for"),
        (other_robot, "robots: r0: others than in the forecast"),
        (other_goal, "goals up to"),
        (own_poses, "poses: found measured ones, the forecast is for true ones"),
        (cut, "neither success nor failure"),
    ],
)
def test_a_run_of_something_else_is_refused(made, run, change, text):
    forecast, later = Forecast.load(made), time.time_ns() + 10**9
    with pytest.raises(TestudoError, match=text):
        score_forecast(forecast, recording_at(run, later, **change(run)))


def test_a_forecast_made_after_the_run_is_none(made, run):
    forecast = Forecast.load(made)
    with pytest.raises(ForecastError, match=r"began before the forecast of .* was made"):
        score_forecast(forecast, recording_at(run, forecast.made_ns - 1))


def test_one_robot_is_no_team_and_runs_of_other_teams_do_not_belong_together(run):
    whole = recording_at(run, 10**18)
    alone = replace(whole, robots=whole.robots[:1])
    with pytest.raises(ForecastError, match="found 1 robot, expected a team of at least 2"):
        sampled_team(task_of_runs([alone], 16.0), PolicyArtefact.load(run.policy_path), (), 16.0)
    with pytest.raises(ForecastError, match="found robots r0, expected r0, r1"):
        task_of_runs([whole, alone], 16.0)
    assert len(task_of_runs([whole, whole], 16.0).starts) == 2


REFUSED = {
    "nothing": ([], "found nothing, expected one of"),
    "two things": (["--ledger", "l", "--score", "r", "--forecast", "f"], "found --score, --ledger"),
    "half a score": (["--score", "r"], "--score RUN and --forecast FILE: found one of them"),
    "no ledger": (["--ledger", "none.jsonl"], "none.jsonl: no such ledger"),
    "no forecast": (["--score", "r", "--forecast", "none.json"], "none.json: no such forecast"),
    "no run": (["none"], "none"),
    "no starts": (["--policy", "navigation"], "found neither RUN nor --fleet"),
    "no fleets": (["run", "--fleets", "1"], "--fleets: found 1, expected at least 2"),
    "no horizon": (["run", "--horizon", "0"], "--horizon: found 0, expected at least 1 s"),
    "robots": (["run", "--robot", "a", "b", "c"], "--robot: found 3 files, expected one for all robots"),
    "a drone's file": (["run", "--robot", "crazyflie_2x"], "--robot crazyflie_2x: found kind"),
    "never replaced": (["run", "--out", "made"], "exists; a forecast is never replaced"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_one_sentence(case, made, run, monkeypatch, capsys, tmp_path):
    words, text = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    if words[:1] == ["run"]:
        monkeypatch.setattr("testudo_analysis.commands.forecast.load_team", lambda *_, **__: recording_at(run, 10**18))
    words = [str(made) if word == "made" else word for word in words]
    assert main(["forecast", *words]) == 2
    said = capsys.readouterr().err
    assert text in said.replace("\n", " ")
    assert "Traceback" not in said
    assert not list(Path().iterdir())
