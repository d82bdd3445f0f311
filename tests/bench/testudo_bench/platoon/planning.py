"""Value iteration of one car behind a car whose accelerations depend on its speed alone.

The leader is such a car, so that the best driving of its follower is known exactly. In a cascade a car counts how the
car ahead, whose policy is ready, accelerates at each speed, and plans with these shares.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testudo_bench.platoon.cars import CarSpec, Values, advance, at_rest, gap_course
from testudo_bench.platoon.driving import SECONDS, TableDriver, Task, accelerations
from testudo_bench.platoon.shields import Grid, Mask, TableShield

_DISCOUNT = 0.9
_ITERATIONS = 100
_UNSEEN = 1e-3  # count of what was not seen, so that every speed has shares


def leader_shares(spec: CarSpec) -> Values:
    """Return how often the leader chooses each acceleration at each speed of the grid (A, S)."""
    possible = spec.possible(Grid(spec).speeds_m_s)
    return np.asarray(possible / np.sum(possible, axis=0))


@dataclass(frozen=True)
class Planner:
    """The moves of a car on the grid under a shield; N states."""

    grid: Grid
    admitted: Mask  # (A, N)
    front: NDArray[np.intp]  # (N,): number of the front car's speed
    after: NDArray[np.intp]  # (A, A, N): state that follows an acceleration of the own car and one of the front car

    @classmethod
    def create(cls, shield: TableShield) -> "Planner":
        """Return the moves under a shield."""
        grid, spec = shield.grid, shield.spec
        own, front, gap = (x.reshape(-1) for x in grid.states)

        def after(a: float, b: float) -> NDArray[np.intp]:
            end, _, _ = gap_course(gap, front - own, np.asarray(b - a), np.asarray(spec.period_s))
            return grid.index(own + a * spec.period_s, front + b * spec.period_s, end)

        choices = spec.accelerations_m_s2
        moves = np.array([[after(a, b) for b in choices] for a in choices])
        return cls(grid, shield.table, grid.speed_index(front), moves)

    @property
    def gap_m(self) -> Values:
        """Return the gaps of the states (N,)."""
        return self.grid.states[2].reshape(-1)

    @property
    def winning(self) -> Mask:
        """Return the states (N,) in which something is admitted."""
        return np.any(self.admitted, axis=0)

    def least_cost_m(self, shares: Values, seconds: int = SECONDS) -> Values:
        """Return the least expected sum of gaps (N,) over some seconds, by any admitted driving."""
        return self._course(shares, seconds, lambda cost: np.min(np.where(self.admitted, cost, np.inf), axis=0))

    def greedy_cost_m(self, shares: Values, seconds: int = SECONDS) -> Values:
        """Return the expected sum of gaps (N,) with the largest admitted acceleration."""
        largest = len(self.admitted) - 1 - np.argmax(self.admitted[::-1], axis=0)
        return self._course(shares, seconds, lambda cost: np.take_along_axis(cost, largest[None], axis=0)[0])

    def plan(self, shares: Values) -> Values:
        """Return the discounted costs of accelerations (A, N) over a long time."""
        winning, best = self.winning, self.gap_m / (1 - _DISCOUNT)
        for _ in range(_ITERATIONS):
            cost = self._costs(shares, best, _DISCOUNT)
            best = np.where(winning, np.min(np.where(self.admitted, cost, np.inf), axis=0), 0.0)
        return cost

    def _course(self, shares: Values, seconds: int, chosen: Callable[[Values], Values]) -> Values:
        winning, cost = self.winning, np.zeros(self.front.shape)
        for _ in range(seconds):
            cost = np.where(winning, chosen(self._costs(shares, cost, 1.0)), 0.0)
        return cost

    def _costs(self, shares: Values, following: Values, discount: float) -> Values:
        """Return the costs of accelerations (A, N): the gap, and the mean of what follows (N,)."""
        return self.gap_m + discount * np.sum(shares[:, self.front] * following[self.after], axis=1)


def plan_cascade(
    task: Task, shield: TableShield, episodes: int, seed: int, say: Callable[[float], None] = lambda _: None
) -> TableDriver:
    """Return planned drivers, front to back; each car has watched the car ahead for a number of episodes."""
    planner, random, followers = Planner.create(shield), np.random.default_rng(seed), task.cars - 1
    cost = np.zeros((followers, *planner.admitted.shape))
    for car in range(followers):
        counts = _UNSEEN * leader_shares(task.spec)
        state, driver = at_rest(car + 1, episodes, task.start_gap_m), TableDriver(shield.grid, cost[: car + 1])
        for _ in range(SECONDS):
            admitted = shield.admits(state.speed_m_s[1:], state.speed_m_s[:-1], state.gap_m)
            moved = accelerations(task.spec, state, driver(state, admitted, random), random)
            kind = np.searchsorted(task.spec.accelerations_m_s2, moved[car])
            np.add.at(counts, (kind, shield.grid.speed_index(state.speed_m_s[car])), 1.0)
            state = advance(task.spec, state, moved)
        cost[car] = planner.plan(counts / np.sum(counts, axis=0))
        say((car + 1) / followers)
    return TableDriver(shield.grid, cost)
