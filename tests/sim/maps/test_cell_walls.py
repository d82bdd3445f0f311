"""Generators of maps: equal seeds give equal maps, and each kind is what its name says."""

import numpy as np
import pytest

from testudo_deploy.shield.arena import Ball, Block, Capsule, check_obstacle, clearances, groups_of
from testudo_hardware.errors import TestudoError
from testudo_sim.maps.cell_walls import caves, random_squares, rectangles, rooms_and_corridors, shelves
from testudo_sim.maps.named_maps import CELLS, MAPS, map_obstacles

SIDE_M = 10.0


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_equal_for_equal_seeds_and_is_inside_its_square(name):
    found = map_obstacles(f"{name}:3", SIDE_M)
    assert found == map_obstacles(f"{name}:3", SIDE_M)
    assert name == "camar_random_grid_0" or found != map_obstacles(name, SIDE_M)
    for obstacle in found:
        check_obstacle(obstacle, 2, name)
        places = [
            getattr(obstacle, key) for key in ("centre_world", "start_world", "end_world") if hasattr(obstacle, key)
        ]
        assert np.abs(places).max() <= SIDE_M / 2 + 1e-9


def parts(walls):
    """Return how many parts of free cells there are that are not connected by their sides."""
    left, count = {(int(i), int(j)) for i, j in np.argwhere(~walls)}, 0
    while left:
        edge = [left.pop()]
        while edge:
            i, j = edge.pop()
            near = {(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)} & left
            left -= near
            edge += near
        count += 1
    return count


@pytest.mark.parametrize("seed", range(8))
def test_mazes_and_caves_are_one_part_and_mazes_have_no_dead_ends(seed):
    few, many = (rooms_and_corridors(np.random.default_rng(seed), CELLS, extra) for extra in (0.0, 1.0))
    for walls in (few, many, caves(np.random.default_rng(seed), CELLS)):
        assert parts(walls) == 1
        assert 0.2 < walls.mean() < 0.8
    for walls in (few, many):
        assert walls[[0, -1]].all()
        assert walls[:, [0, -1]].all()
        ways = sum(np.roll(~walls, step, (0, 1)) for step in ((1, 0), (-1, 0), (0, 1), (0, -1)))
        assert ways[~walls].min() >= 2
    assert many.sum() < few.sum()  # more doors


def test_a_field_has_the_share_of_squares_and_a_hall_its_aisles():
    assert random_squares(np.random.default_rng(0), 20, 0.15).sum() == 60
    hall = shelves(np.random.default_rng(0), CELLS)
    assert not hall[:2].any()
    assert not (hall[:, :-1] & hall[:, 1:]).any()  # no shelf beside another across the aisle


@pytest.mark.parametrize("seed", range(5))
def test_rectangles_cover_the_walls_and_nothing_else(seed):
    walls = np.random.default_rng(seed).random((9, 7)) < 0.5
    again = np.zeros_like(walls)
    for i, j, a, b in rectangles(walls):
        again[i : i + a, j : j + b] = True
    assert (again == walls).all()
    assert len(rectangles(np.ones((9, 7), bool))) == 1


def test_the_squares_of_a_field_are_its_cells_and_the_walls_of_a_braided_maze_are_thin():
    field, maze = map_obstacles("camar_random_grid_20", SIDE_M), map_obstacles("maze", SIDE_M)
    assert {type(one) for one in field} == {Block}
    area = sum(4 * one.half_size_m[0] * one.half_size_m[1] for one in field)
    assert area == pytest.approx(20 * (SIDE_M / 20) ** 2)
    assert {type(one) for one in maze} == {Capsule}
    assert {one.radius_m for one in maze} == {0.12 * SIDE_M / CELLS}
    discs = map_obstacles("random_discs", SIDE_M)
    assert {type(one) for one in discs} == {Ball}
    gaps = [clearances(groups_of(tuple(discs[:k])), np.array(discs[k].centre_world))[0].min() for k in range(1, 40)]
    assert min(gap - one.radius_m for gap, one in zip(gaps, discs[1:], strict=True)) >= SIDE_M / CELLS - 1e-9


@pytest.mark.parametrize(
    ("name", "text"),
    [("moon", "--map: found 'moon', expected NAME or NAME:SEED; known are camar"), ("maze:x", "a whole number")],
)
def test_what_is_no_map_is_refused(name, text):
    with pytest.raises(TestudoError, match=text):
        map_obstacles(name, SIDE_M)
