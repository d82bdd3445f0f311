"""The study of the shield and learning: arms, saved results, resuming, tables and costs."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from testudo_bench.learning import shield_study
from testudo_bench.learning.study_report import COLUMNS, cost_rows, rows, study_plot, summary
from testudo_bench.learning.study_runs import (
    ARMS,
    Budget,
    Point,
    Run,
    SavedResults,
    curve,
    has_flattened,
    open_runs,
    solved_at,
)
from testudo_bench.learning.team_cost import Cost, draw_crowd, joint_rows, solve_jointly
from testudo_bench.learning.training_trial import Trials, TrialTally, point_of, study_components
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot

SMALL = Budget(worlds=8, rollout=4, updates=2, points=2, episodes=4, team_size=2, seeds=2)


def made_run(shielded, seed, budget=SMALL, success=1.0):
    points = tuple(
        Point(update, on, success if on else 0.5, 1.0, 0.0 if on else 0.5, 0.0 if on else 9.0, 10.0 + seed, 0.1)
        for update in budget.evaluated_at
        for on in (True, False)
    )
    return Run(shielded, seed, points, 7, 1.0)


def made_cost(size):
    return Cost(size, 1.0, 0.1, 5, 50.0, 1.0, 1e6, 9, None, 0.01, None)


@pytest.fixture
def without_work(monkeypatch):
    """Replace training and timing by stubs that record their calls."""
    asked = []

    class Noted(Trials):
        def run(self, seed, *, shielded, say):
            asked.append((shielded, seed))
            say(1.0)
            return made_run(shielded, seed, self._budget)

    monkeypatch.setattr(shield_study, "Trials", Noted)
    monkeypatch.setattr(shield_study, "study_contract", lambda robot: None)
    monkeypatch.setattr(shield_study, "team_cost", lambda robot, contract, size: asked.append(size) or made_cost(size))
    return asked


def test_every_use_of_the_shield_is_studied():
    uses = {(arm.trained_shielded, arm.evaluated_shielded) for arm in ARMS}
    assert len(uses) == len(ARMS) == 4


def test_policies_are_evaluated_before_training_and_at_its_end():
    budget = Budget()
    assert budget.evaluated_at[0] == 0
    assert budget.evaluated_at[-1] == budget.updates == budget.config.updates
    assert len(budget.evaluated_at) == budget.points


def test_only_missing_runs_are_open():
    assert open_runs(SMALL, []) == [(True, 0), (False, 0), (True, 1), (False, 1)]
    assert open_runs(SMALL, [made_run(True, 0), made_run(False, 1)]) == [(False, 0), (True, 1)]


def test_a_curve_has_the_runs_and_points_of_its_arm():
    runs = [made_run(True, 0, success=0.9), made_run(False, 0, success=0.8), made_run(True, 1, success=0.7)]
    updates, values = curve(runs, ARMS[0], "success")
    assert updates == list(SMALL.evaluated_at)
    np.testing.assert_array_equal(values, [[0.9, 0.9], [0.7, 0.7]])
    np.testing.assert_array_equal(curve(runs, ARMS[2], "success")[1], [[0.5, 0.5]])


def test_solved_means_that_success_stays_above_the_bar():
    success = np.array([[0.98, 0.9, 0.97, 1.0], [0.99, 0.98, 0.97, 0.97], [1.0, 1.0, 1.0, 0.96]])
    assert solved_at([0, 1, 2, 3], success) == [2, 0, None]


def test_a_curve_that_still_rises_has_not_flattened():
    assert has_flattened(np.array([[0.1, 0.9, 0.905, 0.9]]))
    assert not has_flattened(np.array([[0.1, 0.5, 0.7, 0.9]]))


def test_an_episode_with_a_contact_does_not_succeed():
    tally = TrialTally(
        np.array([True, True, False]),
        np.array([0, 2, 0]),
        np.zeros(3, bool),
        np.array([1.0, 0, 0]),
        np.array([10, 10, 20]),
        np.array([3.0, 3.0, 6.0]),
    )
    point = point_of(tally, 5, shielded=False, team_size=2)
    assert point.reached == pytest.approx(2 / 3)
    assert point.success == point.touched == pytest.approx(1 / 3)
    assert point.time_to_goal_s == 3.0
    assert point.contacts_per_robot_hour == pytest.approx(2 / (12 * 2 / 3600))
    assert point.interventions == pytest.approx(1 / 40)


def test_a_saved_study_is_loaded_unchanged(tmp_path):
    file = tmp_path / "study.json"
    saved = SavedResults.open(SMALL, file)
    saved.add_run(made_run(True, 0))
    saved.add_cost(made_cost(4))
    again = SavedResults.open(SMALL, file)
    assert (again.runs, again.costs) == (saved.runs, saved.costs)
    assert SavedResults.open(replace(SMALL, seeds=9), file).runs == saved.runs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected the results of a `bench learning` study"),
        ("[]", "expected the results of a `bench learning` study"),
        (
            json.dumps({"budget": {}, "runs": [{"seed": 0}], "costs": []}),
            "expected the results of a `bench learning` study",
        ),
        (json.dumps({"budget": {"robot": "other"}, "runs": [], "costs": []}), "budget.robot: found 'other', expected"),
    ],
)
def test_a_file_with_other_contents_is_refused(tmp_path, content, message):
    file = tmp_path / "study.json"
    file.write_text(content)
    with pytest.raises(TestudoError, match=message):
        SavedResults.open(SMALL, file)


def test_a_stopped_study_resumes(tmp_path, without_work, monkeypatch):
    file, run = tmp_path / "study.json", shield_study.Trials.run

    def stopped(self, seed, *, shielded, say):
        if seed == 1:
            raise KeyboardInterrupt
        return run(self, seed, shielded=shielded, say=say)

    monkeypatch.setattr(shield_study.Trials, "run", stopped)
    first = shield_study.bench_learning(quick=True, repeats=2, saved=file)
    assert first.values["interrupted"]
    assert without_work == [(True, 0), (False, 0)]
    assert all(row[1] for row in first.rows)
    monkeypatch.setattr(shield_study.Trials, "run", run)
    without_work.clear()
    shown = []
    second = shield_study.bench_learning(quick=True, repeats=2, saved=file, plot=tmp_path / "p.png", say=shown.append)
    assert without_work == [(True, 1), (False, 1), 2, 8]
    assert "training 3 of 4, with the shield, seed 1" in shown[0]
    assert [arm["seeds"] for arm in second.values["arms"]] == [2, 2, 2, 2]
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    without_work.clear()
    assert not shield_study.bench_learning(quick=True, repeats=2, saved=file).values["interrupted"]
    assert without_work == []


def test_invalid_options_are_refused_before_training(tmp_path, without_work):
    with pytest.raises(TestudoError, match="--repeats: found 0"):
        shield_study.bench_learning(quick=True, repeats=0)
    with pytest.raises(TestudoError, match=r"--plot .*: folder .* does not exist"):
        shield_study.bench_learning(quick=True, plot=tmp_path / "no" / "p.png")
    with pytest.raises(TestudoError, match=r"--json .*: folder .* does not exist"):
        shield_study.bench_learning(quick=True, saved=tmp_path / "no" / "study.json")
    assert without_work == []


def test_the_table_has_median_range_and_decisions_until_solved():
    runs = [made_run(True, seed, success=value) for seed, value in enumerate((0.96, 0.98, 1.0))]
    table = rows(SMALL, runs)
    assert [len(row) for row in table] == [len(COLUMNS)] * len(ARMS)
    assert table[0][1] == "0.980\n0.960-1.000\nfrom 0.980"
    assert table[0][-1] == "0\n2 of 3"
    assert table[3][-1] == "never"
    assert table[1][1:] == ("",) * (len(COLUMNS) - 1)
    assert summary(SMALL, runs, ARMS[0])["training_contacts"]["median"] == 7


def test_costs_without_a_solver_leave_its_columns_empty():
    assert [row[0] for row in cost_rows([made_cost(8), made_cost(2)])] == ["2", "8"]
    assert cost_rows([made_cost(2)])[0][8] == cost_rows([made_cost(2)])[0][9] == ""
    assert study_plot(SMALL, [], []).png.startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
@pytest.mark.parametrize("size", [2, 12])
def test_separate_solutions_are_feasible_for_the_joint_problem_which_changes_less(name, size):
    from testudo_deploy.shield.velocity_projection import project_velocity

    spec = load_robot(name)
    model, shield = motion_model(spec), projection_parameters(spec)
    crowd = draw_crowd(model, shield, size, seed=1)
    result = project_velocity(model, shield, None, crowd.stop, crowd.table, crowd.nominal_world)
    own = result.control_velocity_world
    normals, bounds = joint_rows(model, shield, crowd)
    assert np.all(normals @ own.T.reshape(-1) <= bounds + 1e-4)
    joint = solve_jointly(model, shield, crowd)
    pairs = size * (size - 1) // 2
    assert joint.rows == len(bounds) >= pairs
    assert np.all(normals @ joint.velocity_world.T.reshape(-1) <= bounds + 1e-9)
    changes = [np.sum((velocity - crowd.nominal_world) ** 2) for velocity in (own, joint.velocity_world)]
    assert changes[1] <= changes[0] + 1e-6


@pytest.mark.usefixtures("quick")
def test_without_a_shield_a_contact_has_a_cost_and_ends_the_episode():
    components = study_components(SMALL, shielded=False)
    state = jax.jit(components.environment.reset)(jax.random.split(jax.random.key(0), 3))
    place = np.array(state.team.physics.position_world)
    place[:, 1, 0] = place[:, 0, 0] + 0.01  # the robots of the first world stand in each other
    motion = replace(state.team.physics, position_world=jax.numpy.asarray(place))
    state = replace(state, team=replace(state.team, physics=motion))
    _, result = jax.jit(components.environment.step)(state, jax.numpy.zeros((3, 2, 2)), jax.random.key(1))
    assert result.terminated.tolist() == [True, False, False]
    # robots that stand earn nothing but the price of waiting, at most
    np.testing.assert_allclose(result.reward, [[-5.05, -0.05, -0.05]] * 2, atol=0.07)
    assert study_components(SMALL, shielded=True).environment.contact_cost is None


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_training_is_evaluated_with_the_shield_and_without_and_repeats():
    trials, shares = Trials(SMALL), []
    run = trials.run(0, shielded=False, say=shares.append)
    assert [(point.update, point.shielded) for point in run.points] == [(0, True), (0, False), (2, True), (2, False)]
    assert shares == [0.0, 0.5, 1.0]
    assert all(point.touched == 0 for point in run.points if point.shielded)
    assert trials.run(0, shielded=False, say=shares.append).points == run.points
