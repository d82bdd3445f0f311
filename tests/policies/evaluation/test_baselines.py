"""Planners and ORCA as columns of an evaluation: where they apply, what they say where not, and that they arrive."""

from dataclasses import replace

import pytest

from testudo_deploy.shield.arena import Ball
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands.evaluate import evaluation_table
from testudo_policies.evaluation import baselines as module
from testudo_policies.evaluation.baselines import (
    ASTAR,
    BASELINES,
    CBS,
    ORCA,
    RRT,
    absence,
    chosen_baselines,
    evaluate_baseline,
    planner_policy,
)
from testudo_policies.evaluation.evaluation import Evaluation, evaluate_policy
from testudo_policies.evaluation.worth_of_learning import earns_its_place, worth_text
from testudo_policies.learning.builder import make_environment

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("gritsbot_x")


def environment_of(scenario, team_size, **options):
    return make_environment(scenario, SPEC, projection_parameters(SPEC), team_size, **options)


def test_a_baseline_that_does_not_apply_says_why(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)  # as without OMPL
    nine, foraging = environment_of("navigation", 9), environment_of("foraging", 3)
    among = environment_of("navigation", 4, obstacles=(Ball((0.0, 0.0), 0.1),))
    assert [absence(name, nine) for name in BASELINES] == ["", "more than 8 robots", "", ""]
    assert {absence(name, foraging) for name in (ASTAR, CBS, RRT)} == {"no fixed goal for each robot"}
    assert absence(ORCA, foraging) == ""
    assert "testudo[planners]" in absence(RRT, among)
    absent = evaluate_baseline(CBS, nine, 10, 0)
    assert (absent.episodes, absent.absent, absent.to_dict()["success"]) == (0, "more than 8 robots", None)
    assert Evaluation.from_dict(absent.to_dict()).absent == absent.absent


def test_the_list_of_baselines():
    navigation, foraging = environment_of("navigation", 2), environment_of("foraging", 3)
    assert chosen_baselines("auto", navigation) == (ASTAR,)
    assert chosen_baselines("auto", foraging) == ()
    assert chosen_baselines("orca,cbs,orca", foraging) == (ORCA, CBS)
    for text, found in (("astar,dwa", "found dwa"), ("", "found no name")):
        with pytest.raises(TestudoError, match=f"--baselines '{text}': {found}, expected .*astar, cbs, rrt, orca"):
            chosen_baselines(text, navigation)


@pytest.mark.slow
def test_planned_robots_change_places_where_those_that_drive_straight_do_not():
    environment = environment_of("swap", 4)
    straight = evaluate_policy(environment, None, 0, 8)
    planned = evaluate_baseline(ASTAR, environment, 8, straight.first_seed)
    assert straight.success <= 0.25
    assert planned.success >= 0.75
    assert (planned.policy, planned.without_plan, planned.contacts, planned.layers) == (ASTAR, 0, 0, "1")


@pytest.mark.slow
def test_orca_takes_the_place_of_the_shield():
    environment = environment_of("navigation", 4)
    environment = replace(environment, scenario=environment.scenario.with_horizon(20.0))
    found = evaluate_baseline(ORCA, environment, 8, 0)
    assert (found.policy, found.layers, found.intervention_rate) == (ORCA, "none", 0)
    assert found.success >= 0.75
    assert found.minimum_separation_m > 2 * SPEC.body_radius_m


def test_the_policy_of_a_planner_commands_what_its_team_takes():
    plain = environment_of("navigation", 2)
    policy = planner_policy(ASTAR, plain)
    assert (policy._commands_waypoints, policy._further_numbers) == (False, 0)
    assert policy._law.speed_limit_m_s == SPEC.control_point_speed_m_s


def test_the_table_shows_plans_that_are_missing_and_baselines_that_are_absent():
    trained = Evaluation(9, 4, 0, 40.0, 0.5, 1.0, 0.5, 1.0, 0, 0, 0.5, 0.3, 0.3, 0.5, 0.0, 0, 12.0)
    planned = replace(trained, policy=ASTAR, without_plan=2, no_plan="no plan found in 20 orders")
    bare = replace(trained, policy=ORCA, layers="none")
    absent = Evaluation.not_run(environment_of("navigation", 9), CBS, "more than 8 robots")
    table = evaluation_table([trained, planned, absent, bare], "navigation")
    heads, columns = [column.header for column in table.columns], [list(column.cells) for column in table.columns]
    assert heads == ["navigation, 9 robots", "trained", "astar", "cbs", "orca, no shield"]
    shown = {name: cells for name, *cells in zip(*columns, strict=True)}
    assert shown["episodes without a plan"] == ["", "2: no plan found in 20 orders", "", ""]
    assert shown["does not apply"] == ["", "", "more than 8 robots", ""]
    assert shown["success"] == ["1.0000", "1.0000", "", "1.0000"]


@pytest.mark.parametrize(
    ("success", "returns", "earns"),
    [
        ((0.9, 0.6), (1.0, 1.0), True),  # 0.3 of success
        ((0.89, 0.6), (1.9, 1.0), False),
        ((0.1, 0.6), (2.0, 1.0), True),  # twice the return
        (None, (162.7, 23.5), True),
        (None, (-3.0, -6.1), False),  # half the cost is not twice the return
        (None, (5.0, 0.0), False),
    ],
)
def test_learning_earns_its_place_by_success_or_by_return(success, returns, earns):
    assert earns_its_place(success, returns) is earns
    assert worth_text(success, returns).startswith(f"Learning {'earns' if earns else 'does not earn'} its place here: ")
