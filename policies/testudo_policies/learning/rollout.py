"""Rollouts of a policy in an environment, for learning."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Self

import jax
import jax.numpy as jnp

from testudo_policies.learning.losses import Batch, Seen
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.networks.entity_drop_out import with_drop_out
from testudo_policies.networks.observation_encoding import Features
from testudo_sim.environment import Environment, StepMetrics, StepResult, WorldState
from testudo_sim.scenarios.symmetry import WorldMap


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RolloutState:
    """State of the worlds between rollouts."""

    worlds: WorldState
    hidden: jax.Array  # (B, M)
    fresh: jax.Array  # (E,) bool: worlds at the start of an episode
    critic_hidden: jax.Array  # (B, C)
    league: Any = None  # of self-play; None without
    taught: Any = None  # the teacher of a student and its memory, see `teacher`; None without


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepFigures:
    """Metrics, reward terms and counts of the decisions of a rollout."""

    metrics: StepMetrics  # (T, E)
    terms: dict[str, jax.Array]  # (T,) by name: parts of the reward, mean over robots and worlds
    counts: dict[str, jax.Array]  # (T,) by name: what the scenario counts, mean over worlds

    @classmethod
    def of(cls, step: StepResult) -> Self:
        """Return the figures of one decision (no axis of time)."""
        return cls(step.metrics, _means(step.terms), _means(step.counts))


@dataclass(frozen=True)
class Kept:
    """What the batch of a rollout has besides."""

    after: bool = False  # what critics read after each step
    mapping: WorldMap | None = None  # what networks read of worlds mapped by it
    label: Callable[..., tuple[jax.Array, jax.Array]] | None = None  # `Teacher.label`, for the state's ``taught``

    def labels(self, environment: Environment, state: RolloutState, fresh: jax.Array) -> tuple[jax.Array | None, Any]:
        """Return the labels (B, P) of a step, and the teacher after it; None without one."""
        if self.label is None:
            return None, state.taught
        labels, memory = self.label(environment, state.taught, state.worlds, fresh)
        return labels, replace(state.taught, hidden=memory)


def begin(agent: Agent, environment: Environment, key: jax.Array, worlds: int) -> RolloutState:
    """Return freshly reset worlds."""
    state = environment.reset(jax.random.split(key, worlds))
    robots = worlds * environment.team.size
    memory, critic_memory = agent.blank_memory(robots), agent.blank_critic_memory(robots)
    return RolloutState(state, memory, jnp.ones(worlds, bool), critic_memory)


def collect_rollout(
    agent: Agent,
    environment: Environment,
    parameters: AgentParameters,
    state: RolloutState,
    key: jax.Array,
    length: int,
    explore: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    *,
    act: Callable[..., tuple[jax.Array, jax.Array]] | None = None,
    kept: Kept = Kept(),
) -> tuple[RolloutState, Batch, StepFigures]:
    """Run ``length`` decisions; return the new state, the batch, and the figures of every decision.

    Actions are drawn from the distribution, or by ``explore`` from its parameters (B, ...) and a key: then there is no
    critic of states, log-probabilities and values are 0, and the batch has the memory. ``act`` replaces `Agent.act`;
    ``kept`` says what the batch has besides.
    """
    team, worlds_count = environment.team.size, state.fresh.shape[0]

    def step(carry: RolloutState, step_key: jax.Array) -> tuple[RolloutState, Any]:
        (action_key, world_key), drop_key = jax.random.split(step_key), jax.random.fold_in(step_key, 1)
        features, central = looked_at(agent, environment, parameters, carry.worlds, drop_key)
        fresh = jnp.repeat(carry.fresh, team)
        logits, hidden = (act or agent.act)(parameters, _now(features), carry.hidden, fresh[None])
        action = (explore or agent.distribution.sample_no_postprocessing)(logits[0], action_key)
        command = agent.command(features, agent.distribution.postprocess(action))
        worlds, result = environment.step(carry.worlds, command.reshape(-1, team, command.shape[-1]), world_key)
        zero = jnp.zeros(fresh.shape)
        log_probability, value, next_value, after, critic_hidden = zero, zero, zero, None, carry.critic_hidden
        if explore is None:
            _, after = looked_at(agent, environment, parameters, result.last)
            log_probability = agent.distribution.log_prob(logits[0], action)
            (value,), critic_hidden = agent.values(parameters, _now(central), carry.critic_hidden, fresh[None])
            (next_value,), _ = agent.values(parameters, _now(after), critic_hidden, jnp.zeros_like(fresh[None]))
        labels, taught = kept.labels(environment, carry, fresh)
        done, look = result.terminated | result.truncated, partial(looked_at, agent, environment, parameters)
        batch = Batch(
            features,
            central,
            fresh,
            action,
            log_probability,
            value,
            next_value,
            result.reward.T.reshape(-1),
            jnp.repeat(result.terminated, team),
            jnp.repeat(result.truncated, team),
            ~_where(result.stood, worlds_count * team),
            _where(result.left, worlds_count * team),
            memory=carry.hidden if explore else None,
            after=after if kept.after else None,
            mapped=None if not kept.mapping else _seen(look, (carry.worlds, result.last), drop_key, kept.mapping),
            label=labels,
        )
        ends = RolloutState(worlds, hidden, done, critic_hidden, taught=taught)
        return ends, (finite(batch, team), StepFigures.of(result))

    state, (batch, figures) = jax.lax.scan(step, state, jax.random.split(key, length))
    return state, batch, figures


def _means(named: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the mean () of each array; what is not finite, as of a world that diverged, is 0, as its reward is."""
    return {name: jnp.mean(jnp.where(jnp.isfinite(value), value, 0.0)) for name, value in named.items()}


