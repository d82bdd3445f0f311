"""Passages of a map: a door for one is found where it is; corridors for two, corners and open places are none."""

import math

import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena, Ball, Block
from testudo_deploy.shield.passages import beyond_walls, passages

UNIT, WALL = 0.3, 0.14
HALF = WALL + 0.25 * UNIT  # of the door
ROOM = ((-1.0, -1.0), (1.0, 1.0))


def door(turn_rad=0.0, half=HALF, long=1.0):
    """Return the two parts of a wall with a door in the middle, through which the way is turned by an angle."""
    across = np.array([-math.sin(turn_rad), math.cos(turn_rad)])
    return tuple(
        Block(tuple(float(x) for x in side * (half + long / 2) * across), (0.1, long / 2), turn_rad) for side in (-1, 1)
    )


@pytest.mark.parametrize("turn_rad", [0.0, math.radians(30), math.radians(90), math.radians(-45)])
def test_a_door_for_one_is_found_where_it_is(turn_rad):
    """By hand: places are free within a quarter of a separation, as far as the corners of the wall keep two apart."""
    (found,) = passages(Arena((-3.0, -3.0), (3.0, 3.0), door(turn_rad)), UNIT, WALL)
    axis = np.array([math.cos(turn_rad), math.sin(turn_rad)])
    assert found.centre_world == pytest.approx((0, 0), abs=0.05)
    assert abs(axis @ found.axis_world) == pytest.approx(1, abs=0.02)
    assert found.axis_world[0] > -1e-6
    assert found.half_length_m == pytest.approx(0.1 + 0.12, abs=0.05)
    assert found.half_width_m == pytest.approx(0.25 * UNIT, abs=0.04)


@pytest.mark.parametrize(
    "arena",
    [
        None,
        Arena(*ROOM),
        Arena((-3.0, -WALL - 0.6 * UNIT), (3.0, WALL + 0.6 * UNIT), (Ball((2.9, 0.0), 0.05),)),  # two can just pass
        Arena(*ROOM, door(half=WALL + 0.6 * UNIT)),
        Arena(*ROOM, door(half=0.9 * WALL)),  # nobody fits through
        Arena((*ROOM[0], 0.0), (*ROOM[1], 2.0), (Ball((0.0, 0.0, 1.0), 0.2),)),
    ],
)
def test_what_is_no_passage(arena):
    assert passages(arena, UNIT, WALL) == ()


def test_two_doors_are_two_passages():
    wall = [Block((0.0, y), (0.1, half), 0.0) for y, half in ((-2.0, 1.0 - HALF), (0.0, 1.0 - HALF), (2.0, 1.0 - HALF))]
    found = passages(Arena((-3.0, -3.0), (3.0, 3.0), tuple(wall)), UNIT, WALL)
    assert sorted(round(passage.centre_world[1], 1) for passage in found) == [-1, 1]


def test_what_is_missing_to_the_walls_is_as_drawn():
    arena = Arena(*ROOM, (Ball((0.0, 0.0), 0.2),))
    places = np.array([[0.5, 0.95, 0.3], [0.0, 0.0, 0.0]])
    assert beyond_walls(0.15, arena, places) == pytest.approx([0, 0.1, 0.05])
