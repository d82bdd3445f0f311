"""The deadlock rule in the control loop of one robot: its memory from tick to tick."""

import math
from dataclasses import astuple

import numpy as np

from testudo_deploy.shield.deadlock_resolution import (
    DeadlockState,
    initial_deadlock_state,
    resolve_deadlock,
    turned_right,
)
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.velocity_projection import PeerTable

Memory = tuple[float, ...]


class DeadlockResolver:
    """Turns the nominal velocity of a robot that has been blocked for a while, before the shield."""

    def __init__(self, parameters: ProjectionParameters, period_s: float, dimension: int) -> None:
        self._parameters, self._period_s, self._dimension = parameters, period_s, dimension
        self.reset()

    @property
    def memory(self) -> Memory:
        """Return progress, free share, turn [rad] and blocked time [s] after the newest tick."""
        return tuple(float(value) for value in astuple(self._state))

    def reset(self) -> None:
        """Begin anew, as after a brake."""
        self._state, self._moved = initial_deadlock_state(np.array(0.0)), np.zeros(self._dimension)

    def restore(self, memory: Memory, moved_world: Memory) -> None:
        """Continue from the memory of a recorded tick, and the velocity (D,) [m/s] that its shield allowed."""
        self._state, self._moved = DeadlockState(*map(np.array, memory)), np.array(moved_world, float)

    def turned(self, control_point_world: np.ndarray, table: PeerTable, nominal_world: np.ndarray) -> np.ndarray:
        """Return the nominal velocity (D,) [m/s] of a tick, turned if the robot is blocked.

        Unchanged, for the shield to judge, if numbers are too large for the rule.
        """
        turned, self._state = resolve_deadlock(
            self._parameters, self._state, control_point_world, table, nominal_world, self._moved, self._period_s
        )
        if all(map(math.isfinite, (*self.memory, *turned))):
            return turned
        self.reset()
        return nominal_world

    def moved(self, velocity_world: np.ndarray) -> None:
        """Take the velocity (D,) [m/s] that the shield allowed in this tick."""
        self._moved = velocity_world


def turned_by(memory: Memory, nominal_world: np.ndarray) -> np.ndarray:
    """Return the nominal velocity (D,) [m/s] of a recorded tick as its rule turned it."""
    return turned_right(nominal_world, np.array(memory[2]))
