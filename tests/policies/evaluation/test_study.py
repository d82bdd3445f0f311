"""Studies of several runs: their estimates, and what the verb prints and writes of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rliable import metrics
from tests.policies.quick import TINY
from tests.policies.untrained import untrained

from testudo_deploy.cli import main
from testudo_policies.evaluation import scores, study
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, Evaluation
from testudo_policies.evaluation.evaluation_table import evaluation_table
from testudo_policies.evaluation.scores import Score, aggregates, episode_iqm, improvements, probability_of_improvement
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.learning.checkpoints import load_config, save_config

RUNS = np.random.default_rng(3).random((5, 4))
CLASSES = {"in": np.array([True, True, False, False]), "all": np.ones(4, bool)}


def found(success=0.75, **changes):
    """Return an evaluation."""
    values = {
        "team_size": 2, "episodes": 4, "first_seed": HELD_OUT_SEED, "horizon_s": 40.0, "crossing_share": 0.5,
        "success": success, "success_low": success / 2, "success_high": 1.0, "contacts": 0,
        "episodes_with_contact": 0, "contact_rate_high": 0.5, "minimum_separation_m": 0.3, "separation_p1_m": 0.3,
        "intervention_rate": 0.5, "brake_rate": 0.0, "deadlocks": 0, "time_to_success_s": 11.0, "mean_return": 6.0,
    }  # fmt: skip
    return Evaluation(**values | changes)


def test_estimates_are_those_of_the_library_and_the_same_every_time(monkeypatch):
    monkeypatch.setattr(scores, "_REPEATS", 200)
    legacy = vars(np.random)
    before = legacy["get_state"]()[1].copy()
    first, again = aggregates(RUNS, CLASSES), aggregates(RUNS, CLASSES)
    assert first == again
    assert np.array_equal(legacy["get_state"]()[1], before)  # the draws of others go on as they would
    for name, mask in CLASSES.items():
        part = RUNS[:, mask]
        assert first.iqm[name].value == metrics.aggregate_iqm(part)
        assert first.optimality_gap[name].value == metrics.aggregate_optimality_gap(part)
        assert first.mean[name].value == metrics.aggregate_mean(part)
        assert first.iqm[name].low < first.iqm[name].value < first.iqm[name].high
    assert first.cells[2].value == pytest.approx(np.sort(RUNS[:, 2])[1:-1].mean())


def test_the_interval_of_a_mean_is_that_of_the_bootstrap():
    """The deviation of a mean of drawn runs is known: that of the runs over the root of their number, cell by cell."""
    mean = aggregates(RUNS, {"all": CLASSES["all"]}).mean["all"]
    deviation = np.sqrt((RUNS.var(axis=0) / len(RUNS)).sum()) / RUNS.shape[1]
    assert mean.high - mean.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_the_return_of_one_policy_has_an_interquartile_mean_over_its_episodes():
    """A few failed episodes move the mean and not the middle half; the interval narrows with the episodes."""
    rng = np.random.default_rng(0)
    few, many = (np.concatenate([np.full(size // 50, -100.0), rng.normal(20.0, 3.0, size)]) for size in (100, 2500))
    narrow, wide = episode_iqm(many), episode_iqm(few)
    assert many.mean() < 18.0
    assert 19.5 < narrow.low < narrow.value < narrow.high < 20.5
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(5.0, rel=0.3)
    assert episode_iqm(few) == wide  # the same draws every time


def test_the_table_shows_the_interval_of_the_return_where_it_was_asked_for():
    def rows(*results):
        columns = evaluation_table(list(results), "navigation").columns
        return {name: cells for name, *cells in zip(*(column.cells for column in columns), strict=True)}

    with_iqm = found(0.9, iqm_return=6.5, iqm_return_low=6.25, iqm_return_high=6.75)
    shown = rows(with_iqm, found(0.9, layers="all"))
    assert shown["  interquartile mean"] == ["6.50", ""]
    assert shown["  its 95 % interval"] == ["6.25 to 6.75", ""]
    assert "  interquartile mean" not in rows(found(0.9))


def test_the_probability_of_improvement_is_the_librarys():
    others = np.round(RUNS[:3] - 0.1, 1)
    ours = np.round(RUNS, 1)  # with ties
    expected = [metrics.probability_of_improvement(ours[:, [at]], others[:, [at]]) for at in range(4)]
    assert probability_of_improvement(ours, others) == pytest.approx(expected)
    better = improvements(ours, others, CLASSES)
    assert better["all"].value == pytest.approx(np.mean(expected))
    assert better["in"].low <= better["in"].value <= better["in"].high


def test_a_score_has_a_scale_or_no_optimum():
    one = found(metrics={"deliveries": 3.0})
    assert Score.parsed("", one) == Score("success")
    assert Score.parsed("return:0:12", one).of(one) == 0.5
    assert not Score.parsed("deliveries", one).has_optimum
    assert Score.parsed("", found(has_success=False)).name == "return"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return a folder with runs of several seeds; none of them is run."""
    for name, seeds, size in (("ours", (0, 1, 2), 2), ("theirs", (7, 8, 9), 2), ("other", (3,), 4)):
        for seed in seeds:
            save_config(tmp_path / name / f"seed_{seed}", replace(TINY, seed=seed, team_size=size))
    known = {size: untrained(replace(TINY, team_size=size)) for size in (2, 4)}
    monkeypatch.setattr(study, "load_policy_under_test", lambda path: known[load_config(path).team_size])
    return tmp_path


