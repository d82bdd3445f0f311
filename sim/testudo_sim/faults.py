"""What goes wrong in simulated worlds, and when: ticks, messages, localisation, and hostile neighbours.

Arrays have the worlds E last. Times are control ticks since the start; `NEVER` is a tick that does not come.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

NEVER = 1 << 20


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """Faults of each world."""

    phase: jax.Array
    """(N, E) int: a robot ticks where (tick + phase) is a multiple of `Team.stride`: asynchronous ticks."""
    late_chance: jax.Array
    """(E,): probability that a tick is followed by a pause."""
    late_ticks: jax.Array
    """(2, E) int: shortest and longest pause."""
    dead_from: jax.Array
    """(N, E) int: from here on the robot's process is dead: no command, no message."""
    dead_until: jax.Array
    """(N, E) int: here it comes back."""
    driver_ticks: jax.Array
    """(E,) int: the driver holds a command for so many ticks without a new one."""
    link_loss: jax.Array
    """(K, N, E): loss of the messages to a robot (N) from its peer in slot K, beside the world's own."""
    message_ticks: jax.Array
    """(2, E) int: shortest and longest time that messages take, drawn for each tick; 1 or more."""
    blackout: jax.Array
    """(2, E) int: first tick, and the tick after the last, at which no message arrives."""
    jump: jax.Array
    """(2, E) int: first tick, and the tick after the last, at which robot 0 is located wrongly."""
    jump_world: jax.Array
    """(D, E) [m]: by how much."""
    jump_yaw: jax.Array
    """(E,) [rad]."""
    stranger: jax.Array
    """(E,) int: what the last robot is: 0 one of the team, `CHASER`, `FREEZER` or `LIAR`."""
    lie_world: jax.Array
    """(D, E) [m]: by how much a liar announces itself elsewhere."""
    blind_age: jax.Array
    """(E,) bool, negative control: ages are counted from the arrival of a message."""
    blind_take: jax.Array
    """(E,) bool, negative control: announced space is taken without acknowledgements."""


CHASER, FREEZER, LIAR = 1, 2, 3
"""A chaser drives at full speed at the nearest robot, unshielded and known as untrusted; a freezer's process dies;
a liar announces places where it is not."""


def no_faults(dimension: int, size: int, worlds: int, driver_ticks: int) -> Faults:
    """Return worlds in which nothing goes wrong and messages take one tick."""
    robots, links = jnp.zeros((size, worlds), jnp.int32), jnp.zeros((size - 1, size, worlds))
    none, pair = jnp.zeros(worlds, jnp.int32), jnp.zeros((2, worlds), jnp.int32)
    return Faults(
        phase=robots, late_chance=jnp.zeros(worlds), late_ticks=pair + 1, dead_from=robots + NEVER,
        dead_until=robots + NEVER, driver_ticks=none + driver_ticks, link_loss=links, message_ticks=pair + 1,
        blackout=pair + NEVER, jump=pair + NEVER, jump_world=jnp.zeros((dimension, worlds)),
        jump_yaw=jnp.zeros(worlds), stranger=none, lie_world=jnp.zeros((dimension, worlds)),
        blind_age=none > 0, blind_take=none > 0)
