"""The screen of tasks that can tell: what a plant changes, how a gain is judged, and resuming."""

import json

import numpy as np
import pytest

from testudo_bench.learning import screen
from testudo_bench.learning.candidates import CANDIDATES, TIME, Candidate, Change
from testudo_bench.learning.screen import bench_screen, chosen_candidates
from testudo_bench.learning.screened_task import Gain, Worlds
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot


def test_a_plant_moves_otherwise_and_computes_as_described():
    spec = load_robot("gritsbot_x")
    changes = {"dynamics.velocity_lag": Change(6.0), "dynamics.turn_slip": Change(added=0.5)}
    plant = Candidate("one", "", "gates", changes, "gates").plant_of(spec)
    assert plant.quantities["dynamics.velocity_lag"].value == pytest.approx(6 * spec.velocity_lag_s)
    assert plant.quantities["dynamics.turn_slip"].low == plant.quantities["dynamics.turn_slip"].high == 0.5
    assert "dynamics.turn_slip" not in spec.quantities
    # prediction and shield of the robot do not know of it
    assert plant.velocity_lag_s == spec.velocity_lag_s
    assert plant.turn_slip_s_rad == 0
    assert motion_model(plant).scale == motion_model(spec).scale


def test_both_worlds_have_the_same_shield_starts_and_rewards():
    worlds = Worlds(CANDIDATES[0], 4, 10)
    described, true = worlds.components.environment, worlds.true_world
    assert true.team.shield == worlds.plant.team.shield == described.team.shield
    assert true.horizon == described.horizon
    assert true.change_price == described.change_price
    assert true.team.model.spec.quantities != described.team.model.spec.quantities


def test_every_candidate_is_a_plant_of_its_robot():
    for one in CANDIDATES:
        assert one.plant_of(load_robot(one.robot)).quantities
    assert len({one.name for one in CANDIDATES}) == len(CANDIDATES)
    with pytest.raises(TestudoError, match=r"odd: dynamics\.lag is no quantity of a robot file"):
        Candidate("odd", "", "gates", {"dynamics.lag": Change(2)}, TIME).plant_of(load_robot("gritsbot_x"))


def test_a_gain_is_a_share_of_the_better_score_with_an_interval_over_paired_seeds():
    gain = Gain.of(np.array([4.0, 5.0, 6.0]), np.array([2.0, 2.0, 5.0]), more_is_better=True)
    # differences 2, 3, 1 of a mean of 5; Student's t of two degrees of freedom 4.3027, deviation 1 over root 3
    assert gain.mean == pytest.approx(2 / 5)
    assert gain.high - gain.mean == pytest.approx(4.30265 / np.sqrt(3) / 5, rel=1e-5)
    assert not gain.tells  # 3 seeds as different as these: the interval has 0
    assert Gain(0.25, 0.01, 0.49).tells
    assert not Gain(0.19, 0.18, 0.2).tells


def test_less_time_is_a_gain_and_one_seed_proves_nothing():
    gain = Gain.of(np.array([10.0]), np.array([20.0]), more_is_better=False)
    assert gain.mean == 0.5
    assert gain.low == -np.inf
    assert not gain.tells


def test_without_an_accelerator_the_slow_candidates_run_by_name_only():
    assert all(not one.needs_accelerator for one in chosen_candidates(None, accelerator=False))
    assert chosen_candidates(None, accelerator=True) == CANDIDATES
    assert [one.name for one in chosen_candidates("push_box", accelerator=False)] == ["push_box_friction"]
    assert [one.name for one in chosen_candidates("gates_slip", accelerator=False)] == ["gates_slip"]
    with pytest.raises(TestudoError, match="--scenario: found 'swap', expected one of deliveries_slip, drone_gates_"):
        chosen_candidates("swap", accelerator=False)


@pytest.fixture
def without_work(monkeypatch):
    """Replace the trainings by a stub that records the candidates."""
    asked = []

    def screened(candidate, budget, tell):
        asked.append(candidate.name)
        tell(0.5, "working")
        return candidate.to_dict() | {
            "described": [1.0] * budget.seeds,
            "true": [2.0] * budget.seeds,
            "gain": {"mean": 0.5, "low": 0.4, "high": 0.6},
            "tells": True,
            "success": [0.0],
            "episodes_with_contact": 0,
            "episodes": 4,
            "seconds": 1.0,
        }

    monkeypatch.setattr(screen, "screened", screened)
    return asked


def test_a_stopped_screen_goes_on_from_its_file(tmp_path, without_work, monkeypatch):
    file, run = tmp_path / "screen.json", screen.screened

    def stopped(candidate, budget, tell):
        if without_work:
            raise KeyboardInterrupt
        return run(candidate, budget, tell)

    monkeypatch.setattr(screen, "screened", stopped)
    first = bench_screen(scenario="gates", saved=file)
    assert first.values["interrupted"]
    assert without_work == ["gates_lag"]
    monkeypatch.setattr(screen, "screened", run)
    shown = []
    assert len(bench_screen(scenario="gates", minutes=0.0, saved=file).rows) == 1  # no further one begins
    second = bench_screen(scenario="gates", saved=file, say=shown.append)
    assert without_work == [one.name for one in CANDIDATES if one.scenario == "gates"]
    assert "2 of 4, gates_slip: working" in " ".join(shown)
    assert [row[-1] for row in second.rows] == ["yes"] * 4
    assert second.rows[0][4] == "+50% (+40% to +60%)"


def test_another_budget_or_file_is_refused_and_a_candidate_that_changed_runs_again(tmp_path, without_work):
    file = tmp_path / "screen.json"
    bench_screen(scenario="gates_lag", saved=file)
    with pytest.raises(TestudoError, match=r"budget\.seeds: found 5, expected 3"):
        bench_screen(scenario="gates_lag", repeats=3, saved=file)
    values = json.loads(file.read_text())
    values["candidates"]["gates_lag"]["changes"]["dynamics.velocity_lag"] = [2.0, 0.0]
    file.write_text(json.dumps(values))
    without_work.clear()
    bench_screen(scenario="gates_lag", saved=file)
    assert without_work == ["gates_lag"]
    file.write_text("[]")
    with pytest.raises(TestudoError, match="expected the results of `bench screen`"):
        bench_screen(scenario="gates_lag", saved=file)
    with pytest.raises(TestudoError, match="--repeats: found 0"):
        bench_screen(repeats=0)
    with pytest.raises(TestudoError, match=r"folder .* does not exist"):
        bench_screen(saved=tmp_path / "no" / "screen.json")
