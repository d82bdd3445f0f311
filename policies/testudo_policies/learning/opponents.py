"""Opponents of self-play: frozen policies, which of them are met, how often they are beaten, and Elo ratings.

A pool holds policies of whole teams. Where the newest policy of one role learns, the others of its world drive by a
policy of the pool. Figures are by role (G) and policy of the pool (K).
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_policies.networks.agent import AgentParameters

FIRST_RATING = 1000.0
ELO_SCALE = 400.0
"""Difference of ratings at which the stronger one is expected to win ten times as often."""
_ELO_STEP = 16.0
_FOLLOWED = 0.5  # share of the newest match in the share of wins


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pool:
    """Policies, and what the newest one of each role won against the rest of the team by each of them."""

    policies: AgentParameters  # (K, ...) without critics
    filled: jax.Array  # () int: the first so many are there
    wins: jax.Array  # (G, K) share of the episodes that the role has won against the policy, newer ones more
    rating: jax.Array  # (G, K) of the policy as an opponent of the role
    newest: jax.Array  # (G,) rating of the newest policy of the role

    def with_policy(self, policy: AgentParameters) -> "Pool":
        """Return the pool with a further policy in its next free place, rated as the newest ones of the other roles."""
        roles, place = len(self.newest), self.filled
        others = (jnp.sum(self.newest) - self.newest) / max(roles - 1, 1)
        return replace(
            self,
            policies=jax.tree.map(lambda all_, one: all_.at[place].set(one), self.policies, actor_only(policy)),
            filled=place + 1,
            rating=self.rating.at[:, place].set(others),
        )

    def after_match(self, won: jax.Array, ended: jax.Array) -> "Pool":
        """Return the pool after episodes: ``ended`` (G, K) of them, ``won`` (G, K) of those by the role."""
        met = ended > 0
        score = won / jnp.maximum(ended, 1)
        expected = expected_score(self.newest[:, None], self.rating)
        change = jnp.where(met, _ELO_STEP * (score - expected), 0.0)
        return replace(
            self,
            wins=jnp.where(met, self.wins + _FOLLOWED * (score - self.wins), self.wins),
            rating=self.rating - change,
            newest=self.newest + jnp.sum(change, axis=1),
        )

    def drawn(self, key: jax.Array, count: int) -> jax.Array:
        """Draw opponents (G, count) for each role by `priorities`."""
        weight = priorities(self.wins, jnp.arange(self.wins.shape[1]) < self.filled)
        shape = (count, len(weight))
        return jax.random.categorical(key, jnp.log(weight), shape=shape).T


def empty_pool(policy: AgentParameters, roles: int, size: int) -> Pool:
    """Return a pool with room for so many policies like this one."""
    policies = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), actor_only(policy))
    even, first = jnp.full((roles, size), 0.5), jnp.full((roles, size), FIRST_RATING)
    return Pool(policies, jnp.zeros((), jnp.int32), even, first, jnp.full(roles, FIRST_RATING))


def actor_only(policy: AgentParameters) -> AgentParameters:
    """Return parameters with what acts, and without what only learns."""
    return replace(policy, critic=(), value_statistics=())


def priorities(wins: jax.Array, there: jax.Array) -> jax.Array:
    """Return the probability (..., K) of each opponent from the share of wins against it: in proportion to (1 - p)^2.

    Prioritised fictitious self-play, f_hard with exponent 2 (Vinyals et al., AlphaStar, Nature 575, 2019): who is
    always beaten is not met again. All that are ``there`` (K,) are equal if all are.
    """
    weight = jnp.where(there, (1 - wins) ** 2, 0.0)
    total = jnp.sum(weight, axis=-1, keepdims=True)
    even = there / jnp.maximum(jnp.sum(there), 1)
    return jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), even)


def expected_score(own: jax.Array, other: jax.Array) -> jax.Array:
    """Return the share of games that a player of one rating wins against another (Elo, 1978), draws as halves."""
    return 1 / (1 + 10 ** ((other - own) / ELO_SCALE))


def scores(returns: jax.Array) -> jax.Array:
    """Return what each role (G, ...) has won by the returns of an episode: 1, a half, or 0.

    A role has won if its return is above that of each other one.
    """
    found = []
    for role in range(len(returns)):
        others = jnp.max(jnp.delete(returns, role, axis=0, assume_unique_indices=True), axis=0)
        found.append(jnp.where(returns[role] > others, 1.0, jnp.where(returns[role] == others, 0.5, 0.0)))
    return jnp.stack(found)
