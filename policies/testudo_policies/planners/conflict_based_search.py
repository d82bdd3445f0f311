"""Conflict-based search: Sharon, Stern, Felner and Sturtevant, Artificial Intelligence 219 (2015).

The paths of a node are shortest under the node's constraints. Where two of them conflict, one of two children forbids
the one robot its part of the conflict, the other the other robot. Nodes are taken by the sum of their steps, so that
the first without a conflict has the least sum on the roadmap.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from testudo_policies.planners.roadmap import Path, Roadmap
from testudo_policies.planners.space_time_astar import find_path, meetings

_Constraints = frozenset[tuple[int, int, int]]
"""Robot, step, and the move that it must not make."""


@dataclass(frozen=True)
class ConflictBasedPlanner:
    """Plans for all robots together."""

    nodes: int = 500  # nodes that are looked at
    robots: int | None = 8  # largest team: the number of nodes grows exponentially with it

    @property
    def no_plan(self) -> str:
        """Return what to say of an episode without a plan."""
        return f"no plan found in {self.nodes} nodes"

    def plan(self, roadmap: Roadmap, random: np.random.Generator) -> list[Path] | None:
        """Return paths without conflicts and with the least sum of steps; None if the nodes do not suffice."""
        paths = [self._path(roadmap, robot, frozenset(), []) for robot in range(len(roadmap.starts))]
        root = [path for path in paths if path is not None]
        if len(root) < len(paths):
            return None
        queue = [(*_cost(roadmap, root), 0, root, frozenset())]
        made = 0
        for _ in range(self.nodes):
            if not queue:
                return None
            _, pairs, _, found, constraints = heapq.heappop(queue)
            if not pairs:
                return found
            for forbidden in _children(roadmap, found):
                robot = next(iter(forbidden))[0]
                both = constraints | forbidden
                path = self._path(roadmap, robot, both, [p for k, p in enumerate(found) if k != robot])
                if path is not None:
                    made += 1
                    changed = [*found[:robot], path, *found[robot + 1 :]]
                    heapq.heappush(queue, (*_cost(roadmap, changed), made, changed, both))
        return None

    def _path(self, roadmap: Roadmap, robot: int, constraints: _Constraints, others: list[Path]) -> Path | None:
        blocked = np.zeros((roadmap.max_steps, len(roadmap.moves)), bool)
        for which, step, move in constraints:
            if which == robot:
                blocked[step, move] = True
        return find_path(roadmap, robot, blocked, meetings(roadmap, others))


def _cost(roadmap: Roadmap, paths: list[Path]) -> tuple[int, int]:
    """Return the sum of steps, and the number of conflicts."""
    moves = np.array([roadmap.moves_of(path, roadmap.max_steps) for path in paths])
    pairs = roadmap.conflicts_for(moves)[moves[:, None], moves[None]].sum(axis=-1)
    return sum(len(path) - 1 for path in paths), int(np.triu(pairs, 1).sum())


def _children(roadmap: Roadmap, paths: list[Path]) -> list[_Constraints]:
    """Return what the first conflict forbids the one robot, or the other: a solution satisfies one of the two.

    Each move of the one set conflicts with each of the other, and both sets are as large as that allows: the sets of
    Li et al., Multi-agent path finding for large agents, AAAI 2019.
    """
    moves = np.array([roadmap.moves_of(path, roadmap.max_steps) for path in paths])
    found = np.triu(roadmap.conflicts_for(moves)[moves[:, None], moves[None]].transpose(2, 0, 1), 1)
    step, one, other = (int(x) for x in np.argwhere(found)[0])
    first, second = moves[one, step], moves[other, step]
    mine = np.array([first])
    ends = roadmap.moves[[first, second], 1]
    if roadmap.conflicts_for(ends)[ends[0], ends[1]]:  # a vertex has the number of its stay
        mine = np.flatnonzero(roadmap.moves[:, 1] == ends[0])
    its = np.flatnonzero(roadmap.conflicts_for(mine)[mine].all(axis=0))
    mine = np.flatnonzero(roadmap.conflicts_for(its)[its].all(axis=0))
    return [
        frozenset((robot, step, move) for move in forbidden.tolist())
        for robot, forbidden in ((one, mine), (other, its))
    ]
