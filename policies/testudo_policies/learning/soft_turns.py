"""Soft policies that change in turns: the core of HASAC, without environment, networks or replay.

Each robot climbs J_m = E[Q(a_before, a_m, a_after)] - temperature / N log pi_m, where those before it act by the policy
that they have already changed. The critic's value and the entropies are means over the robots, as `HASAC` learns them.
On matrix games, where both are known exactly, the same code is coordinate ascent (`testudo bench games`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from testudo_policies.learning.sharing import changed_only
from testudo_policies.learning.train_state import Metrics, gradient_step


@dataclass(frozen=True)
class SoftTeam:
    """What a team does with its policy, and what that is worth."""

    act: Callable[[Any], tuple[jax.Array, jax.Array]]
    """Return what the robots do (..., N, A) with a policy, and the logarithms of its probability (..., N)."""
    value: Callable[[jax.Array], jax.Array]  # the value (...) of what the robots do (..., N, A)
    temperature: jax.Array  # ()
    counted: jax.Array  # (..., N) bool: the robots that take part
    optimiser: optax.GradientTransformation  # of one gradient step, which is what a robot changes in its turn
    groups: tuple[int, ...] = ()
    """Which parameters each robot has, see `Agent.groups`; those of robots that do not move stay as they are, where
    momentum would move them."""

    def changed(self, policy: Any, moments: Any, turns: jax.Array) -> tuple[Any, Any, Metrics]:
        """Return policy and optimiser state after all turns, and the mean losses.

        ``turns`` (K, N) bool are the robots that change their policy in each turn; in a single turn of all robots
        each relies on what the others did before it.
        """

        def turn(carry: Any, moving: jax.Array) -> Any:
            current, moments, acting = carry

            def loss(trial: Any) -> tuple[jax.Array, Metrics]:
                own, log_probability = self.act(trial)
                climbing = self.counted & moving
                there = jnp.maximum(jnp.sum(self.counted, axis=-1), 1)
                said = jnp.sum(jnp.where(climbing, log_probability, 0.0), axis=-1)
                value = self.value(jnp.where(moving[:, None], own, acting))
                total = jnp.mean(self.temperature * said / there - value)
                mean = jnp.sum(said) / jnp.maximum(jnp.sum(climbing), 1)
                return total, {"loss/actor": total, "train/log_probability": mean}

            stepped, moved, losses = gradient_step(loss, self.optimiser, current, moments, "actor")
            if self.groups:
                stepped, moved = changed_only(moving, self.groups, (stepped, moved), (current, moments))
            current, moments = stepped, moved
            now, _ = self.act(current)
            return (current, moments, jnp.where(moving[:, None], now, acting)), losses

        before, _ = self.act(policy)
        (policy, moments, _), losses = jax.lax.scan(turn, (policy, moments, before), turns)
        return policy, moments, jax.tree.map(jnp.mean, losses)


def turns_of(key: jax.Array, team: int, *, in_turns: bool) -> jax.Array:
    """Return turns (K, N) bool: one robot after the other in a random order, or a single turn of all."""
    if not in_turns:
        return jnp.ones((1, team), bool)
    return jax.random.permutation(key, team)[:, None] == jnp.arange(team)
