"""Maps of square cells, of which some are walls: open fields with squares, mazes with rooms, caves, halls with shelves.

A map is a (n, n) array of bool, True for a wall, x first. Every function draws with the generator that it is given.
"""

from dataclasses import dataclass

import numpy as np

_STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))
_ROOM_TRIES = 500
_CAVE_ROUNDS = 4
_CAVE_FILL = 0.4  # share of walls before the rounds
_SHELF, _AISLE = (5, 1), (1, 2)  # cells along x and y
_SHELF_LEFT_OUT = 0.1  # share of shelves that are not there


def random_squares(rng: np.random.Generator, cells: int, share: float) -> np.ndarray:
    """Return a field in which a share of the cells, drawn, are walls: `random_grid` of CAMAR (arXiv 2508.12845)."""
    walls = np.zeros(cells * cells, bool)
    walls[rng.permutation(cells * cells)[: int(share * cells * cells)]] = True
    return walls.reshape(cells, cells)


@dataclass(frozen=True)
class RoomSizes:
    """Rooms of a maze: sides in cells, odd numbers from the least to the largest."""

    least: int = 5
    largest: int = 9


def rooms_and_corridors(
    rng: np.random.Generator, cells: int, extra: float, rooms: RoomSizes = RoomSizes()
) -> np.ndarray:
    """Return a maze of rooms and corridors without dead ends, as DeepMind's labmaze and CAMAR's `labmaze_grid`.

    Rooms are placed where they fit; corridors one cell wide fill the rest; each region is joined to the others by a
    door, and each further place for a door becomes one with the probability ``extra`` unless it is beside a door; dead
    ends are filled (Nystrom, Rooms and Mazes, 2014).

    Args:
        rng: the generator of random numbers.
        cells: odd number of cells along each side; the outermost are walls.
        extra: probability of further doors.
        rooms: sizes of the rooms.
    """
    region = np.full((cells, cells), -1)
    count = _place_rooms(rng, region, rooms)
    for i in range(1, cells, 2):
        for j in range(1, cells, 2):
            if region[i, j] < 0:
                _grow_corridors(rng, region, (i, j), count)
                count += 1
    walls = region < 0
    _open_doors(rng, region, walls, extra)
    _fill_dead_ends(walls)
    return walls


def _place_rooms(rng: np.random.Generator, region: np.ndarray, rooms: RoomSizes) -> int:
    """Write the numbers of rooms that do not touch into ``region``, and return how many there are."""
    cells, count = region.shape[0], 0
    for _ in range(_ROOM_TRIES):
        size = rooms.least + 2 * rng.integers(0, (rooms.largest - rooms.least) // 2 + 1, 2)
        corner = 1 + 2 * rng.integers(0, np.maximum((cells - size) // 2, 1))
        if np.any(corner + size > cells - 1):
            continue
        around = region[corner[0] - 1 : corner[0] + size[0] + 1, corner[1] - 1 : corner[1] + size[1] + 1]
        if np.all(around < 0):
            around[1:-1, 1:-1] = count
            count += 1
    return count


def _grow_corridors(rng: np.random.Generator, region: np.ndarray, first: tuple[int, int], number: int) -> None:
    """Fill the free odd cells that can be reached from the first with corridors, the newest cell first."""
    region[first] = number
    path = [first]
    while path:
        i, j = path[-1]
        free = [
            (a, b)
            for a, b in _STEPS
            if 0 < i + 2 * a < region.shape[0] and 0 < j + 2 * b < region.shape[1] and region[i + 2 * a, j + 2 * b] < 0
        ]
        if not free:
            path.pop()
            continue
        a, b = free[rng.integers(len(free))]
        region[i + a, j + b] = region[i + 2 * a, j + 2 * b] = number
        path.append((i + 2 * a, j + 2 * b))


def _open_doors(rng: np.random.Generator, region: np.ndarray, walls: np.ndarray, extra: float) -> None:
    """Open one door between regions that are not joined yet, and others with a probability."""
    joined = np.arange(region.max() + 1)
    inner = np.argwhere(walls[1:-1, 1:-1]) + 1
    for i, j in rng.permutation(inner):
        for a, b in ((1, 0), (0, 1)):
            one, other = region[i - a, j - b], region[i + a, j + b]
            if one < 0 or other < 0 or one == other:
                continue
            first, second = joined[one], joined[other]
            beside = any(not walls[i + x, j + y] and region[i + x, j + y] < 0 for x, y in _STEPS)
            if first != second or (rng.random() < extra and not beside):
                walls[i, j] = False
                joined[joined == second] = first


def _fill_dead_ends(walls: np.ndarray) -> None:
    """Fill free cells with at most one free cell beside them, until there are none."""
    while True:
        ends = ~walls & (sum(~np.roll(walls, step, (0, 1)) for step in _STEPS) <= 1)
        if not ends.any():
            return
        walls |= ends


def caves(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Return caves: noise in which, some rounds long, a cell becomes what most of the nine around it are.

    Only the largest connected part is left open.
    """
    walls = rng.random((cells, cells)) < _CAVE_FILL
    for _ in range(_CAVE_ROUNDS):
        framed = np.pad(walls, 1, constant_values=True).astype(int)
        around = np.sum([np.roll(framed, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)], axis=0)
        walls = around[1:-1, 1:-1] >= 5
    return ~_largest_part(~walls)


def _largest_part(free: np.ndarray) -> np.ndarray:
    """Return the largest part of free cells that are connected by their sides."""
    left, best = free.copy(), np.zeros_like(free)
    while left.any():
        part = np.zeros_like(free)
        part[tuple(np.argwhere(left)[0])] = True
        while True:
            framed = np.pad(part, 1)
            grown = free & (part | np.any([np.roll(framed, step, (0, 1))[1:-1, 1:-1] for step in _STEPS], axis=0))
            if np.array_equal(grown, part):
                break
            part = grown
        left &= ~part
        best = part if part.sum() > best.sum() else best
    return best


def shelves(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Return a warehouse: shelves along x, aisles of one cell across and two along them; some shelves are missing."""
    walls = np.zeros((cells, cells), bool)
    (long, wide), (across, along) = _SHELF, _AISLE
    for i in range(along, cells - along - long + 1, long + across):
        for j in range(along, cells - along - wide + 1, wide + along):
            walls[i : i + long, j : j + wide] = rng.random() >= _SHELF_LEFT_OUT
    return walls


def rectangles(walls: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return rectangles (first i, first j, cells along i, cells along j) that cover the walls and nothing else.

    They may overlap: each is as large as it can be from the first cell that is not covered yet.
    """
    covered = ~walls
    found: list[tuple[int, int, int, int]] = []
    while not covered.all():
        i, j = (int(x) for x in np.argwhere(~covered)[0])
        shapes = []
        for turned in (False, True):
            view, at = (walls.T, (j, i)) if turned else (walls, (i, j))
            long = int(np.argmin(np.append(view[at[0] :, at[1]], False)))
            rows = np.append(np.all(view[at[0] : at[0] + long, at[1] :], axis=0), False)
            wide = int(np.argmin(rows))
            shapes.append((wide, long) if turned else (long, wide))
        size = max(shapes, key=lambda shape: shape[0] * shape[1])
        covered[i : i + size[0], j : j + size[1]] = True
        found.append((i, j, *size))
    return found
