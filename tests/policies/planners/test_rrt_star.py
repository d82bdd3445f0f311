"""RRT* tends to the shortest way round a disc, which is known by hand."""

import importlib.util
import math

import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena, Ball, Block, segment_clearance
from testudo_policies.planners.rrt_star import RrtStarPlanner

DISC = Arena((-1.0, -1.0), (1.0, 1.0), (Ball((0.0, 0.0), 0.4),))
START, GOAL = np.array([-0.85, 0.0]), np.array([0.85, 0.0])
ROOM_M = 0.1  # the disc that the way goes round has a radius of 0.5 m

needs_ompl = pytest.mark.skipif(importlib.util.find_spec("ompl") is None, reason="the extra `planners` is missing")


def length(points):
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


@needs_ompl
def test_the_way_round_a_disc_tends_to_tangents_and_an_arc():
    """Both tangents are sqrt(0.85² - 0.5²) m long; between them the arc takes pi - 2 acos(0.5 / 0.85)."""
    shortest = 2 * math.sqrt(0.85**2 - 0.5**2) + 0.5 * (math.pi - 2 * math.acos(0.5 / 0.85))
    few, many = (
        np.array([length(RrtStarPlanner(DISC, ROOM_M, samples).plan(START, GOAL, seed)) for seed in (0, 1)])
        for samples in (150, 1000)
    )
    assert few.min() > shortest - 0.02  # OMPL checks motions at places, not all along
    assert many.max() < 1.03 * shortest
    assert many.mean() < few.mean()


@needs_ompl
def test_the_way_keeps_its_room_and_depends_on_the_seed_alone():
    planner = RrtStarPlanner(DISC, ROOM_M, 500)
    first, other, again = (planner.plan(START, GOAL, seed) for seed in (3, 4, 3))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(first[0], START)
    assert first[-1] == pytest.approx(GOAL, abs=2e-3)
    assert segment_clearance(DISC.obstacles[0], first[:-1].T, first[1:].T).min() > ROOM_M - 0.01


@needs_ompl
def test_a_goal_behind_a_wall_has_no_way():
    wall = Arena(DISC.low_world, DISC.high_world, (Block((0.0, 0.0), (0.05, 1.2), 0.0),))
    assert RrtStarPlanner(wall, ROOM_M, 200).plan(START, GOAL, 0) is None


def test_a_free_straight_way_needs_no_tree():
    ends = np.array([[-0.9, 0.9], [0.9, 0.9]])
    assert np.array_equal(RrtStarPlanner(DISC, ROOM_M).plan(*ends, 0), ends)
