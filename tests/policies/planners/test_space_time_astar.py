"""Plans of one robot after the other: no conflict, no way that is longer than it must be, and more than one order."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.planners.grids import conflicts_of, grid_roadmap

from testudo_policies.planners.space_time_astar import PrioritisedPlanner, find_path


@st.composite
def teams(draw, most=5, width=4, height=4):
    """Draw distinct starts and distinct goals on a grid, and a separation of up to a step."""
    size = draw(st.integers(2, most))
    cells = st.lists(st.integers(0, width * height - 1), min_size=size, max_size=size, unique=True)
    return grid_roadmap(width, height, draw(cells), draw(cells), separation_m=draw(st.sampled_from((0.5, 0.72, 0.99))))


@given(teams(), st.integers(0, 3))
def test_plans_have_no_conflict_and_lead_from_starts_to_goals(roadmap, seed):
    """Vertex, edge and following conflicts, by an oracle that looks at places at 101 moments of each step."""
    paths = PrioritisedPlanner().plan(roadmap, np.random.default_rng(seed))
    if paths is None:
        return
    assert conflicts_of(roadmap, paths) == []
    for path, start, goal in zip(paths, roadmap.starts, roadmap.goals, strict=True):
        assert (path[0], path[-1]) == (start, goal)
        assert all(there in [end for _, end in roadmap.moves_from[here]] for here, there in itertools.pairwise(path))


def free(roadmap):
    return np.zeros((roadmap.max_steps, len(roadmap.moves)), bool)


def test_a_robot_alone_takes_the_shortest_way_around_a_wall():
    """From 3 to 5, with a wall at 4: over 0, 1, 2 or over 6, 7, 8."""
    roadmap = grid_roadmap(3, 3, [3], [5], blocked=(4,))
    path = find_path(roadmap, 0, free(roadmap))
    assert len(path) == 5
    assert path in {(3, 0, 1, 2, 5), (3, 6, 7, 8, 5)}


def test_a_robot_rests_at_its_goal_only_when_nobody_passes_any_more():
    """The goal is taken at step 5: the robot comes later, though it could be there after two steps."""
    roadmap = grid_roadmap(3, 2, [0], [2])
    blocked = free(roadmap)
    blocked[5, 2] = True  # the stay at the goal
    path = find_path(roadmap, 0, blocked)
    assert len(path) - 1 == 6
    assert path[-1] == 2


def test_the_order_decides_whether_there_is_a_plan():
    """Robot 0 comes out of a bay to rest in the corridor that robot 1 goes through: it has to come second.

    0 1 2 3     robot 0 from 5 to 1, robot 1 from 3 to 0
    # 5 # #
    """
    roadmap = grid_roadmap(4, 2, [5, 3], [1, 0], blocked=(4, 6, 7))
    planner = PrioritisedPlanner()
    assert planner._in_order(roadmap, [0, 1]) is None
    paths = planner._in_order(roadmap, [1, 0])
    assert [len(path) - 1 for path in paths] == [3, 3]
    assert planner.plan(roadmap, np.random.default_rng(0)) == paths


def test_no_plan_is_none():
    """Two robots cannot change places in a corridor."""
    roadmap = grid_roadmap(3, 1, [0, 2], [2, 0])
    assert PrioritisedPlanner().plan(roadmap, np.random.default_rng(0)) is None


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_gives_the_same_plan(seed):
    roadmap = grid_roadmap(4, 4, [0, 3, 12, 15], [15, 12, 3, 0], separation_m=0.72)
    first, again = (PrioritisedPlanner().plan(roadmap, np.random.default_rng(seed)) for _ in range(2))
    assert first is not None
    assert first == again
