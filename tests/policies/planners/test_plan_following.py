"""Robots that follow plans keep their order, whatever delays them, and none waits for ever."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.policies.planners.grids import grid_roadmap

from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_policies.planners.plan_following import PlanFollower, TeamPlan
from testudo_policies.planners.space_time_astar import PrioritisedPlanner

LAW = WaypointTracking(0.8, 0.2)
REACH_M = 0.25


def follower(plans, **options):
    """Return the follower of plans by number; of velocities, or of way-points."""
    size = next(len(plan.points_world) for plan in plans if plan)
    options = {"commands_waypoints": True} | options
    return PlanFollower(lambda _starts, _goals, number: plans[number], size, LAW, REACH_M, **options)


def planned(roadmap):
    paths = PrioritisedPlanner().plan(roadmap, np.random.default_rng(0))
    return None if paths is None else TeamPlan.of_paths(roadmap, roadmap.points, paths)


def starts_of(plan):
    return np.array([points[0] for points in plan.points_world])


def decide(policy, places, hidden=None):
    """Return the commands and the memory at places (B, 2)."""
    memory = np.zeros((len(places), PlanFollower.MEMORY)) if hidden is None else hidden
    return policy({"control_point_world": places, "goal_world": np.zeros_like(places)}, memory)


@given(st.data())
@settings(max_examples=examples(30))
def test_all_arrive_whatever_delays_them(data):
    """At each decision a part of the robots, drawn at random, does not move at all."""
    size = data.draw(st.integers(2, 5))
    cells = st.lists(st.integers(0, 15), min_size=size, max_size=size, unique=True)
    plan = planned(grid_roadmap(4, 4, data.draw(cells), data.draw(cells)))
    if plan is None:
        return
    random, policy = np.random.default_rng(data.draw(st.integers(0, 9))), follower([plan])
    places, hidden = starts_of(plan), None
    for _ in range(400):
        waypoint, hidden = decide(policy, places, hidden)
        moves = random.random(size) < 0.5
        places = np.where(moves[:, None], places + np.clip(waypoint - places, -0.2, 0.2), places)
    goals = np.array([points[-1] for points in plan.points_world])
    np.testing.assert_allclose(places, goals, atol=1e-5)


def test_a_robot_waits_until_the_other_has_passed():
    """Both go through the middle of a cross, robot 0 at step 1, robot 1 one or two steps later.

    . 1 .
    3 4 5     robot 0 from 3 to 5, robot 1 from 1 to 7
    . 7 .
    """
    roadmap = grid_roadmap(3, 3, [3, 1], [5, 7], blocked=(0, 2, 6, 8), separation_m=0.72)
    plan = planned(roadmap)
    first = next(k for k in range(2) if not plan.after[k].any())
    policy, places = follower([plan]), starts_of(plan)
    hidden, other = None, 1 - first
    for _ in range(3):  # the first stands, out of order: the other does not go before it
        waypoint, hidden = decide(policy, places, hidden)
        np.testing.assert_allclose(waypoint[other], places[other])
        assert np.linalg.norm(waypoint[first] - places[first]) >= 1
    places[first] = plan.points_world[first][-1]
    for place in ((1.0, 1.0), (2.0, 1.0)) if first == 0 else ((1.0, 1.0), (1.0, 2.0)):
        places[first] = place
        waypoint, hidden = decide(policy, places, hidden)
    assert np.linalg.norm(waypoint[other] - places[other]) >= 1


def test_moves_in_one_direction_are_driven_without_slowing_down():
    ways = [np.array([[0.0, 0], [1, 0], [2, 0], [2, 1]])]
    waypoint, _ = decide(follower([TeamPlan.of_ways(ways)]), np.zeros((1, 2)))
    np.testing.assert_allclose(waypoint, [[2.0, 0.0]])


def test_each_world_keeps_its_plan_when_others_end():
    plans = [TeamPlan.of_ways([np.array([[0.0, 0], [x, 0]]), np.array([[0.0, 5], [x, 5]])]) for x in (1.0, 2.0, 3.0)]
    policy, places = follower(plans), np.tile([[0.0, 0.0], [0.0, 5.0]], (3, 1))
    waypoint, hidden = decide(policy, places)
    again, _ = decide(policy, places[4:], hidden[4:])  # the third world alone
    np.testing.assert_allclose(waypoint[:, 0], [1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(again, waypoint[4:])


def test_without_a_plan_robots_stand_and_it_is_counted():
    plans, planned_up_to = [None, TeamPlan.of_ways([np.array([[0.0, 0], [1, 0]])])], []
    policy = follower(plans, commands_waypoints=False, further_numbers=1, on_plan=planned_up_to.append)
    command, _ = decide(policy, np.zeros((2, 2)))
    np.testing.assert_allclose(command, [[0, 0, 0], [0.2, 0, 0]], atol=1e-6)
    assert policy.without_plan == 1
    assert planned_up_to == [1, 2]
