"""The best driving under the shield, exactly: of the leader's follower alone, and of a team of two followers.

One follower is the task of `planning`. The team is small, because its state has all speeds and gaps: both followers
know all of it and drive for the sum of their gaps, each with what its shield admits. Cars that see only the car ahead
cannot save more against greedy driving than that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testudo_bench.platoon.cars import CarSpec, Values, gap_course
from testudo_bench.platoon.driving import SECONDS
from testudo_bench.platoon.planning import Planner, leader_shares
from testudo_bench.platoon.shields import Grid, TableShield, exact_shield

TEAM = CarSpec(slowest_m_s=-2.0, fastest_m_s=4.0, gap_limit_m=24.0)
TEAM_GAP_M = 5.0


@dataclass(frozen=True)
class Optimum:
    """Expected sums of gaps over 100 s from rest."""

    followers: int
    gap_m: float  # at first
    fastest_m_s: float
    best_m: float
    greedy_m: float
    greedy_is_best: float  # share of the safe states


def follower_optimum(shield: TableShield, gap_m: float) -> Optimum:
    """Return the best and the greedy driving of the leader's follower."""
    planner, shares, grid = Planner.create(shield), leader_shares(shield.spec), shield.grid
    best, greedy = planner.least_cost_m(shares), planner.greedy_cost_m(shares)
    start = grid.index(np.array(0.0), np.array(0.0), np.array(gap_m))
    equal = np.isclose(best, greedy)[planner.winning]
    return Optimum(1, gap_m, grid.spec.fastest_m_s, float(best[start]), float(greedy[start]), float(np.mean(equal)))


def team_optimum(spec: CarSpec = TEAM, gap_m: float = TEAM_GAP_M) -> Optimum:
    """Return the best and the greedy driving of two followers."""
    team = _Team.create(exact_shield(spec))
    best, greedy = (team.cost_m(rule) for rule in (team.admitted, team.greedy))
    safe = np.any(team.admitted, axis=(0, 1))
    start = _number(team.grid, [np.array(0.0)] * 3, [np.array(gap_m)] * 2)
    equal = np.isclose(best, greedy)[safe]
    return Optimum(2, gap_m, spec.fastest_m_s, float(best[start]), float(greedy[start]), float(np.mean(equal)))


@dataclass(frozen=True)
class _Team:
    """Leader and two followers on a grid of N states."""

    grid: Grid
    admitted: NDArray[np.bool_]  # (A, A, N): pairs of the followers' accelerations
    greedy: NDArray[np.bool_]  # (A, A, N): the largest of each
    gaps_m: Values  # (N,): sum
    after: NDArray[np.intp]  # (A, A, A, N): by the accelerations of leader, first and second follower
    shares: Values  # (A, N): of the leader's accelerations

    @classmethod
    def create(cls, shield: TableShield) -> "_Team":
        grid, spec = shield.grid, shield.spec
        axes = (*[grid.speeds_m_s] * 3, *[grid.gaps_m] * 2)
        lead, first, second, near, far = (x.reshape(-1) for x in np.meshgrid(*axes, indexing="ij"))
        mine, theirs = shield.admits(first, lead, near), shield.admits(second, first, far)
        choices, period = spec.accelerations_m_s2, np.asarray(spec.period_s)

        def after(a: float, b: float, c: float) -> NDArray[np.intp]:
            ahead, _, _ = gap_course(near, lead - first, np.asarray(a - b), period)
            behind, _, _ = gap_course(far, first - second, np.asarray(b - c), period)
            return _number(grid, (lead + a * period, first + b * period, second + c * period), (ahead, behind))

        return cls(
            grid,
            mine[:, None] & theirs[None],
            _largest(mine)[:, None] & _largest(theirs)[None],
            near + far,
            np.array([[[after(a, b, c) for c in choices] for b in choices] for a in choices]),
            leader_shares(spec)[:, grid.speed_index(lead)],
        )

    def cost_m(self, allowed: NDArray[np.bool_]) -> Values:
        """Return the least expected sum of gaps (N,) over `SECONDS` with the allowed pairs (A, A, N)."""
        safe, cost = np.any(allowed, axis=(0, 1)), np.zeros(len(self.gaps_m))
        for _ in range(SECONDS):
            following = np.einsum("an,abcn->bcn", self.shares, cost[self.after])
            cost = np.where(safe, self.gaps_m + np.min(np.where(allowed, following, np.inf), axis=(0, 1)), 0.0)
        return cost


def _number(grid: Grid, speeds_m_s: Sequence[Values], gaps_m: Sequence[Values]) -> NDArray[np.intp]:
    """Return the number of the nearest state of cars, front to back, and of their gaps."""
    axes = [grid.speed_index(v) for v in speeds_m_s] + [grid.gap_index(g) for g in gaps_m]
    sizes = [len(grid.speeds_m_s)] * len(speeds_m_s) + [len(grid.gaps_m)] * len(gaps_m)
    return np.asarray(np.ravel_multi_index(tuple(axes), tuple(sizes)))


def _largest(admitted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return only the largest of the admitted accelerations (A, N)."""
    return np.asarray(admitted & (np.cumsum(admitted[::-1], axis=0)[::-1] == 1))