def _where(mask: jax.Array | None, robots: int) -> jax.Array:
    """Return a mask (N, E) of robots as (B,); None is a mask that holds nowhere."""
    return jnp.zeros(robots, bool) if mask is None else mask.T.reshape(-1)


def finite(batch: Batch, team: int) -> Batch:
    """Return one step (B, ...) of a rollout without the worlds in which a number is not finite.

    Their robots do not count, and zeros stand for all of their numbers: a NaN would come through any weight of 0. What
    ended still has.
    """
    robots = batch.counted.shape[0]
    parts = (jnp.all(jnp.isfinite(x.reshape(robots, -1)), axis=1) for x in jax.tree.leaves(batch))
    sound = reduce(jnp.logical_and, parts)
    sound = jnp.repeat(jnp.all(sound.reshape(-1, team), axis=1), team)
    kept = jax.tree.map(lambda x: jnp.where(sound.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x)), batch)
    return replace(kept, terminated=batch.terminated, truncated=batch.truncated)


def _seen(
    look: Callable[..., tuple[Features, Features]],
    worlds: tuple[WorldState, WorldState],
    drop_key: jax.Array,
    mapping: WorldMap,
) -> Seen:
    """Return what networks read of mapped worlds before and after a step."""
    before, after = worlds
    return Seen(*look(before, drop_key, mapping), look(after, None, mapping)[1])


def looked_at(
    agent: Agent,
    environment: Environment,
    parameters: AgentParameters,
    worlds: WorldState,
    drop_key: jax.Array | None = None,
    mapping: WorldMap | None = None,
) -> tuple[Features, Features]:
    """Return the inputs (B, ...) of actor and critic; with a ``mapping`` those of the mapped worlds.

    With a key the actor does not see a share of neighbours and entities, see `entity_drop_out`.
    """
    signals = _mapped(environment.signals(worlds), environment, mapping)
    features = flat(agent.encode(signals))
    central = critic_features(agent, environment, parameters, worlds, features, mapping)
    if drop_key is not None and agent.config.drop_out:
        features = flat(agent.encode(with_drop_out(signals, agent.config.drop_out, drop_key)))
    return features, central


def critic_features(
    agent: Agent,
    environment: Environment,
    parameters: AgentParameters,
    worlds: WorldState,
    own: Features,
    mapping: WorldMap | None = None,
) -> Features:
    """Return the critic's inputs (B, ...): the true team state (MAPPO), or the actor's inputs ``own`` (IPPO)."""
    if agent.config.central_critic:
        signals = environment.central_signals(worlds)
        if agent.config.critic_memory:
            signals |= environment.drawn_signals(worlds)
        return flat(agent.encode_central(_mapped(signals, environment, mapping)))
    return agent.normalise(parameters, own)


def _mapped(signals: dict[str, jax.Array], environment: Environment, mapping: WorldMap | None) -> dict[str, jax.Array]:
    return signals if mapping is None else mapping.signals(signals, environment.team.model.spec)


def flat(features: Features) -> Features:
    """Return features (E, N, ...) as (E * N, ...)."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), features)


def _now(features: Features) -> Features:
    return jax.tree.map(lambda x: x[None], features)
