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
class RadioLoss:
    """Loss of set-points on the way to drones, and what those do then (`silence.py`)."""

    burst_chance: jax.Array
    """(E,): probability that a burst of loss begins at a tick."""
    burst_ticks: jax.Array
    """(E,) int: length of a burst."""
    lost_from: jax.Array
    """(N, E) int: from here on no set-point comes in."""
    lost_until: jax.Array
    """(N, E) int: from here on they do again."""
    brakes: jax.Array
    """(E,) bool: the vehicle brakes by itself; else it levels out and falls."""
    hold_ticks: jax.Array
    """(E,) int: so many ticks after the last set-point it does."""
    cut_ticks: jax.Array
    """(E,) int: so many ticks after the last set-point its motors are cut."""
    drag_per_s: jax.Array
    """(E,) [1/s]: how fast a levelled vehicle loses speed."""
    drift_m_s2: jax.Array
    """(2, N, E) [m/s^2]: what an error of its level does."""


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
    radio: RadioLoss | None = None
    """Of drones; None: all set-points arrive."""


CHASER, FREEZER, LIAR = 1, 2, 3
"""A chaser drives at full speed at the nearest robot, unshielded and known as untrusted; a freezer's process dies;
a liar announces places where it is not."""


def no_faults(dimension: int, size: int, worlds: int, driver_ticks: int) -> Faults:
    """Return worlds in which nothing goes wrong and messages take one tick."""
    robots, links = jnp.zeros((size, worlds), jnp.int32), jnp.zeros((size - 1, size, worlds))
    none, pair = jnp.zeros(worlds, jnp.int32), jnp.zeros((2, worlds), jnp.int32)
    return Faults(
        phase=robots,
        late_chance=jnp.zeros(worlds),
        late_ticks=pair + 1,
        dead_from=robots + NEVER,
        dead_until=robots + NEVER,
        driver_ticks=none + driver_ticks,
        link_loss=links,
        message_ticks=pair + 1,
        blackout=pair + NEVER,
        jump=pair + NEVER,
        jump_world=jnp.zeros((dimension, worlds)),
        jump_yaw=jnp.zeros(worlds),
        stranger=none,
        lie_world=jnp.zeros((dimension, worlds)),
        blind_age=none > 0,
        blind_take=none > 0,
    )
