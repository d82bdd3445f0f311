"""Two shields of a car: the exact one of the discrete game, and Testudo's braking rule.

Both let a car see its own speed, the speed of the car ahead, and the gap; both assume that the car behind never hits it
(the paper's order of guarantees: what a car does never depends on the cars behind).

The braking rule is layer 2 of Testudo's shield (docs/shield.md) in one dimension: a command may be sent if the car,
having held it for as long as it can act and then braking at the limit, stays clear of all that the car ahead may do.
The code of the layers does not fit. They brake to rest, and a robot at rest is safe among peers that stay in their own
space; here the car ahead may drive backwards, and safe is only to be as slow as it can become. Too far is the same rule
in the mirror. The rule holds for any speeds and gaps, the exact shield for those of its grid.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from testudo_bench.platoon.cars import CarSpec, Values, gap_course

_ROUNDING_M = 1e-6
Mask = NDArray[np.bool_]


class CarShield(Protocol):
    """Which accelerations a car may choose."""

    @property
    def spec(self) -> CarSpec:
        """Return the cars."""
        ...

    def admits(self, own_m_s: Values, front_m_s: Values, gap_m: Values) -> Mask:
        """Return which accelerations are admitted (A, ...) at speeds and gaps (...)."""
        ...


@dataclass(frozen=True)
class BrakingShield:
    """Hold the acceleration for a period, then brake: the gap stays above zero; and the same in the mirror.

    Of each side, braking (or accelerating) at the limit is always admitted again, so that a state which is safe stays
    so. If both sides leave nothing, which a limit of 60 m can cause and one of 80 m does not, nothing is admitted.
    """

    spec: CarSpec

    def admits(self, own_m_s: Values, front_m_s: Values, gap_m: Values) -> Mask:
        """See `CarShield`."""
        spec, mirrored = self.spec, self.spec.mirrored
        clear = [
            (least_gap_m(spec, own_m_s, front_m_s, gap_m, a) > _ROUNDING_M)
            & (least_gap_m(mirrored, -own_m_s, -front_m_s, spec.gap_limit_m - gap_m, -a) > _ROUNDING_M)
            for a in spec.accelerations_m_s2
        ]
        return np.stack(clear) & spec.possible(own_m_s)


@dataclass(frozen=True)
class Open:
    """No shield: every acceleration that keeps the speed limits."""

    spec: CarSpec

    def admits(self, own_m_s: Values, front_m_s: Values, gap_m: Values) -> Mask:
        """See `CarShield`."""
        del front_m_s, gap_m
        return self.spec.possible(own_m_s)


def least_gap_m(spec: CarSpec, own_m_s: Values, front_m_s: Values, gap_m: Values, acceleration_m_s2: float) -> Values:
    """Return the least gap (...) from now on: the car ahead brakes now, the own car after a period.

    No other way of the car ahead brings it nearer at any time. Below zero it means a collision.
    """
    brake, period, slowest = spec.hardest_m_s2, spec.period_s, spec.slowest_m_s
    held = own_m_s + acceleration_m_s2 * period

    def own_at(time: Values) -> Values:
        early = own_m_s + acceleration_m_s2 * time
        return np.where(time < period, early, np.maximum(held - brake * (time - period), slowest))

    def front_at(time: Values) -> Values:
        return np.maximum(front_m_s - brake * time, slowest)

    # accelerations change at the end of the period and where a car reaches its slowest speed
    whole = np.full(np.shape(held + front_m_s + gap_m), period)
    knots = np.sort(
        np.stack([whole, whole + (held - slowest) / brake, 0 * whole + (front_m_s - slowest) / brake]), axis=0
    )
    gap = least = gap_m + 0 * whole
    begin = 0 * whole
    for end in knots:
        duration, rate = end - begin, front_at(begin) - own_at(begin)
        change = (front_at(end) - own_at(end) - rate) / np.where(duration > 0, duration, 1.0)
        gap, low, _ = gap_course(gap, rate, change, duration)
        least, begin = np.minimum(least, low), end
    return least


@dataclass(frozen=True)
class Grid:
    """The states that cars reach from whole gaps and speeds in steps of acceleration times period."""

    spec: CarSpec

    @cached_property
    def speeds_m_s(self) -> Values:
        """Return all speeds (S,)."""
        step = self.spec.hardest_m_s2 * self.spec.period_s
        return np.arange(self.spec.slowest_m_s, self.spec.fastest_m_s + step / 2, step)

    @cached_property
    def gaps_m(self) -> Values:
        """Return all gaps (G,)."""
        return np.arange(1.0, self.spec.gap_limit_m)

    @cached_property
    def states(self) -> tuple[Values, Values, Values]:
        """Return own speed, front speed and gap of all states, each (S, S, G)."""
        own, front, gap = np.meshgrid(self.speeds_m_s, self.speeds_m_s, self.gaps_m, indexing="ij")
        return own, front, gap

    def speed_index(self, speed_m_s: Values) -> NDArray[np.intp]:
        """Return the number of the nearest speed (...)."""
        step = self.spec.hardest_m_s2 * self.spec.period_s
        return _within(np.rint((speed_m_s - self.spec.slowest_m_s) / step), len(self.speeds_m_s))

    def gap_index(self, gap_m: Values) -> NDArray[np.intp]:
        """Return the number of the nearest gap (...)."""
        return _within(np.rint(gap_m) - 1, len(self.gaps_m))

    def index(self, own_m_s: Values, front_m_s: Values, gap_m: Values) -> NDArray[np.intp]:
        """Return the number of the nearest state (...) in the flattened grid."""
        own, front = self.speed_index(own_m_s), self.speed_index(front_m_s)
        return (own * len(self.speeds_m_s) + front) * len(self.gaps_m) + self.gap_index(gap_m)


def _within(number: Values, count: int) -> NDArray[np.intp]:
    return np.maximum(0, np.minimum(count - 1, number)).astype(np.intp)


@dataclass(frozen=True)
class TableShield:
    """A shield whose answers are stored for the states of a grid."""

    grid: Grid
    table: Mask  # (A, states)
    rounds: int = 0  # of the fixed point that made it

    @property
    def spec(self) -> CarSpec:
        """Return the cars."""
        return self.grid.spec

    def admits(self, own_m_s: Values, front_m_s: Values, gap_m: Values) -> Mask:
        """See `CarShield`; other values take the nearest state."""
        return self.table[:, self.grid.index(own_m_s, front_m_s, gap_m)]


def tabulated(shield: CarShield) -> TableShield:
    """Return the answers of a shield on the grid."""
    grid = Grid(shield.spec)
    return TableShield(grid, shield.admits(*grid.states).reshape(len(shield.spec.accelerations_m_s2), -1))


def exact_shield(spec: CarSpec) -> TableShield:
    """Return the most permissive shield: the largest set of states which some action keeps, whatever the front does.

    An action is admitted if no acceleration of the car ahead leads out of that set or through an unsafe gap.
    """
    grid = Grid(spec)
    own, front, gap = (x.reshape(-1) for x in grid.states)
    mine, theirs = spec.possible(own), spec.possible(front)
    moves = {}
    for i, a in enumerate(spec.accelerations_m_s2):
        for j, b in enumerate(spec.accelerations_m_s2):
            end, low, high = gap_course(gap, front - own, np.asarray(b - a), np.asarray(spec.period_s))
            safe = (low > 0) & (high < spec.gap_limit_m)
            moves[i, j] = grid.index(own + a * spec.period_s, front + b * spec.period_s, end), safe, ~theirs[j]
    winning, rounds = np.ones(len(gap), bool), 0
    while True:
        admitted = mine & winning
        for (i, _), (after, safe, never) in moves.items():
            admitted[i] &= never | (safe & winning[after])
        kept, rounds = np.any(admitted, axis=0), rounds + 1
        if np.array_equal(kept, winning):
            return TableShield(grid, admitted, rounds)
        winning = kept
