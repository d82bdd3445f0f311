"""Tabular Q-learning of the cars' policies, one table for each car.

In a cascade the cars learn from front to back, each behind the learned policies ahead (the paper's cascading learning):
under the guarantees a car's task depends on the cars ahead only, so that each learns in the traffic that it will have.
All at once, every car learns behind cars that still change.

A pair of state and acceleration that was never tried costs as if its gap stayed for ever. Without the shield a gap that
becomes unsafe costs `Learning.penalty_m` in every second that follows, as in the paper, and ends the episode.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testudo_bench.platoon.cars import PlatoonState, Values, advance, at_rest
from testudo_bench.platoon.driving import SECONDS, Choice, TableDriver, Task, accelerations, at_random
from testudo_bench.platoon.shields import CarShield, Grid, Mask


@dataclass(frozen=True)
class Learning:
    """How the tables are learned."""

    episodes: int = 1_000  # of each car
    cascade: bool = True
    discount: float = 0.9
    explore: float = 0.2  # share of random accelerations in the first episodes, which falls to zero
    slowness: float = 0.6  # the n-th visit of a pair moves its cost by n**-slowness of the error
    penalty_m: float = 1_600.0

    @property
    def parallel(self) -> int:
        """Return the number of episodes side by side."""
        return min(self.episodes, max(10, self.episodes // 20))


@dataclass(frozen=True)
class Learned:
    """What came of learning."""

    driver: TableDriver
    unsafe_episodes: int  # of the learning


def learn(
    task: Task, shield: CarShield, learning: Learning, seed: int, say: Callable[[float], None] = lambda _: None
) -> Learned:
    """Return the learned drivers; ``say`` is called with the finished share."""
    grid, followers, random = Grid(task.spec), task.cars - 1, np.random.default_rng(seed)
    cost = np.empty((followers, len(task.spec.accelerations_m_s2), grid.states[2].size))
    cost[:] = grid.states[2].reshape(-1) / (1 - learning.discount)
    visits = np.zeros(cost.shape, np.int64)
    turns = [(car, car + 1) for car in range(followers)] if learning.cascade else [(0, followers)]
    batches, unsafe = max(1, learning.episodes // learning.parallel), 0
    for number, (first, end) in enumerate(turns):
        lesson = _Lesson(task, shield, learning, grid, cost[:end], visits[:end], first)
        for batch in range(batches):
            unsafe += lesson.episodes(learning.explore * (1 - batch / batches), random)
            say((number + (batch + 1) / batches) / len(turns))
    return Learned(TableDriver(grid, cost), unsafe)


@dataclass(frozen=True)
class _Lesson:
    """Episodes in which the cars from ``first`` on learn; the tables (cars, A, states) are changed."""

    task: Task
    shield: CarShield
    learning: Learning
    grid: Grid
    cost: Values
    visits: NDArray[np.int64]
    first: int

    def episodes(self, explore: float, random: Generator) -> int:
        """Drive a batch of episodes, learn from every second, and return how many became unsafe."""
        task, driver = self.task, TableDriver(self.grid, self.cost)
        state = at_rest(len(self.cost), self.learning.parallel, task.start_gap_m)
        admitted = self._admitted(state)
        for _ in range(SECONDS):
            chosen = driver(state, admitted, random)
            tries = random.random(chosen.shape) < explore
            tries[: self.first] = False
            chosen = np.where(tries, at_random(admitted, random), chosen)
            after = advance(task.spec, state, accelerations(task.spec, state, chosen, random), task.lag_s)
            admitted = self._admitted(after)
            self._learn(state, chosen, after, admitted)
            state = after
        return int(np.sum(~state.all_safe))

    def _admitted(self, state: PlatoonState) -> Mask:
        admitted = self.shield.admits(state.speed_m_s[1:], state.speed_m_s[:-1], state.gap_m)
        admitted[0] |= ~np.any(admitted, axis=0)
        return admitted

    def _learn(self, state: PlatoonState, chosen: Choice, after: PlatoonState, admitted: Mask) -> None:
        """Move the costs of the chosen pairs towards the gap and the discounted cost of the best that follows."""
        learning = self.learning
        cars = np.arange(self.first, len(self.cost))[:, None]
        following = np.moveaxis(self.cost[cars, :, self._states(after)], -1, 0)
        best = np.min(np.where(admitted[:, self.first :], following, np.inf), axis=0)
        unsafe = learning.penalty_m / (1 - learning.discount)
        target = np.where(after.safe[self.first :], after.gap_m[self.first :] + learning.discount * best, unsafe)
        counted = np.broadcast_to(state.all_safe, target.shape)
        before = self._states(state)
        pair = np.ravel_multi_index((cars + 0 * before, chosen[self.first :], before), self.cost.shape)[counted]
        pairs, of, times = np.unique(pair, return_inverse=True, return_counts=True)
        mean = np.bincount(of, target[counted]) / times
        cost, visits = self.cost.reshape(-1), self.visits.reshape(-1)
        visits[pairs] += times
        cost[pairs] += visits[pairs] ** -learning.slowness * (mean - cost[pairs])

    def _states(self, state: PlatoonState) -> Choice:
        """Return the numbers of the states of the cars that learn (cars, E)."""
        behind = slice(self.first + 1, None)
        return self.grid.index(state.speed_m_s[behind], state.speed_m_s[self.first : -1], state.gap_m[self.first :])
