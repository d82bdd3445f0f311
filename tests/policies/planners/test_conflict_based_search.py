"""Conflict-based search against a search over all joint places: same sum of steps, and no plan where there is none."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.policies.planners.grids import conflicts_of, grid_roadmap, least_sum_of_steps

from testudo_policies.planners.conflict_based_search import ConflictBasedPlanner


@st.composite
def tiny_teams(draw):
    """Draw two or three robots on a grid of 3 x 3 with up to two blocked cells, and a separation."""
    size = draw(st.integers(2, 3))
    blocked = draw(st.lists(st.integers(0, 8), max_size=2, unique=True))
    cells = st.lists(
        st.sampled_from([k for k in range(9) if k not in blocked]), min_size=size, max_size=size, unique=True
    )
    separation_m = draw(st.sampled_from((0.5, 0.72)))
    return grid_roadmap(3, 3, draw(cells), draw(cells), blocked=blocked, separation_m=separation_m, max_steps=16)


@given(tiny_teams())
@example(grid_roadmap(3, 2, [0, 2], [2, 0], max_steps=16))  # one has to make way
@example(grid_roadmap(2, 2, [0, 1, 3], [1, 3, 2], max_steps=16))  # all turn round at once
@settings(max_examples=examples(40))
def test_the_sum_of_steps_is_the_least_on_the_grid(roadmap):
    best = least_sum_of_steps(roadmap)
    paths = ConflictBasedPlanner(nodes=300).plan(roadmap, np.random.default_rng(0))
    if paths is None:
        alone = [roadmap.steps_to(goal)[start] for start, goal in zip(roadmap.starts, roadmap.goals, strict=True)]
        assert best is None or best - sum(alone) > 4, "the nodes suffice where few steps are lost"
        return
    assert conflicts_of(roadmap, paths) == []
    assert sum(len(path) - 1 for path in paths) == best


def test_crossing_robots_are_planned_within_few_nodes():
    roadmap = grid_roadmap(4, 4, [0, 3, 12, 15], [15, 12, 3, 0])
    paths = ConflictBasedPlanner(nodes=50).plan(roadmap, np.random.default_rng(0))
    assert sum(len(path) - 1 for path in paths) == 24  # 4 x 6: all at their shortest


def test_without_a_plan_the_nodes_run_out():
    roadmap = grid_roadmap(3, 1, [0, 2], [2, 0])
    planner = ConflictBasedPlanner(nodes=20)
    assert planner.plan(roadmap, np.random.default_rng(0)) is None
    assert planner.no_plan == "no plan found in 20 nodes"
