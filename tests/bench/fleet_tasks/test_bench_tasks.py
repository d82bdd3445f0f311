"""`testudo bench tasks`: what its figures say of runs, and that runs in a file are not played again."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from testudo_bench.fleet_tasks import bench_tasks as bench
from testudo_bench.fleet_tasks import task_case
from testudo_bench.fleet_tasks.hand_written import LAWS
from testudo_bench.fleet_tasks.task_case import CASES, PreparedCase, figure_of, messages_in
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_sim.deployed_environment import STRIDE
from testudo_sim.online_task.task_state import scoring_of

SIMULATED = {"mean": 1.5, "low": 1.0, "high": 2.0, "least": 0.0, "most": 2.0, "episodes_in_a_mean": 2}


def made_up(runs, *, lock_step):
    return {**SIMULATED, "episodes_in_a_mean": runs, "messages": messages_in(lock_step=lock_step)}


def run(figure=2.0, contacts=0, error=1e-9):
    return {"figure": figure, "contacts": contacts, "reinference_error": error}


def test_every_case_has_a_policy_by_hand():
    assert {case.scenario for case in CASES} == set(LAWS)


def test_a_mean_is_compared_with_means_and_a_run_with_episodes():
    found = bench.summary([run(2.0), run(0.5)], SIMULATED)
    assert (found["mean"], found["within"], found["runs_within_episodes"]) == (1.25, True, 2)
    assert not bench.summary([run(0.5), run(0.5)], SIMULATED)["within"]


def test_what_is_not_known_is_not_met():
    """A run that was not scored, or whose commands cannot be inferred again, never counts as good."""
    found = bench.summary([run(), run(figure=None, error=None, contacts=1)], SIMULATED)
    assert (found["mean"], found["within"]) == (None, False)
    assert (found["reinference_error"], found["reinference_holds"]) == (None, False)
    assert (found["contacts"], found["runs_with_contact"]) == (1, 1)


def test_the_figure_is_the_return_success_or_a_metric():
    assert [figure_of(name, 3.0, 1.0, {"tagged": 2.0}) for name in ("return", "success", "tagged")] == [3.0, 1.0, 2.0]


@pytest.fixture
def simulated(monkeypatch):
    """Simulate nothing; return the environments in which episodes would run."""
    seen = []

    def run_nothing(environment, *arguments):
        seen.append(environment)
        zeros = np.zeros(arguments[-1])
        return SimpleNamespace(returns=zeros, success=zeros, contacts=zeros, metrics={})

    monkeypatch.setattr(task_case, "run_batch", run_nothing)
    return seen


def predator_prey(folder):
    return PreparedCase(
        next(case for case in CASES if case.scenario == "predator_prey"), folder, None, Path("predator_prey")
    )


def test_simulation_has_the_prices_with_which_the_task_node_scores(simulated, tmp_path):
    """Otherwise only the returns of the fleet pay for the changes of commands by the shield."""
    prepared = predator_prey(tmp_path)
    prepared.simulated(2, lock_step=True)
    node = scoring_of(PolicyArtefact.load(prepared.exported.path).contract, prepared.components.spec)
    assert node.change_price > 0
    (seen,) = [environment.scoring for environment in simulated]
    assert (seen.change_price, seen.facing_price) == (node.change_price, node.facing_price)


def test_simulation_of_runs_in_lock_step_is_timed_as_they_are(simulated, tmp_path):
    """Drawn losses and times free robots that block each other, so that too few episodes of simulation have no tag."""
    prepared = predator_prey(tmp_path)
    names = [prepared.simulated(2, lock_step=clock)["messages"] for clock in (True, False)]
    assert names == ["as in lock-step", "drawn"]
    assert [environment.lock_step for environment in simulated] == [True, False]
    exact, drawn = (environment.team.channels for environment in simulated)
    assert (exact.message_ticks, exact.message_loss) == ((STRIDE, STRIDE), (0.0, 0.0))
    assert (drawn.message_ticks, drawn.message_loss) == ((STRIDE, 2 * STRIDE), (0.0, 0.1))


@pytest.fixture
def played(monkeypatch):
    """Play and simulate nothing; return the numbers of the runs that would be played."""
    numbers = []
    monkeypatch.setattr(bench, "run_task", lambda prepared, number, folder, lock_step: numbers.append(number) or run())
    monkeypatch.setattr(
        bench.PreparedCase, "simulated", lambda self, runs, lock_step: made_up(runs, lock_step=lock_step)
    )
    return numbers


def test_a_second_call_goes_on_from_the_file(played, tmp_path):
    saved = tmp_path / "tasks.json"
    bench.bench_tasks(scenario="foraging", repeats=2, saved=saved)
    bench.bench_tasks(scenario="push_box", repeats=1, saved=saved)
    result = bench.bench_tasks(scenario="foraging", repeats=3, saved=saved)
    assert played == [0, 1, 0, 2]
    assert [(row[0], row[1]) for row in result.rows] == [("foraging, 3 robots", "3"), ("push_box, 2 robots", "1")]
    assert json.loads(saved.read_text())["clock"] == "lock-step"
    with pytest.raises(TestudoError, match="found results in lock-step, expected those in real time"):
        bench.bench_tasks(real_time=True, saved=saved)


def test_a_simulation_with_other_messages_than_those_of_the_runs_is_not_kept(played, tmp_path):
    saved = tmp_path / "tasks.json"
    bench.bench_tasks(scenario="foraging", repeats=1, saved=saved)
    written = json.loads(saved.read_text())
    del written["tasks"][0]["simulation"]["messages"]  # a file of the version before, whose simulation drew them
    written["tasks"][0]["simulation"]["mean"] = 7.0
    saved.write_text(json.dumps(written))
    bench.bench_tasks(scenario="foraging", repeats=1, saved=saved)
    assert json.loads(saved.read_text())["tasks"][0]["simulation"] == made_up(1, lock_step=True)
    assert played == [0]


@pytest.mark.parametrize(
    ("options", "sentence"), [({"scenario": "swap"}, "'swap'"), ({"repeats": 0}, "--repeats: found 0")]
)
def test_a_wrong_option_is_refused(options, sentence):
    with pytest.raises(TestudoError, match=sentence):
        bench.bench_tasks(**options)


def test_a_policy_that_ships_is_played_under_its_name_and_only_in_its_scenario(played, tmp_path):
    saved = tmp_path / "tasks.json"
    result = bench.bench_tasks(scenario="discovery", repeats=1, policy=Path("discovery"), saved=saved)
    assert result.values["tasks"][0]["policy"].startswith("policy file, ")
    with pytest.raises(TestudoError, match="found a policy of discovery, expected one of foraging"):
        bench.bench_tasks(scenario="foraging", repeats=1, policy=Path("discovery"))
    with pytest.raises(TestudoError, match="give --scenario with it"):
        bench.bench_tasks(repeats=1, policy=Path("discovery"))
