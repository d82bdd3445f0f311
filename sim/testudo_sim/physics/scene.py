"""Interface of physics and scenarios: the state of robots and bodies, contacts and separations."""

import itertools
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from testudo_deploy.shield.arena import Arena, clearances
from testudo_deploy.shield.geometry import z_scaled
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_sim import devices  # noqa: F401  (registers the pytrees)
from testudo_sim.physics.close_pairs import closest_distance, touching_pairs
from testudo_sim.physics.neighbour_cells import CROWD
from testudo_sim.physics.world_parameters import WorldParameters


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BodyState:
    """Poses of the scenario's boxes (B of them) in each world."""

    position_world: jax.Array  # (2, B, E) [m]: centre, seen from above
    yaw: jax.Array  # (B, E) [rad]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scene:
    """True state of robots and bodies."""

    robots: MotionState  # (D, N, E)
    bodies: BodyState | None = None  # None without boxes
    lost: jax.Array | None = None  # (N, E) bool: robots that have failed for good; None: no robot fails

    def all_left(self, values: jax.Array) -> jax.Array:
        """Return (E,) bool: values (N, E) hold for all robots that have not failed for good, and one is left."""
        if self.lost is None:
            return jnp.all(values, axis=0)
        return jnp.all(values | self.lost, axis=0) & ~jnp.all(self.lost, axis=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ContactCounts:
    """Contacts and separation in the last control tick, over all physics steps."""

    contacts: jax.Array  # (E,) int: physics steps times touching pairs: robot and robot, robot and wall
    separation_m: jax.Array  # (E,) least distance between the centres of two robots

    @classmethod
    def of(cls, position_world: jax.Array, spec: RobotSpec, arena: Arena | None) -> "ContactCounts":
        """Return the counts of one physics step with robots at (D, N, E) [m]."""
        contacts = count_contacts(position_world, spec.body_radius_m, arena)
        return cls(contacts, least_separation(position_world, spec.height_ratio))

    def cleared(self) -> "ContactCounts":
        """Return the counts of no step, for as many worlds."""
        return ContactCounts(jnp.zeros_like(self.contacts), jnp.full_like(self.separation_m, jnp.inf))

    def plus(self, step: "ContactCounts") -> "ContactCounts":
        """Return the counts with one more step."""
        return ContactCounts(self.contacts + step.contacts, jnp.minimum(self.separation_m, step.separation_m))


def pair_distances(position_world: jax.Array) -> jax.Array:
    """Return the distances of all pairs (pairs, E) [m]."""
    first, second = zip(*itertools.combinations(range(position_world.shape[1]), 2), strict=True)
    offset = position_world[:, jnp.array(first)] - position_world[:, jnp.array(second)]
    return jnp.sqrt(jnp.sum(offset**2, axis=0))


def least_separation(position_world: jax.Array, height_ratio: float = 1.0) -> jax.Array:
    """Return the least distance between two centres (E,) [m]; infinite for a single robot.

    Heights are divided by ``height_ratio``, for comparison with the separation of the shield; `count_contacts` uses
    full heights.
    """
    if position_world.shape[1] < 2:
        return jnp.full(position_world.shape[-1], jnp.inf)
    if position_world.shape[1] >= CROWD:
        return closest_distance(z_scaled(position_world, height_ratio))
    return jnp.min(pair_distances(z_scaled(position_world, height_ratio)), axis=0)


def count_contacts(position_world: jax.Array, radius_m: float, arena: Arena | None) -> jax.Array:
    """Return the number of overlaps between robots, and of robots with walls or obstacles (E,).

    A position that is not finite counts as a contact.
    """
    count = jnp.zeros(position_world.shape[-1], jnp.int32)
    if position_world.shape[1] >= CROWD:
        count = count + touching_pairs(position_world, 2 * radius_m)
    elif position_world.shape[1] > 1:
        count = count + jnp.sum(~(pair_distances(position_world) >= 2 * radius_m), axis=0)
    if arena is not None:
        shape = (len(arena.low_world), 1, 1)
        low, high = (jnp.reshape(jnp.array(x), shape) for x in (arena.low_world, arena.high_world))
        inside = (position_world >= low + radius_m) & (position_world <= high - radius_m)
        count = count + jnp.sum(~jnp.all(inside, axis=0), axis=0)
        if arena.obstacles:
            count = count + jnp.sum(~(clearances(arena.groups, position_world)[0] >= radius_m), axis=(0, 1))
    return count


class Physics(Protocol):
    """A tier of fidelity; its state is a pytree whose arrays have the worlds E as their last axis."""

    @property
    def name(self) -> str:
        """Return the name of the tier."""
        ...

    def reset(
        self, position_world: jax.Array, yaw: jax.Array, bodies: BodyState | None, velocity: jax.Array | None = None
    ) -> Any:
        """Return the state of robots at position (D, N, E) [m] and yaw (N, E) [rad].

        They are at rest, or move at velocities (D, N, E) of `MotionState.velocity`.

        Raises:
            TestudoError: the tier supports only starts at rest.
        """
        ...

    def advance(self, state: Any, sent: jax.Array, parameters: WorldParameters, turns: jax.Array | None = None) -> Any:
        """Return the state one control tick later.

        ``sent`` (H, D, N, E) are nominal effective commands, newest first; ``turns`` (H, N, E) [rad/s] the yaw rates of
        the same ticks for drones with yaw rates, else None.
        """
        ...

    def scene(self, state: Any) -> Scene:
        """Return the true state."""
        ...

    def watch(self, state: Any) -> ContactCounts:
        """Return contacts and least separation in the tick that led to this state."""
        ...
