"""A* in space and time, and prioritised planning with it: cooperative A* (Silver, AIIDE 2005).

A robot after the other plans its shortest path; the moves that conflict with those of the robots before it are taken
out of a table of steps and moves. Whether all find a path depends on their order: where one finds none, another order
is drawn.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from testudo_policies.planners.roadmap import Path, Roadmap


def find_path(roadmap: Roadmap, robot: int, blocked: np.ndarray, crowd: np.ndarray | None = None) -> Path | None:
    """Return the path that brings a robot to its permanent rest at the goal the earliest; None without one.

    Among those, the one whose moves meet least ``crowd``.

    Args:
        roadmap: with the starts and goals of the team.
        robot: its number.
        blocked: (`max_steps`, M) bool: moves that it must not make, by step. After the last step it rests.
        crowd: (`max_steps`, M) int: what a move costs among paths that are equally long.
    """
    start, goal = roadmap.starts[robot], roadmap.goals[robot]
    left, steps = roadmap.steps_to(goal), roadmap.max_steps
    rests = np.flatnonzero(blocked[:, goal])  # a vertex has the number of its stay
    rest_from = int(rests[-1]) + 1 if len(rests) else 0
    rows = [row.tobytes() for row in blocked.astype(np.uint8)]
    counts = None if crowd is None else crowd.tolist()
    # by: steps in all, crowd, steps that are left; then the vertex, so that the order is always the same
    queue: list[tuple[int, int, int, int, int, Path]] = []
    heapq.heappush(queue, (max(left[start], rest_from), 0, left[start], start, 0, (start,)))
    seen: set[tuple[int, int]] = set()
    while queue:
        _, met, _, here, now, path = heapq.heappop(queue)
        if here == goal and now >= rest_from:
            return path
        if (here, now) in seen or now == steps:
            continue
        seen.add((here, now))
        for move, there in roadmap.moves_from[here]:
            if rows[now][move] or not roadmap.may_enter(robot, there) or now + 1 + left[there] > steps:
                continue
            more = met + (counts[now][move] if counts is not None else 0)
            total = max(now + 1 + left[there], rest_from)
            heapq.heappush(queue, (total, more, left[there], there, now + 1, (*path, there)))
    return None


def meetings(roadmap: Roadmap, paths: list[Path]) -> np.ndarray:
    """Return how many of the paths a move (`max_steps`, M) conflicts with, by step."""
    found = np.zeros((roadmap.max_steps, len(roadmap.moves)), int)
    for path in paths:
        moves = roadmap.moves_of(path, roadmap.max_steps)
        found += roadmap.conflicts_for(moves)[moves]
    return found


@dataclass(frozen=True)
class PrioritisedPlanner:
    """Plans a robot after the other."""

    orders: int = 20  # orders that are tried
    robots: int | None = None  # no limit of the team size

    @property
    def no_plan(self) -> str:
        """Return what to say of an episode without a plan."""
        return f"no plan found in {self.orders} orders of priority"

    def plan(self, roadmap: Roadmap, random: np.random.Generator) -> list[Path] | None:
        """Return paths without conflicts; None if no order that was tried has them.

        First those with the longest way to their goals, then orders drawn at random.
        """
        ways = [-roadmap.steps_to(goal)[start] for start, goal in zip(roadmap.starts, roadmap.goals, strict=True)]
        order = np.argsort(ways, kind="stable")
        for _ in range(self.orders):
            found = self._in_order(roadmap, order.tolist())
            if found is not None:
                return found
            order = random.permutation(len(ways))
        return None

    def _in_order(self, roadmap: Roadmap, order: list[int]) -> list[Path] | None:
        found: dict[int, Path] = {}
        reserved = np.zeros((roadmap.max_steps, len(roadmap.moves)), bool)
        for robot in order:
            path = find_path(roadmap, robot, reserved)
            if path is None:
                return None
            found[robot] = path
            moves = roadmap.moves_of(path, roadmap.max_steps)
            reserved |= roadmap.conflicts_for(moves)[moves]
        return [found[robot] for robot in range(len(order))]
