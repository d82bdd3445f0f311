"""Drawn failures of robots in mid-episode: a robot brakes for good, or for a while, and stays a body for the others."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_sim.team.fault_schedule import NEVER

_FOR_GOOD = 0.5  # share of the failures; the others last for a while
_WHILE_S = (2.0, 10.0)  # shortest and longest time of those
_STREAM = 3  # random stream of a world's key, beside those of start, dynamics and course of the task


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RobotFailures:
    """Decisions of an episode in which robots stand, as ``begin <= decision < end``."""

    begin: jax.Array  # (N, E) int; `NEVER` for a robot that does not fail
    end: jax.Array  # (N, E) int; `NEVER` for one that fails for good

    def stands(self, decision: jax.Array) -> jax.Array:
        """Return (N, E) bool: the robot stands in a decision (E,)."""
        return (self.begin <= decision) & (decision < self.end)

    def lost(self, decision: jax.Array) -> jax.Array:
        """Return (N, E) bool: the robot has failed for good."""
        return (self.begin <= decision) & (self.end == NEVER)


def draw_failures(keys: jax.Array, chance: float, size: int, horizon: int, decision_s: float) -> RobotFailures:
    """Draw the failures of one world for each key (E,).

    Each of ``size`` robots fails with probability ``chance``, from a uniformly drawn one of ``horizon`` decisions on.
    """

    def one(key: jax.Array) -> RobotFailures:
        fails, when, good, length = jax.random.split(jax.random.fold_in(key, _STREAM), 4)
        begin = jax.random.randint(when, (size,), 0, horizon)
        lasts_s = jax.random.uniform(length, (size,), minval=_WHILE_S[0], maxval=_WHILE_S[1])
        end = begin + jnp.ceil(lasts_s / decision_s).astype(jnp.int32)
        end = jnp.where(jax.random.uniform(good, (size,)) < _FOR_GOOD, NEVER, end)
        return RobotFailures(jnp.where(jax.random.uniform(fails, (size,)) < chance, begin, NEVER), end)

    return jax.vmap(one, out_axes=-1)(keys)
