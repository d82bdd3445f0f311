"""PPO against itself: policies of roles with opposed rewards learn against each other, and against earlier ones.

Half of the worlds have the newest policies of all roles, which all learn. In the others one role learns, and the rest
of the team drives by a policy of the pool, which does not: each role has as many of these worlds, and meets
`_OPPONENTS` policies at a time. With an opponent from another run (`TrainConfig.against`) that is the whole pool, one
role learns in all worlds, and the result is its best response.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.opponents import Pool, actor_only, empty_pool, scores
from testudo_policies.learning.ppo import PPO
from testudo_policies.learning.rollout import RolloutState, StepFigures
from testudo_policies.learning.sharing import group_names
from testudo_policies.learning.train_state import Metrics, TrainState, typed
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.train_config import TrainConfig

_OPPONENTS = 4
_EPISODES = 2  # that a match lasts, of full length
_LEAST_ROLES = 2
_ALL = -1  # in place of the role that learns


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class League:
    """The pool, and the match that is under way."""

    pool: Pool
    drawn: jax.Array  # (S,) int: the policy of the pool that each slot of worlds meets
    returns: jax.Array  # (G, E) of the running episodes, by role
    won: jax.Array  # (G, K) episodes of the match that the learning role has won against a policy
    ended: jax.Array  # (G, K) episodes of the match
    earned: jax.Array  # (G, K) their returns
    last: jax.Array  # (G, 2) of the match before: share of episodes that the role has won, and its mean return


def slots(config: TrainConfig, roles: tuple[str, ...]) -> tuple[int, ...]:
    """Return the role that learns in each slot, an equal share of the worlds; `_ALL` where all do."""
    if config.against:
        return (roles.index(config.role),)
    apart = tuple(role for role in range(len(roles)) for _ in range(_OPPONENTS))
    return (*(_ALL for _ in apart), *apart)


def check_play(config: TrainConfig, scenario: Any) -> None:
    """Check the options of self-play.

    Raises:
        TestudoError: naming the option that does not fit the scenario or the number of worlds.
    """
    option = "--against" if config.against else "--self-play"
    if config.role and not config.against:
        raise TestudoError(f"--role {config.role}: found no --against; give the run whose policy is the opponent")
    if not config.self_play and not config.against:
        return
    roles = group_names(config, scenario)
    if len(roles) < _LEAST_ROLES:
        raise TestudoError(f"{option}: scenario {config.scenario!r} has one role here, expected at least two")
    if config.against and config.role not in roles:
        raise TestudoError(f"--role: found {config.role!r}, expected one of {', '.join(roles)}")
    count = len(slots(config, roles))
    if config.worlds % count:
        raise TestudoError(f"--worlds: found {config.worlds} with {option}, expected a multiple of {count}")


@dataclass(frozen=True)
class SelfPlay(PPO):
    """The learner of one run."""

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The names of the roles, by the number of their parameters."""
        return group_names(self.config, self.environment.scenario)

    @cached_property
    def match_updates(self) -> int:
        """Number of updates for which opponents stay."""
        return math.ceil(_EPISODES * self.environment.horizon / self.config.rollout)

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update; the pool is empty, or of an opponent that `with_opponent` sets."""
        state = super().init(key)
        roles, places = len(self.roles), 1 if self.config.against else self.config.self_play
        pool, none = empty_pool(state.parameters, roles, places), jnp.zeros((roles, places))
        returns, last = jnp.zeros((roles, self.config.worlds)), jnp.tile(jnp.array([0.5, 0.0]), (roles, 1))
        league = League(pool, jnp.zeros(len(self._slots), jnp.int32), returns, none, none, none, last)
        return replace(state, rollout=replace(state.rollout, league=jax.tree.map(typed, league)))

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout and learn from it."""
        after, summary = super().update(state)
        league, shown = after.rollout.league, [g for g in range(len(self.roles)) if g in self._slots]
        frozen = self.config.rollout * int((~self._learns).sum())
        summary["train/not_counted"] -= frozen
        summary |= {f"pool/elo_{self.roles[g]}": league.pool.newest[g] for g in shown}
        summary |= {f"pool/wins_{self.roles[g]}": league.last[g, 0] for g in shown}
        summary |= {f"pool/return_{self.roles[g]}": league.last[g, 1] for g in shown}
        return after, summary | {"pool/policies": league.pool.filled}

    def collect(self, state: TrainState, key: jax.Array, **how: Any) -> tuple[RolloutState, Batch, StepFigures]:
        """Return the rollout of an update, in which opponents do not count."""
        begins = state.updates % self.match_updates == 0
        start = jax.lax.cond(
            begins, self._next_match, lambda state, _: state.rollout, state, jax.random.fold_in(key, 2)
        )
        league: League = start.league

        def act(parameters: AgentParameters, *seen: Any) -> tuple[jax.Array, jax.Array]:
            return self._act(league, parameters, *seen)

        state = replace(state, rollout=replace(start, league=None))
        rollout, batch, figures = super().collect(state, key, act=act, **how)
        league = self._counted(league, batch)
        learning = replace(batch, counted=batch.counted & self._learns)
        return replace(rollout, league=league), learning, figures

    @cached_property
    def _slots(self) -> tuple[int, ...]:
        return slots(self.config, self.roles)

    @cached_property
    def _by_world(self) -> np.ndarray:
        """The role that learns in each world (E,)."""
        return np.repeat(np.array(self._slots), self.config.worlds // len(self._slots))

    @cached_property
    def _learns(self) -> np.ndarray:
        """(B,) bool: which robots learn."""
        role = self._by_world[:, None]
        return ((role == _ALL) | (np.array(self.agent.groups) == role)).reshape(-1)

    def _next_match(self, state: TrainState, key: jax.Array) -> RolloutState:
        """Return the rollout's state with the match before in the pool, and newly drawn opponents.

        The newest policy joins the pool if it is time. Worlds with opponents begin anew, as a policy does not go on
        from the memory of another one.
        """
        draw_key, world_key = jax.random.split(key)
        league: League = state.rollout.league
        met = jnp.maximum(jnp.sum(league.ended, axis=1), 1)
        last = jnp.stack([jnp.sum(x, axis=1) / met for x in (league.won, league.earned)], axis=1)
        last = jnp.where(jnp.sum(league.ended, axis=1, keepdims=True) > 0, last, league.last)
        pool = league.pool.after_match(league.won, league.ended)
        drawn, restarted = league.drawn, jnp.asarray(self._by_world != _ALL)
        if not self.config.against:
            size = self.config.self_play
            due = (pool.filled < size) & (state.updates * size >= pool.filled * self.config.updates)
            grown = pool.with_policy(state.parameters)
            pool = jax.tree.map(lambda new, old: jnp.where(due, new, old), grown, pool)
            drawn = jnp.concatenate([jnp.zeros(len(drawn) // 2, jnp.int32), pool.drawn(draw_key, _OPPONENTS).ravel()])
        none = jnp.zeros_like(league.won)
        returns = jnp.where(restarted, 0.0, league.returns)
        league = League(pool, drawn.astype(jnp.int32), returns, none, none, none, last)
        rollout, keys = state.rollout, jax.random.split(world_key, self.config.worlds)
        reset = self.environment.reset(keys, rollout.worlds.difficulty)
        worlds = jax.tree.map(lambda new, old: jnp.where(restarted, new, old), reset, rollout.worlds)
        return replace(rollout, worlds=worlds, fresh=rollout.fresh | restarted, league=league)

    def _act(
        self, league: League, parameters: AgentParameters, features: Features, hidden: jax.Array, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return what `Agent.act` does: of robots that learn by ``parameters``, of others by their opponent's."""
        count, robots = len(self._slots), fresh.shape[1]

        def by_slot(values: Any, axis: int) -> Any:
            return jax.tree.map(
                lambda x: x.reshape(*x.shape[:axis], count, robots // count, *x.shape[axis + 1 :]), values
            )

        own = self.agent.act(parameters, features, hidden, fresh)
        policies = jax.tree.map(lambda x: x[league.drawn], league.pool.policies)
        seen = by_slot(features, 1), by_slot(hidden, 0), by_slot(fresh, 1)
        found: Any = jax.vmap(self.agent.act, in_axes=(0, 1, 0, 1), out_axes=(1, 0))(policies, *seen)
        theirs = found[0].reshape(own[0].shape), found[1].reshape(own[1].shape)
        learns = jnp.asarray(self._learns)[:, None]
        return jnp.where(learns, own[0], theirs[0]), jnp.where(learns, own[1], theirs[1])

    def _counted(self, league: League, batch: Batch) -> League:
        """Return the match with the episodes that ended in a rollout."""
        team, worlds = self.config.team_size, self.config.worlds
        of_role = np.eye(len(self.roles))[np.array(self.agent.groups)]  # (N, G)
        mean = jnp.asarray(of_role / of_role.sum(axis=0), jnp.float32)
        reward = jnp.einsum("ten,ng->tge", batch.reward.reshape(-1, worlds, team), mean)
        done = (batch.terminated | batch.truncated).reshape(-1, worlds, team)[..., 0]
        chosen = np.maximum(self._by_world, 0)[None]

        def step(returns: jax.Array, this: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            gained, over = this
            returns = returns + gained
            own = (jnp.take_along_axis(x, chosen, axis=0)[0] for x in (scores(returns), returns))
            return jnp.where(over, 0.0, returns), (over, *own)

        returns, (over, score, own) = jax.lax.scan(step, league.returns, (reward, done))
        learns = jax.nn.one_hot(np.array(self._slots), len(self.roles))  # (S, G); no role where all learn
        met = jax.nn.one_hot(league.drawn, league.won.shape[1])

        def added(before: jax.Array, values: jax.Array) -> jax.Array:
            total = jnp.sum(jnp.where(over, values, 0.0), axis=0).reshape(len(self._slots), -1)
            return before + jnp.einsum("s,sg,sk->gk", jnp.sum(total, axis=1), learns, met)

        return replace(
            league,
            returns=returns,
            won=added(league.won, score),
            ended=added(league.ended, jnp.ones_like(score)),
            earned=added(league.earned, own),
        )


def with_opponent(state: TrainState, opponent: AgentParameters) -> TrainState:
    """Return the start of a run of one seed or of several with the policy of another run as its pool."""
    league: League = state.rollout.league
    policies = jax.tree.map(
        lambda old, new: jax.device_put(jnp.broadcast_to(new, old.shape), old.sharding),
        league.pool.policies,
        actor_only(opponent),
    )
    pool = replace(league.pool, policies=policies, filled=jnp.ones_like(league.pool.filled))
    return replace(state, rollout=replace(state.rollout, league=replace(league, pool=pool)))
