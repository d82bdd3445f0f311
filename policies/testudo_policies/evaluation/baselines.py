"""The columns beside the trained policy: planners, and ORCA without the shield.

Planners apply where every robot has a goal that stays. Their paths are followed under the shield of the environment,
with the tracking law of way-points.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from testudo_deploy.contract.waypoint_tracking import GAIN_PER_S, WaypointTracking
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import Evaluation, Programs, evaluate_policy
from testudo_policies.networks.waypoint_choice import STEP_S
from testudo_policies.planners.conflict_based_search import ConflictBasedPlanner
from testudo_policies.planners.orca import OrcaEnvironment
from testudo_policies.planners.plan_following import PlanFollower, PlanTeam, TeamPlan
from testudo_policies.planners.roadmap import RoadmapOfArena
from testudo_policies.planners.rrt_star import RrtStarPlanner
from testudo_policies.planners.space_time_astar import PrioritisedPlanner
from testudo_sim.environment import Environment
from testudo_sim.scenarios.goal_scenario import GoalScenario

ASTAR, CBS, RRT, ORCA = "astar", "cbs", "rrt", "orca"
BASELINES = (ASTAR, CBS, RRT, ORCA)
_ON_A_GRID = {ASTAR: PrioritisedPlanner(), CBS: ConflictBasedPlanner()}
_EXTRA_M = 0.02  # between planned robots, over the separation that the shield keeps: they do not drive exactly
_REACHED = 0.25  # share of a step before a way-point at which a robot goes on to the next


def chosen_baselines(text: str, environment: Environment) -> tuple[str, ...]:
    """Return the baselines of a list such as `astar,cbs`; `auto` is A* where it applies.

    Raises:
        TestudoError: an unknown name.
    """
    if text == "auto":
        return () if absence(ASTAR, environment) else (ASTAR,)
    found = tuple(dict.fromkeys(text.replace(",", " ").split()))
    unknown = [name for name in found if name not in BASELINES]
    if unknown or not found:
        raise TestudoError(
            f"--baselines {text!r}: found {', '.join(unknown) or 'no name'}, expected `auto`, `none`, or some of "
            f"{', '.join(BASELINES)}"
        )
    return found


def absence(name: str, environment: Environment) -> str:
    """Return why a baseline does not apply to an environment; empty where it does."""
    scenario = environment.scenario
    if name == ORCA:
        return ""
    if not isinstance(scenario, GoalScenario) or type(scenario).signals is not GoalScenario.signals:
        return "no fixed goal for each robot"
    if name == RRT:
        misses = bool(scenario.arena.obstacles) and importlib.util.find_spec("ompl") is None
        return "needs ompl: pip install 'testudo[planners]'" if misses else ""
    most = _ON_A_GRID[name].robots
    return f"more than {most} robots" if most is not None and environment.team.size > most else ""


def evaluate_baseline(
    name: str,
    environment: Environment,
    episodes: int,
    first_seed: int,
    on_progress: Callable[[int], None] | None = None,
    programs: Programs | None = None,
) -> Evaluation:
    """Run the episodes with a baseline of `BASELINES`; see `evaluate_policy`.

    A planner plans all episodes of a batch before the first of them moves; ``on_progress`` receives
    the number of plans, too.
    """
    missing = absence(name, environment)
    if missing:
        return Evaluation.not_run(environment, name, missing)
    if name == ORCA:
        found = evaluate_policy(OrcaEnvironment.of(environment), None, 0, episodes, first_seed, on_progress)
        return replace(found, policy=name)
    policy = planner_policy(name, environment, on_progress)
    found = evaluate_policy(environment, policy, policy.MEMORY, episodes, first_seed, on_progress, programs)
    no_plan = no_plan_text(name, environment)
    return replace(found, policy=name, without_plan=policy.without_plan, no_plan=no_plan)


def planner_policy(name: str, environment: Environment, on_plan: Callable[[int], None] | None = None) -> PlanFollower:
    """Return the policy of a planner that applies to an environment; ``on_plan`` receives how many are planned."""
    team = environment.team
    law = WaypointTracking(GAIN_PER_S, team.model.spec.control_point_speed_m_s)
    return PlanFollower(
        _planned_freely(environment) if name == RRT else _planned_on_a_grid(name, environment),
        team.size,
        team.tracking or law,
        _REACHED * _step_m(environment),
        commands_waypoints=team.tracking is not None,
        further_numbers=bool(team.yaw_rate_limit) + team.message_size,
        on_plan=on_plan,
    )


def no_plan_text(name: str, environment: Environment) -> str:
    """Return what a planner says of an episode without a plan."""
    return _rrt(environment).no_plan if name == RRT else _ON_A_GRID[name].no_plan


def _step_m(environment: Environment) -> float:
    """Return the step of the grid: that of way-points, and at least what the shield keeps between two robots."""
    team = environment.team
    return max(team.model.spec.control_point_speed_m_s * STEP_S, team.shield.separation_m + _EXTRA_M)


def _planned_on_a_grid(name: str, environment: Environment) -> PlanTeam:
    scenario, shield = environment.scenario, environment.team.shield
    assert isinstance(scenario, GoalScenario)  # noqa: S101 -- `absence` says so to the user
    grid = RoadmapOfArena.create(
        scenario.arena, scenario.room_m, _step_m(environment), shield.separation_m + _EXTRA_M, shield.height_ratio
    )
    planner = _ON_A_GRID[name]

    def plan(starts_world: np.ndarray, goals_world: np.ndarray, number: int) -> TeamPlan | None:
        roadmap = grid.roadmap(starts_world, goals_world)
        paths = planner.plan(roadmap, np.random.default_rng(number))
        points = np.concatenate([grid.grid_world, starts_world, goals_world])
        return None if paths is None else TeamPlan.of_paths(roadmap, points, paths)

    return plan


def _planned_freely(environment: Environment) -> PlanTeam:
    return partial(_ways, _rrt(environment))


def _rrt(environment: Environment) -> RrtStarPlanner:
    scenario = environment.scenario
    assert isinstance(scenario, GoalScenario)  # noqa: S101 -- `absence` says so to the user
    return RrtStarPlanner(scenario.arena, scenario.room_m)


def _ways(planner: RrtStarPlanner, starts_world: np.ndarray, goals_world: np.ndarray, number: int) -> TeamPlan | None:
    seeds = len(starts_world) * number + np.arange(len(starts_world))
    ways = [planner.plan(*ends) for ends in zip(starts_world, goals_world, seeds.tolist(), strict=True)]
    found = [way for way in ways if way is not None]
    return TeamPlan.of_ways(found) if len(found) == len(ways) else None