@pytest.fixture
def made_up(monkeypatch):
    """Let the runs succeed as often as their share of delivered messages, and note what ran."""
    ran = []

    def evaluate(environment, policy, _memory, episodes, seed, *_):
        ran.append((environment.team.size, environment.layers, policy is None, seed))
        lost = environment.team.channels.message_loss[1]
        return found(1 - lost, team_size=environment.team.size, episodes=episodes, layers=environment.layers)

    monkeypatch.setattr(study, "evaluate_policy", evaluate)
    monkeypatch.setattr(scores, "_REPEATS", 100)
    return ran


def run(*words):
    return main(["evaluate", *map(str, words), "--episodes", "4"])


def test_factors_are_told_cell_by_cell_with_both_sets_of_layers(runs, made_up, tmp_path, capsys):
    numbers, drawn = tmp_path / "study.json", tmp_path / "study.png"
    factors = ("--factor", "team_size=2,3", "--factor", "message_loss=0.1,0.5", "--layers", "all")
    assert run(runs / "ours", *factors, "--json", numbers, "--picture", drawn) == 0
    shown = " ".join(capsys.readouterr().out.split())
    # 4 cells, two sets of layers, 3 runs and the hand-written velocities, all on the same episodes
    assert len(made_up) == 4 * 2 * 4
    assert {seed for *_, seed in made_up} == {HELD_OUT_SEED}
    assert {(size, layers) for size, layers, *_ in made_up} == {(2, "1"), (2, "all"), (3, "1"), (3, "all")}
    values = json.loads(numbers.read_text())
    cell = values["cells"][0]
    assert cell["levels"] == {"team_size": "2", "message_loss": "0.1"}
    assert (cell["distribution"], cell["untrained"], cell["layers"]) == ("in distribution", [], "1")
    assert [one["untrained"] for one in values["cells"][1:4]] == [
        ["message_loss"],
        ["team_size"],
        ["team_size", "message_loss"],
    ]
    (label,) = values["groups"]
    assert cell["iqm"][label] == pytest.approx({"value": 0.9, "low": 0.9, "high": 0.9})
    by_class = {(one["layers"], one["cells"]): one["groups"][label] for one in values["aggregates"]}
    assert by_class["all", "in distribution"]["optimality_gap"]["value"] == pytest.approx(0.1)
    assert by_class["1", "out of distribution"]["mean"]["value"] == pytest.approx((0.5 + 0.9 + 0.5) / 3)
    assert len(values["evaluations"]) == 4 * 2 * 4
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert "rliable" in shown
    assert "3 runs are few" in shown


def test_groups_are_compared_and_each_run_stands_in_the_table(runs, made_up, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    numbers = tmp_path / "study.json"
    ours = [runs / "ours" / f"seed_{seed}" for seed in (0, 1, 2)]  # a folder, or the runs one by one
    assert run(*ours, "--against", runs / "theirs", "--json", numbers) == 0
    shown = capsys.readouterr().out
    assert "ours/seed_0" in shown
    assert "theirs/seed_9" in shown
    assert HAND_WRITTEN in shown
    (both,) = json.loads(numbers.read_text())["aggregates"]
    assert both["probability_of_improvement"]["value"] == 0.5
    assert len(both["groups"]) == 2


def test_one_policy_in_several_cells_has_no_interval_over_runs(runs, made_up, tmp_path, capsys):
    numbers = tmp_path / "study.json"
    one = runs / "ours" / "seed_0"
    assert (
        run(one, "--factor", "team_size=2,3", "--json", numbers, "--baselines", "none", "--score", "return:0:12") == 0
    )
    values = json.loads(numbers.read_text())
    assert values["cells"][0]["iqm"] == {str(one): {"value": 0.5, "low": None, "high": None}}
    assert len(made_up) == 2
    assert "One run tells nothing of other seeds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ours", "ours/seed_0"], "seed_0 twice; a run counts once"),
        (["ours", "--against", "ours"], "--against: found runs of"),
        (["ours", "--baselines", "cbs"], "--baselines: found 'cbs' with several policies"),
        (["ours", "--starts", "x.yaml"], "--starts: found it with several policies"),
        (["ours", "--team-size", "3", "--factor", "team_size=2"], "--team-size: found it with --factor team_size"),
        (["ours/seed_0", "--score", "return"], "--score: found one policy without --factor"),
        (["ours", "--score", "colour"], "--score: found 'colour', expected NAME or NAME:LOW:HIGH with one of success"),
        (["ours", "other/seed_3"], "were trained with another team_size; the runs of a group differ by their seed"),
        ([], "found no policy"),
    ],
)
def test_what_is_no_study_is_refused_in_one_sentence(words, message, runs, made_up, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert run(*words) == 2
    assert message in capsys.readouterr().err
