"""Trials: what is kept, what is counted, and the comparison with simulation."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.contract.shipped_policies import fleet_beside, policy_file
from testudo_deploy.fleet.fleet import load_fleet
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import EpisodeBatch
from testudo_policies.trials.trial_draw import Pose, Trial, TrialTeam
from testudo_policies.trials.trial_runs import FILE, TrialFolder, TrialOptions, result_of
from testudo_policies.trials.trial_table import comparison, not_scored_lines, trial_table
from testudo_sim.online_task.task_state import scoring_of

OPTIONS = TrialOptions(1, "sim", True, 60.0, "ab", ("r0", "r1"))


def result(number, **given):
    found = {
        "number": number,
        "seed": number,
        "scored": True,
        "outcome": "success",
        "reasons": [],
        "success": True,
        "time_s": 10.0 + number,
        "return": float(number),
        "metrics": {"arrived": 2.0},
        "contacts": 0,
        "separation_m": 0.3,
        "run": f"run_{number:03d}",
        "hash": "",
        "ends": [[[0.1 * number, 0.0], 0.5], [[0.0, 0.2 * number], 0.0]],
    }
    return found | given


def simulated(count):
    ones = np.ones(count)
    return EpisodeBatch(
        success=ones,
        contacts=0 * ones,
        separation_m=0.3 * ones,
        interventions=ones,
        braked=ones,
        stuck=ones,
        duration_s=10.0 + np.arange(count),
        returns=np.arange(count) + 0.5,
        crossing=ones,
        metrics={"arrived": 2.0 * ones},
    )


def test_trials_that_were_not_scored_are_named_and_not_counted():
    refused = result(
        2, scored=False, outcome="not_at_start", reasons=["r1: is 0.40 m from its start"], **{"return": None}
    )
    found = comparison([result(1), refused, result(3, success=False, outcome="timeout")], simulated(4))
    assert (found["trials"], found["scored"]) == (3, 2)
    assert not_scored_lines(found) == ["trial 2 is not counted: not_at_start: r1: is 0.40 m from its start"]
    share = found["figures"]["success"]["fleet"]
    wilson = binomtest(1, 2).proportion_ci(0.95, method="wilson")
    assert (share["mean"], share["low"], share["high"]) == (0.5, wilson.low, wilson.high)
    # the simulated episodes of the same trials alone: returns 0.5 and 2.5 beside 1 and 3
    assert found["figures"]["return"]["simulation"]["mean"] == pytest.approx(1.5)
    difference = found["figures"]["return"]["difference"]
    assert (difference["mean"], difference["low"], difference["high"]) == pytest.approx((0.5, 0.5, 0.5))
    assert found["contacts"] == {"simulation": 0, "fleet": 0}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert trial_table(found).row_count == 6


def test_contacts_that_nothing_measures_are_not_zero_and_a_lost_figure_is_none():
    found = comparison([result(1, contacts=None), result(2, metrics={})], simulated(2))
    assert found["contacts"]["fleet"] is None
    assert found["figures"]["arrived"]["fleet"] is None
    nothing = comparison([result(1, scored=False)], simulated(1))
    assert nothing["figures"]["success"]["fleet"] is None
    trial_table(nothing)


def test_a_folder_goes_on_and_refuses_other_trials(tmp_path):
    folder = TrialFolder(tmp_path / "out", OPTIONS)
    assert folder.new_run(1).name == "run_001"
    folder.keep(result(2))
    folder.keep(result(1))
    (tmp_path / "out" / "run_003").mkdir()  # of an interrupted trial: it stays
    folder.keep(result(4, scored=False, outcome="not_at_start"))
    again = TrialFolder(tmp_path / "out", OPTIONS)
    assert [again.is_scored(number) for number in (1, 2, 3, 4)] == [True, True, False, False]
    again.keep(result(4))  # tried again: what became of it before is not forgotten
    assert again.results[4]["earlier"] == [{"outcome": "not_at_start", "reasons": []}]
    assert "trial 4 was tried before: not_at_start" in not_scored_lines(comparison([again.results[4]], simulated(4)))[0]
    assert again.new_run(3).name == "run_003_2"
    with pytest.raises(TestudoError, match="found trials with seed 1, expected 2; give a new folder"):
        TrialFolder(tmp_path / "out", TrialOptions(2, *list(vars(OPTIONS).values())[1:]))
    (tmp_path / "out" / FILE).write_text("{")
    with pytest.raises(TestudoError, match="is no result of `testudo trial`"):
        TrialFolder(tmp_path / "out", OPTIONS)
    with pytest.raises(TestudoError, match=r"holds files, but no trials\.json"):
        TrialFolder(tmp_path, OPTIONS)


def test_robots_stand_where_the_last_trial_left_them(tmp_path):
    folder, begins = TrialFolder(tmp_path / "out", OPTIONS), [Pose((1.0, 1.0), 0.0)]
    assert folder.stand(1, begins) == tuple(begins)
    folder.keep(result(1))
    folder.keep(result(2, ends=[]))  # nobody knows where
    assert folder.stand(3, begins) == (Pose((0.1, 0.0), 0.5), Pose((0.0, 0.2), 0.0))


def recorded(tmp_path, *scores):
    return SimpleNamespace(task_scores=scores, folder=tmp_path, events=(), truth={}, robots=("r0", "r1"))


def state(outcome, **values):
    return SimpleNamespace(outcome=outcome, lines=["r0/policy: broken"], chain_hash="", task_result=values)


def score(number, **given):
    return {
        "decision": number,
        "scored": number,
        "state": "running",
        "time_s": 0.1 * number,
        "total": {"r0": 1.0, "r1": 2.0},
        "metrics": {},
        "separation_m": 0.4,
    } | given


def test_only_a_task_that_ended_and_was_measured_throughout_is_scored(tmp_path):
    trial = Trial(1, 1_001_000, ((0.0, 0.0), (1.0, 0.0)), {})
    whole = (score(1), score(2, state="success"))
    found = result_of(trial, state("success"), recorded(tmp_path, *whole))
    assert (found["scored"], found["success"], found["return"], found["contacts"]) == (True, True, 1.5, None)
    late = result_of(trial, state("timeout"), recorded(tmp_path, score(2, state="timeout")))
    assert (late["scored"], late["success"]) == (True, False)
    for outcome, scores, says in (
        ("success", (score(2, state="success", scored=1),), "1 of 2 decisions could not be scored"),
        ("timeout", (score(1),), "r0/policy: broken"),  # the plant's time-out, while the task went on
        ("stalled", (), "r0/policy: broken"),
    ):
        refused = result_of(trial, state(outcome), recorded(tmp_path, *scores))
        assert not refused["scored"]
        assert says in refused["reasons"][0]
    named = result_of(trial, state("not_at_start", reasons=["r1: is 0.4 m away"]), recorded(tmp_path))
    assert (named["scored"], named["reasons"]) == (False, ["r1: is 0.4 m away"])


@pytest.fixture(scope="module")
def fleet_with_policy():
    """Return a fleet with the policy that ships."""
    return load_fleet(fleet_beside(policy_file(Path("navigation"))))


def test_simulation_has_the_prices_with_which_the_task_node_scores(fleet_with_policy):
    """Otherwise only the returns of the fleet pay for the changes of commands by the shield."""
    simulation = TrialTeam(fleet_with_policy).environment.scoring
    contract = read_policy_contract(fleet_with_policy.policy, fleet_with_policy.policy_sha256)
    node = scoring_of(contract, fleet_with_policy.robots[0].spec)
    assert node.change_price > 0
    assert (simulation.change_price, simulation.facing_price) == (node.change_price, node.facing_price)


def test_simulation_of_trials_in_lock_step_is_timed_as_they_are(fleet_with_policy):
    """Drawn losses and times free robots that block each other, which those of trials in lock-step do not."""
    drawn, exact = (TrialTeam(fleet_with_policy, lock_step=clock).environment for clock in (False, True))
    assert (drawn.layers, exact.layers) == ("all", "all")
    assert drawn.team.channels.message_loss == (0.0, 0.1)
    assert (exact.lock_step, exact.team.channels.message_loss) == (True, (0.0, 0.0))


def test_a_trial_has_the_same_start_however_many_there_are(fleet_with_policy, tmp_path, quick):
    team = TrialTeam(fleet_with_policy)
    few, many = team.trials(7, 2), team.trials(7, 5)
    assert many[:2] == few
    assert TrialTeam(fleet_with_policy, lock_step=True).trials(7, 2) == few
    assert team.trials(8, 2)[0] != few[0]
    stand = [Pose(place, 7.0) for place in many[4].starts_world]
    fleet = team.fleet_of(few[0], stand, tmp_path / "fleet.yaml")
    assert [robot.initial_position_world for robot in fleet.robots] == [pose.position_world for pose in stand]
    assert fleet.task == few[0].task
    assert fleet.policy_sha256 == team.fleet.policy_sha256
    for seed, count in ((7, 0), (7, 5000), (-1, 2)):
        with pytest.raises(TestudoError, match="expected"):
            team.trials(seed, count)
