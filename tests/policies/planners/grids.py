"""Plain grids with edges of 1 m, on which a separation of half a step gives the usual vertex and edge conflicts."""

import heapq
import itertools

import numpy as np

from testudo_policies.planners.roadmap import Roadmap


def grid_roadmap(width, height, starts, goals, *, blocked=(), separation_m=0.5, max_steps=24):
    """Return the roadmap of a grid without the blocked vertices; robots and vertices are numbered by rows."""
    cells = [(x, y) for y in range(height) for x in range(width)]
    number = {cell: k for k, cell in enumerate(cells)}
    free = [cell for cell in cells if number[cell] not in blocked]
    edges = [
        (number[x, y], number[x + dx, y + dy])
        for x, y in free
        for dx, dy in ((1, 0), (0, 1))
        if (x + dx, y + dy) in number and number[x + dx, y + dy] not in blocked
    ]
    made = Roadmap.create(np.array(cells, float), np.array(edges).reshape(-1, 2), separation_m, max_steps)
    return made.with_team(tuple(starts), tuple(goals))


def least_sum_of_steps(roadmap, most=40):
    """Return the least sum of steps of all robots by a search over all joint places, or None.

    A state is the places and which robots rest permanently; a step costs one for each robot that has not.
    """
    size = len(roadmap.starts)
    number = {tuple(move): k for k, move in enumerate(roadmap.moves.tolist())}
    queue, seen = [(0, roadmap.starts, (False,) * size)], set()
    while queue:
        cost, places, rests = heapq.heappop(queue)
        if all(rests):
            return cost
        if (places, rests) in seen or cost > most:
            continue
        seen.add((places, rests))
        for robot in range(size):  # to come to rest costs nothing
            if not rests[robot] and places[robot] == roadmap.goals[robot]:
                heapq.heappush(queue, (cost, places, (*rests[:robot], True, *rests[robot + 1 :])))
        options = [
            [(number[here, here], here)] if rest else roadmap.moves_from[here]
            for here, rest in zip(places, rests, strict=True)
        ]
        for chosen in itertools.product(*options):
            moves = [move for move, _ in chosen]
            if any(roadmap.conflicts[a, b] for a, b in itertools.combinations(moves, 2)):
                continue
            heapq.heappush(queue, (cost + size - sum(rests), tuple(there for _, there in chosen), rests))
    return None


def conflicts_of(roadmap, paths, steps=60):
    """Return the steps and pairs of robots that come too near, by the geometry of straight moves at constant speed.

    An oracle beside `Roadmap.conflicts`: places at many moments of each step.
    """
    held = np.array([[*path, *[path[-1]] * (steps + 1 - len(path))] for path in paths])
    share = np.linspace(0, 1, 101)[:, None, None, None]
    points = roadmap.points[held]  # (N, steps + 1, D)
    places = points[:, :-1] * (1 - share) + points[:, 1:] * share  # (101, N, steps, D)
    return [
        (int(step), first, second)
        for first, second in itertools.combinations(range(len(paths)), 2)
        for step in np.flatnonzero(
            np.linalg.norm(places[:, first] - places[:, second], axis=-1).min(axis=0) < roadmap.separation_m - 1e-3
        )
    ]
