"""Plants of the benchmark of forecasts: hidden parameters, kept identification, and policies to rank."""

import json

import numpy as np
import pytest

import testudo_bench.forecasting.hidden_plants as module
from testudo_bench.forecasting.bench_forecast import bench_forecast
from testudo_bench.forecasting.hidden_plants import hidden_plants
from testudo_bench.forecasting.policy_ranking import changed
from testudo_bench.forecasting.saved_results import SavedResults
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

SPEC = load_robot("gritsbot_x")
SCALE = "dynamics.speed_scale"


@pytest.fixture
def found(monkeypatch):
    """Return the seeds for which something was identified: the true scale, a hundredth wide."""
    seeds = []

    def identified(spec, truths, seed):
        seeds.append(seed)
        return [{SCALE: [one.speed_scale, one.speed_scale - 0.005, one.speed_scale + 0.005]} for one in truths]

    monkeypatch.setattr(module, "_identified", identified)
    return seeds


def test_a_plant_hides_other_parameters_in_each_robot_and_is_identified_once(found, tmp_path):
    file = tmp_path / "plants.json"
    first = hidden_plants(SPEC, 3, 2, (1.2, 0.7), SavedResults(file, {}))
    again = hidden_plants(SPEC, 3, 3, (1.2, 0.7), SavedResults(file, {}))
    assert found == [0, 3, 6]
    assert [plant.true for plant in again[:2]] == [plant.true for plant in first]
    scales = [spec.speed_scale for plant in again for spec in plant.true]
    assert len(set(scales)) == 9
    assert all(0.8 <= scale <= 1.2 for scale in scales)
    own, hidden = again[0].identified[1].quantities[SCALE], again[0].true[1].quantities[SCALE]
    assert (hidden.low, hidden.high) == (own.value, own.value)
    assert own.high - own.low == pytest.approx(0.01)
    assert again[0].identified[1].quantities["dynamics.turn_scale"] == SPEC.quantities["dynamics.turn_scale"]
    with pytest.raises(TestudoError, match="plant_settings: found"):
        hidden_plants(SPEC, 4, 2, (1.2, 0.7), SavedResults(file, {}))


def test_parts_that_are_done_are_known_again_for_equal_settings_only(tmp_path):
    file, made = tmp_path / "parts.json", []

    def part():
        made.append(1)
        return len(made)

    def parts(fleets):
        saved = SavedResults(file, {"fleets": fleets})
        plants = saved.begin_plants({"robots": 4})
        if not plants:
            saved.add_plant("first")
        assert plants == ["first"]  # plants hold for any number of fleets
        return saved.known("plant 0", part)

    assert [parts(10), parts(10), parts(20)] == [1, 1, 2]
    file.write_text("[]")
    with pytest.raises(TestudoError, match="found no plants to go on from"):
        parts(20)


def test_a_detuned_policy_is_slower_or_drives_aside():
    def ahead(signals, hidden):
        return np.array([[1.0, 0.0]], np.float32), hidden

    assert np.allclose(changed(ahead, 0.5, 0.0)({}, None)[0], [[0.5, 0.0]])
    assert np.allclose(changed(ahead, 1.0, np.pi / 2)({}, None)[0], [[0.0, 1.0]], atol=1e-6)


@pytest.mark.slow  # compiles for many worlds
def test_the_benchmark_scores_every_arm_and_loses_coverage_with_other_robots(found, tmp_path):
    saved = tmp_path / "plants.json"
    result = bench_forecast(repeats=3, worlds=20, saved=saved)
    arms = result.values["arms"]
    assert set(arms) == {"identified", "prior", "shuffled"}
    assert all(arm["covered_of"] >= 24 for arm in arms.values())
    assert arms["shuffled"]["coverage_80"] < arms["identified"]["coverage_80"]
    assert arms["identified"]["crps_over_nominal"] < arms["shuffled"]["crps_over_nominal"]
    assert len(result.values["ranking"]["policies"]) == 10
    assert result.values["plants"] == json.loads(saved.read_text())["plants"]
