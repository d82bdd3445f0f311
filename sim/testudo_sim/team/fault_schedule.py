"""Schedules faults in simulated worlds: ticks, messages, localisation, and hostile neighbours.

Arrays have the worlds E last. Times are control ticks since the start; `NEVER` is a tick that is not reached.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

NEVER = 1 << 20


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RadioLoss:
    """Loss of set-points to drones, and the reactions of the drones (`lost_link.py`)."""

    burst_chance: jax.Array
    """(E,): probability that a burst of loss begins at a tick."""
    burst_ticks: jax.Array
    """(E,) int: length of a burst."""
    lost_from: jax.Array
    """(N, E) int: first tick without set-points."""
    lost_until: jax.Array
    """(N, E) int: first tick with set-points again."""
    brakes: jax.Array
    """(E,) bool: the vehicle brakes by itself; else it levels out and falls."""
    hold_ticks: jax.Array
    """(E,) int: ticks from the last set-point to this reaction."""
    cut_ticks: jax.Array
    """(E,) int: ticks from the last set-point to motor cut-off."""
    drag_per_s: jax.Array
    """(E,) [1/s]: speed decay rate of a levelled vehicle."""
    drift_m_s2: jax.Array
    """(2, N, E) [m/s^2]: acceleration by levelling errors."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """Faults of each world."""

    phase: jax.Array
    """(N, E) int: a robot ticks where (tick + phase) is a multiple of `DeployedTeam.stride`: asynchronous ticks."""
    late_chance: jax.Array
    """(E,): probability that a tick is followed by a pause."""
    late_ticks: jax.Array
    """(2, E) int: shortest and longest pause."""
    dead_from: jax.Array
    """(N, E) int: first tick with a dead process: no command, no message."""
    dead_until: jax.Array
    """(N, E) int: tick of its restart."""
    driver_ticks: jax.Array
    """(E,) int: ticks for which the driver holds a command."""
    link_loss: jax.Array
    """(K, N, E): loss of the messages to a robot (N) from its peer in slot K, in addition to that of the world."""
    message_ticks: jax.Array
    """(2, E) int: shortest and longest message time, drawn for each tick; 1 or more."""
    blackout: jax.Array
    """(2, E) int: first tick, and the tick after the last, at which no message arrives."""
    jump: jax.Array
    """(2, E) int: first tick, and the tick after the last, with a wrong localisation of robot 0."""
    jump_world: jax.Array
    """(D, E) [m]: displacement."""
    jump_yaw: jax.Array
    """(E,) [rad]."""
    stranger: jax.Array
    """(E,) int: type of the last robot: 0 a team member, `CHASER`, `FREEZER` or `LIAR`."""
    lie_world: jax.Array
    """(D, E) [m]: displacement of the announced position of a liar."""
    blind_age: jax.Array
    """(E,) bool, negative control: message ages count from arrival."""
    blind_take: jax.Array
    """(E,) bool, negative control: requested space is used without acknowledgements."""
    radio: RadioLoss | None = None
    """Loss of set-points to drones; None without loss."""


CHASER, FREEZER, LIAR = 1, 2, 3
"""A chaser drives unshielded at full speed at the nearest robot and is known as untrusted; the process of a freezer
dies; a liar announces wrong positions."""


def no_faults(dimension: int, size: int, worlds: int, driver_ticks: int) -> Faults:
    """Return worlds without faults, with a message time of one tick."""
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
