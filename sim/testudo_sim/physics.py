"""The interface between scenarios and the physics below them."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from testudo_hardware.motion import MotionState
from testudo_sim.parameters import WorldParameters


class Physics(Protocol):
    """A tier of fidelity; its state is an opaque pytree, arrays are (component, robot, world)."""

    name: str

    def reset(self, position_world: jax.Array, yaw: jax.Array) -> Any:
        """Return the state of robots at rest at position (D, N, E) [m] and yaw (N, E) [rad]."""

    def advance(self, state: Any, sent: jax.Array, parameters: WorldParameters) -> Any:
        """Return the state one control tick later.

        ``sent`` (H, D, N, E) holds the nominal effective commands of past ticks, this tick's first.
        """

    def motion(self, state: Any) -> MotionState:
        """Return the true motion (D, N, E)."""
