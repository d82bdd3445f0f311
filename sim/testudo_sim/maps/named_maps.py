"""Maps by name, as obstacles in a square of a given side; NAME:SEED draws another one of a kind.

Those of CAMAR (arXiv 2508.12845) have its numbers of cells, shares of squares and probabilities of doors. Cells fill
the square, so that how wide a corridor is follows from the side.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from testudo_deploy.shield.arena import Ball, Block, Capsule, Obstacle
from testudo_hardware.errors import TestudoError
from testudo_sim.maps.cell_walls import caves, random_squares, rectangles, rooms_and_corridors, shelves

CELLS = 21
"""Cells along a side of the maps with the narrowest corridors, which are one cell wide."""
_FIELD = 20  # cells along a side of CAMAR's random grid
_DISCS, _DISC_TRIES = 40, 2000
_DISC_CELLS = (0.4, 1.2)  # least and largest radius, in cells
_POSTS = 12  # cells of the braided maze along a side
_BRAID = 0.6  # share of its dead ends that are opened
_WALL = 0.12  # half of the thickness of its walls, in cells of the map


def _cells(
    make: Callable[[np.random.Generator], np.ndarray], rng: np.random.Generator, side_m: float
) -> list[Obstacle]:
    """Return the walls of a map of cells as boxes."""
    walls = make(rng)
    cell = side_m / walls.shape[0]
    return [
        Block(
            (float((i + a / 2) * cell - side_m / 2), float((j + b / 2) * cell - side_m / 2)),
            (a * cell / 2, b * cell / 2),
            0.0,
        )
        for i, j, a, b in rectangles(walls)
    ]


def _random_discs(rng: np.random.Generator, side_m: float) -> list[Obstacle]:
    """Return discs that leave the way of a cell between each other."""
    cell = side_m / CELLS
    found: list[Obstacle] = []
    places: list[np.ndarray] = []
    for _ in range(_DISC_TRIES):
        radius = float(rng.uniform(*_DISC_CELLS) * cell)
        place = rng.uniform(-side_m / 2, side_m / 2, 2)
        if all(np.hypot(*(place - at[:2])) >= radius + at[2] + cell for at in places):
            places.append(np.array([*place, radius]))
            found.append(Ball((float(place[0]), float(place[1])), radius))
        if len(found) == _DISCS:
            break
    return found


def _braided_maze(rng: np.random.Generator, side_m: float) -> list[Obstacle]:
    """Return a maze of thin walls, capsules, of whose dead ends most are opened."""
    walls = _braided_walls(rng)
    step, radius = side_m / _POSTS, _WALL * side_m / CELLS
    found: list[Obstacle] = []
    for turned in (False, True):
        lines = walls[1] if turned else walls[0]
        for k, line in enumerate(lines, start=1):
            edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]).astype(int)))
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                ends = [(float(k * step - side_m / 2), float(at * step - side_m / 2)) for at in (begin, end)]
                first, last = ((y, x) if turned else (x, y) for x, y in ends)
                found.append(Capsule(first, last, radius))
    return found


def _braided_walls(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return which walls between cells of a braided maze stand: across x and across y, (n - 1, n) each."""
    across = [np.ones((_POSTS - 1, _POSTS), bool) for _ in range(2)]

    def wall(cell: tuple[int, int], step: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]] | None:
        beyond = (cell[0] + step[0], cell[1] + step[1])
        if not all(0 <= at < _POSTS for at in beyond):
            return None
        i, j = min(cell[0], beyond[0]), min(cell[1], beyond[1])
        return (across[0], (i, j)) if step[0] else (across[1], (j, i))

    steps = ((1, 0), (-1, 0), (0, 1), (0, -1))
    path, seen = [(0, 0)], {(0, 0)}
    while path:
        i, j = path[-1]
        free = [(a, b) for a, b in steps if (i + a, j + b) not in seen and wall((i, j), (a, b)) is not None]
        if not free:
            path.pop()
            continue
        step = free[rng.integers(len(free))]
        lines, at = wall((i, j), step) or (across[0], (0, 0))
        lines[at] = False
        path.append((i + step[0], j + step[1]))
        seen.add(path[-1])
    for cell in np.ndindex(_POSTS, _POSTS):
        standing = [found for step in steps if (found := wall((cell[0], cell[1]), step)) and found[0][found[1]]]
        inner = sum(wall((cell[0], cell[1]), step) is not None for step in steps)
        if len(standing) == inner - 1 and rng.random() < _BRAID:
            lines, at = standing[rng.integers(len(standing))]
            lines[at] = False
    return across[0], across[1]


_Generator = Callable[[np.random.Generator, float], list[Obstacle]]
MAPS: Mapping[str, _Generator] = {
    **{
        f"camar_random_grid_{round(400 * share)}": partial(_cells, partial(random_squares, cells=_FIELD, share=share))
        for share in (0.0, 0.05, 0.15)
    },
    **{
        f"camar_labmaze_{round(100 * extra)}": partial(_cells, partial(rooms_and_corridors, cells=CELLS, extra=extra))
        for extra in (0.4, 0.65, 1.0)
    },
    "random_discs": _random_discs,
    "maze": _braided_maze,
    "caves": partial(_cells, partial(caves, cells=CELLS)),
    "shelves": partial(_cells, partial(shelves, cells=CELLS)),
}
"""Generators by name: (random numbers, side [m]) to obstacles in a square about the origin."""


def map_obstacles(name: str, side_m: float, where: str = "--map") -> tuple[Obstacle, ...]:
    """Return the obstacles of a map NAME or NAME:SEED (the seed is 0 without one) in a square of a side [m].

    Raises:
        TestudoError: the name is not known, or the seed is no number from 0 on.
    """
    kind, _, seed = name.partition(":")
    if kind not in MAPS:
        raise TestudoError(f"{where}: found {name!r}, expected NAME or NAME:SEED; known are {', '.join(MAPS)}")
    if seed and not (seed.isascii() and seed.isdecimal()):
        raise TestudoError(f"{where}: found {name!r}, expected a whole number from 0 on as its seed, as {kind}:3")
    return tuple(MAPS[kind](np.random.default_rng(int(seed or 0)), side_m))
