"""The deadlock rule in the control loop of one robot: its memory from tick to tick."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.deadlock_resolution import (
    DeadlockState,
    ResolvedVelocity,
    initial_deadlock_state,
    resolve_deadlock,
)
from testudo_deploy.shield.geometry import turned_right
from testudo_deploy.shield.passage_order import PassageState
from testudo_deploy.shield.passages import passages
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.right_of_way import RightOfWay
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.arrays import Array

Memory = tuple[float, ...]
_WAY, _PASSAGE = len(fields(RightOfWay)), len(fields(PassageState))
_PLAIN = len(fields(DeadlockState)) - 2
_STATE = _PLAIN + _WAY + _PASSAGE
# `dataclasses.astuple` copies every value deeply: five times as long, twice in a tick
_plain_of = attrgetter(*(one.name for one in fields(DeadlockState)[:_PLAIN]))
_way_of, _passage_of = (attrgetter(*(one.name for one in fields(kind))) for kind in (RightOfWay, PassageState))


Rule = Callable[..., tuple[ResolvedVelocity, DeadlockState]]
"""One step of the deadlock rule of a robot; see `DeadlockResolver.rule`."""


class DeadlockResolver:
    """Replaces the nominal velocity of a robot that is blocked or must give way, before the shield."""

    def __init__(self, parameters: ProjectionParameters, arena: Arena | None, period_s: float, dimension: int) -> None:
        self._parameters, self._arena, self._period_s, self._dimension = parameters, arena, period_s, dimension
        self._passages = passages(arena, parameters.separation_m, parameters.wall_m)
        self.step: Rule = self.rule
        """What computes one step of the rule: `rule`, or the same as machine code (`tick_bodies.py`)."""
        self.reset()

    def rule(
        self,
        memory: DeadlockState,
        control_point_world: Array,
        table: PeerTable,
        first: Array,
        nominal_world: Array,
        moved_world: Array,
    ) -> tuple[ResolvedVelocity, DeadlockState]:
        """Return one step of the rule for this robot; see `resolve_deadlock`."""
        known = (memory, control_point_world, table, first, nominal_world, moved_world)
        return resolve_deadlock(self._parameters, self._arena, self._passages, *known, self._period_s)

    @property
    def memory(self) -> Memory:
        """Return the memory after the newest tick.

        Progress, free share, turn [rad], blocked time [s], the states of the right of way and of the order in
        passages, and the velocity (D,) [m/s] that the rule gave to the shield.
        """
        return (*map(float, self._values()), *self._resolved.tolist())

    def _values(self) -> tuple[np.ndarray, ...]:
        state = self._state
        return (*_plain_of(state), *_way_of(state.way), *_passage_of(state.passage))

    @property
    def initial_memory(self) -> Memory:
        """Return the memory with which a robot begins."""
        self.reset()
        return self.memory

    def reset(self) -> None:
        """Begin anew, as after a brake."""
        self._state, self._moved = initial_deadlock_state(np.array(0.0)), np.zeros(self._dimension)
        self._resolved = self.wanted_world = np.zeros(self._dimension)

    def restore(self, memory: Memory, moved_world: Memory) -> None:
        """Continue from the memory of a recorded tick, and the velocity (D,) [m/s] that its shield allowed."""
        self._state = _state_of([np.array(value) for value in memory[:_STATE]])
        self._moved = np.array(moved_world, float)

    def resolved(
        self, control_point_world: np.ndarray, table: PeerTable, first: np.ndarray, nominal_world: np.ndarray
    ) -> np.ndarray:
        """Return the velocity (D,) [m/s] for the shield; ``first`` (K,): peers of a lower priority.

        Unchanged, for the shield to judge, if numbers are too large for the rule.
        """
        found, self._state = self.step(self._state, control_point_world, table, first, nominal_world, self._moved)
        self._resolved, self.wanted_world = found.velocity_world, found.wanted_world
        if all(map(math.isfinite, (*self._values(), *self._resolved.tolist(), *self.wanted_world.tolist()))):
            return self._resolved
        self.reset()
        self._resolved = nominal_world
        return nominal_world

    def memories(
        self,
        before: Sequence[Memory],
        moved_world: np.ndarray,
        control_point_world: np.ndarray,
        table: PeerTable,
        first: np.ndarray,
        nominal_world: np.ndarray,
    ) -> np.ndarray:
        """Return the memories (T, M) after recorded ticks, each from the memory of the tick before; see `resolved`.

        Arrays have the ticks last: ``moved_world`` (D, T) [m/s] is what the shield allowed in the tick before.
        """
        rows = np.array([memory[:_STATE] for memory in before], float).T
        found, after = self.rule(_state_of([*rows]), control_point_world, table, first, nominal_world, moved_world)
        values = (*_plain_of(after), *_way_of(after.way), *_passage_of(after.passage), *found.velocity_world)
        made = np.stack([np.broadcast_to(np.asarray(value, float), len(before)) for value in values])
        known = np.isfinite(made).all(axis=0) & np.isfinite(found.wanted_world).all(axis=0)
        self.reset()
        anew = np.concatenate([np.broadcast_to(np.array(self.memory[:_STATE])[:, None], rows.shape), nominal_world])
        return np.where(known, made, anew).T

    def moved(self, velocity_world: np.ndarray) -> None:
        """Take the velocity (D,) [m/s] that the shield allowed in this tick."""
        self._moved = velocity_world


def _state_of(values: Sequence[np.ndarray]) -> DeadlockState:
    """Return the state of recorded numbers, in the order of `DeadlockResolver.memory`."""
    progress, free, turn_rad, stuck_s = values[:_PLAIN]
    way, passage = RightOfWay(*values[_PLAIN : _PLAIN + _WAY]), PassageState(*values[_PLAIN + _WAY :])
    return DeadlockState(progress, free, turn_rad, stuck_s, way, passage)


def is_former(memory: Memory) -> bool:
    """Return whether a memory is of a former rule: one that only turned, or one without an order in passages."""
    return len(memory) < _STATE + 2


def resolved_by(memory: Memory, nominal_world: np.ndarray) -> np.ndarray:
    """Return the velocity (D,) [m/s] that the rule of a recorded tick gave to the shield."""
    if len(memory) == _PLAIN:
        return turned_right(nominal_world, np.array(memory[2]))
    return np.array(memory[-nominal_world.shape[0] :])
