"""The interface between scenarios and the physics below them."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from testudo_sim.physics.scene import BodyState, ContactCounts, Scene
from testudo_sim.physics.world_parameters import WorldParameters


class Physics(Protocol):
    """A tier of fidelity; its state is a pytree whose arrays have the worlds E as their last axis."""

    name: str

    def reset(
        self, position_world: jax.Array, yaw: jax.Array, bodies: BodyState | None, velocity: jax.Array | None = None
    ) -> Any:
        """Return the state of robots at position (D, N, E) [m] and yaw (N, E) [rad].

        They are at rest, or move at velocities (D, N, E) of `MotionState.velocity`; not every tier can begin so.

        Raises:
            TestudoError: this tier begins at rest only.
        """

    def advance(self, state: Any, sent: jax.Array, parameters: WorldParameters, turns: jax.Array | None = None) -> Any:
        """Return the state one control tick later.

        Args:
            state: now.
            sent: (H, D, N, E), the nominal effective commands of past ticks, this tick's first.
            parameters: of the worlds.
            turns: (H, N, E) [rad/s], the yaw rates of the same ticks for drones that turn; left out for all others.
        """

    def scene(self, state: Any) -> Scene:
        """Return the truth."""

    def watch(self, state: Any) -> ContactCounts:
        """Return contacts and least separation in the tick that led to this state."""
