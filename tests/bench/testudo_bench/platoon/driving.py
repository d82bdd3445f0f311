"""Episodes of a platoon under a shield: the leader at random, each follower by a driver."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testudo_bench.platoon.cars import CarSpec, PlatoonState, Values, advance, at_rest
from testudo_bench.platoon.shields import CarShield, Grid, Mask

SECONDS = 100
_AT_ONCE = 2_000  # episodes, for the memory

type Choice = NDArray[np.intp]
type Driver = Callable[[PlatoonState, Mask, Generator], Choice]
"""From the state and the admitted accelerations (A, K, E) to the chosen ones (K, E)."""


@dataclass(frozen=True)
class Task:
    """The platoon that is driven."""

    spec: CarSpec
    cars: int = 10
    start_gap_m: float = 50.0
    lag_s: float = 0.0  # of the speed behind the commanded one
    sees_stopping_points: bool = True
    """Whether shields and drivers see commanded speeds and gaps between stopping points; else what is measured."""


@dataclass(frozen=True)
class Outcome:
    """Episodes (E,)."""

    cost_m: Values  # sum over gaps and seconds; not a number where a gap became unsafe, which ends the episode
    unsafe: NDArray[np.bool_]
    blocked: int  # decisions of cars in which the shield admitted nothing; they braked

    @property
    def mean_cost_m(self) -> float:
        """Return the mean cost of the episodes that stayed safe, or not a number."""
        return float(np.mean(self.cost_m[~self.unsafe])) if not np.all(self.unsafe) else float("nan")


def drive(task: Task, shield: CarShield, driver: Driver, episodes: int, seed: int) -> Outcome:
    """Return episodes of `SECONDS`; the same seed gives the leader the same accelerations under every driver."""
    parts = []
    for first in range(0, episodes, _AT_ONCE):
        leader, others = (np.random.default_rng([seed, first, stream]) for stream in (0, 1))
        parts.append(_drive(task, shield, driver, min(_AT_ONCE, episodes - first), (leader, others)))
    return Outcome(
        np.concatenate([part.cost_m for part in parts]),
        np.concatenate([part.unsafe for part in parts]),
        sum(part.blocked for part in parts),
    )


def _drive(
    task: Task, shield: CarShield, driver: Driver, episodes: int, random: tuple[Generator, Generator]
) -> Outcome:
    state = at_rest(task.cars - 1, episodes, task.start_gap_m)
    cost, blocked = np.zeros(episodes), 0
    for _ in range(SECONDS):
        seen = state if task.sees_stopping_points else measured(state, task.lag_s)
        admitted = shield.admits(seen.speed_m_s[1:], seen.speed_m_s[:-1], seen.gap_m)
        admitted &= task.spec.possible(state.speed_m_s[1:])
        none = ~np.any(admitted, axis=0)
        blocked += int(np.sum(none & state.all_safe))
        admitted[0] |= none
        chosen = driver(seen, admitted, random[1])
        state = advance(task.spec, state, accelerations(task.spec, state, chosen, random[0]), task.lag_s)
        cost += np.sum(state.actual_gap_m(task.lag_s), axis=0)
    return Outcome(np.where(state.all_safe, cost, np.nan), ~state.all_safe, blocked)


def measured(state: PlatoonState, lag_s: float) -> PlatoonState:
    """Return the state as sensors see it: actual speeds and gaps."""
    return PlatoonState(state.actual_speed_m_s, state.actual_gap_m(lag_s), state.actual_speed_m_s, state.safe)


def accelerations(spec: CarSpec, state: PlatoonState, chosen: Choice, leader: Generator) -> Values:
    """Return the accelerations (K + 1, E): the leader's at random, the followers' as chosen."""
    first = at_random(spec.possible(state.speed_m_s[:1]), leader)
    return np.asarray(spec.accelerations_m_s2)[np.concatenate([first, chosen])]


def at_random(admitted: Mask, random: Generator) -> Choice:
    """Return one of the admitted accelerations (A, ...), each as likely."""
    return np.argmax(np.where(admitted, random.random(admitted.shape, np.float32), -1.0), axis=0)


def random_driver(state: PlatoonState, admitted: Mask, random: Generator) -> Choice:
    """Choose at random; see `Driver`."""
    del state
    return at_random(admitted, random)


def greedy_driver(state: PlatoonState, admitted: Mask, random: Generator) -> Choice:
    """Choose the largest admitted acceleration; see `Driver`."""
    del state, random
    return admitted.shape[0] - 1 - np.argmax(admitted[::-1], axis=0)


@dataclass(frozen=True)
class TableDriver:
    """Chooses by learned costs (cars, A, states) the cheapest admitted acceleration; at random among equal ones."""

    grid: Grid
    cost: Values

    def __call__(self, state: PlatoonState, admitted: Mask, random: Generator) -> Choice:
        """See `Driver`; the first cars of the table drive those of the state."""
        states = self.grid.index(state.speed_m_s[1:], state.speed_m_s[:-1], state.gap_m)
        cost = np.stack([table[:, at] for table, at in zip(self.cost, states, strict=False)], axis=1)
        cost = np.where(admitted, cost, np.inf)
        return at_random(admitted & (cost <= np.min(cost, axis=0)), random)
