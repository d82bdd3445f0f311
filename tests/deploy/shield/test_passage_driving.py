"""Robots at a door for one, as points that move as the rule says unless they would be too near: all get through."""

import numpy as np
import pytest

from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.shield.arena import Arena, Block
from testudo_deploy.shield.passages import beyond_walls
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.spec import load_robot

PERIOD_S, TOP = 0.1, 0.2
SHIELD = projection_parameters(load_robot("gritsbot_x"))
UNIT, WALL = SHIELD.separation_m, SHIELD.wall_m
HALF = WALL + 0.25 * UNIT
DOOR = Arena(
    (-1.5, -1.5),
    (1.5, 1.5),
    tuple(Block((0.0, side * (0.75 + HALF / 2)), (0.1, 0.75 - HALF / 2), 0.0) for side in (-1, 1)),
)


def nominal(place, goal):
    """Return the velocity towards the goal, by way of the door if that is between."""
    beyond = abs(goal[0]) > 0.3
    target = goal
    if beyond and (place[0] * goal[0] < 0 or (abs(place[0]) < 0.3 and abs(place[1]) < 0.1)):
        side = np.sign(goal[0])
        target = np.array([0.4 * side if abs(place[1]) < 0.06 else -0.3 * side, 0.0])
    way = target - place
    return way * min(TOP / (np.linalg.norm(way) + 1e-9), 1.5)


def drive(places, goals, seconds):
    """Return where the robots are after some time."""
    places, goals = np.array(places, float), np.array(goals, float)
    count = len(places)
    rules = [DeadlockResolver(SHIELD, DOOR, PERIOD_S, 2) for _ in places]
    wanted, moved = np.zeros((2, count, 2))
    for _ in range(round(seconds / PERIOD_S)):
        before, said, driven = places.copy(), wanted.copy(), moved.copy()
        for k, rule in enumerate(rules):
            others = [j for j in range(count) if j != k]
            table = PeerTable(
                before[others].T,
                driven[others].T,
                np.full(count - 1, 0.01),
                np.ones(count - 1, bool),
                wanted_world=said[others].T,
            )
            first = np.array([k < j for j in others])
            velocity = rule.resolved(before[k], table, first, nominal(before[k], goals[k]))
            wanted[k], moved[k] = rule.wanted_world, 0.0
            for share in ((1.0, 1.0), (0.5, 0.5), (1.0, 0.0), (0.0, 1.0)):  # walls and others let it slide
                after = before[k] + share * velocity * PERIOD_S
                apart = np.linalg.norm(places[others] - after, axis=1)
                nearer = apart < np.linalg.norm(places[others] - before[k], axis=1)
                if beyond_walls(WALL, DOOR, after) <= 0 and not np.any((apart < UNIT) & nearer):
                    places[k], moved[k] = after, share * velocity
                    break
            rule.moved(moved[k])
    return np.linalg.norm(places - goals, axis=1)


def test_two_from_each_side_pass():
    places = [(-0.9, 0.3), (0.9, -0.32), (-0.9, -0.3), (0.9, 0.33)]
    goals = [(1.2, 0.9), (-1.2, -0.9), (1.2, -0.9), (-1.2, 0.9)]
    assert drive(places, goals, 40.0) == pytest.approx(0, abs=0.02)


def test_one_that_stands_in_the_door_lets_others_pass_and_returns():
    away = drive([(0.05, 0.0), (-1.0, 0.1)], [(0.05, 0.0), (1.2, 0.6)], 40.0)
    assert away == pytest.approx(0, abs=0.02)
