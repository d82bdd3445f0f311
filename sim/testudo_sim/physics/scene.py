"""What a scenario sees of the physics: the robots and the free bodies among them."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from testudo_hardware.motion import MotionState
from testudo_sim.jax_support import pytrees  # noqa: F401  (registers MotionState)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BodyState:
    """Poses of the scenario's boxes (B of them) in each world."""

    position_world: jax.Array
    """(2, B, E) [m]: centre, seen from above."""
    yaw: jax.Array
    """(B, E) [rad]."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scene:
    """The truth at one moment."""

    robots: MotionState
    """(D, N, E)."""
    bodies: BodyState | None = None
    """None where the scenario has none."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ContactCounts:
    """What the physics saw in the last control tick, at every one of its steps."""

    contacts: jax.Array
    """(E,) int: physics steps times touching pairs: robot and robot, robot and wall."""
    separation_m: jax.Array
    """(E,) least distance between the centres of two robots."""
