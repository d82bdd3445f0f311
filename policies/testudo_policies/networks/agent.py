"""An agent: actor, critic and feature normalisation with their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_policies.networks.actor_critic import Actor, Critic, NetworkConfig, RecurrentCritic
from testudo_policies.networks.brax_imports import (
    NormalTanhDistribution,
    gaussian_divergence,
    running_statistics,
    specs,
)
from testudo_policies.networks.entity_drop_out import without_surplus
from testudo_policies.networks.observation_encoding import Features, encode, out_of_frame
from testudo_policies.networks.spoken_choice import SpokenChoice
from testudo_policies.networks.waypoint_choice import WaypointChoice
from testudo_sim.scenarios.robot_number import ROBOT_NUMBER
from testudo_sim.scenarios.scenario import Observation
from testudo_sim.scenarios.symmetry import WorldMap

Params = Any
_TINY = 1e-9
LEAST_SPREAD = 1e-2  # lower bound of a feature's deviation, so that a nearly constant feature is not amplified


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AgentParameters:
    """All trained parameters and statistics."""

    actor: Params
    critic: Params
    own_statistics: Any
    neighbour_statistics: Any
    value_statistics: Any  # of returns: the critic's unit
    entity_statistics: Mapping[str, Any] = field(default_factory=dict)  # by group


@dataclass(frozen=True)
class Agent:
    """The networks of a policy for robots with D space dimensions and a speed limit."""

    config: NetworkConfig
    dimension: int
    speed_limit_m_s: float
    observation: Observation
    yaw_rate_limit: float = 0.0  # largest commanded yaw rate [rad/s] of drones; 0: no yaw rate is commanded
    waypoints: WaypointChoice | None = None  # of a policy that chooses way-points; None for velocities
    message_size: int = 0  # numbers that the policy says to its peers beside its command
    groups: tuple[int, ...] = ()
    """Which parameters each robot of the team has, from 0 on; empty: all share one set. Else arrays of robots (..., B)
    have the robots of a world side by side, in the order of the team."""

    @property
    def action_size(self) -> int:
        """Return the size of an action: one number per axis, and one for a yaw rate; or one per way-point.

        The numbers of a message come last.
        """
        if self.waypoints is not None:
            return self.waypoints.count + self.message_size
        return self.dimension + bool(self.yaw_rate_limit) + self.message_size

    @property
    def distribution(self) -> NormalTanhDistribution | WaypointChoice | SpokenChoice:
        """Return the action distribution, in (-1, 1) for each axis of the features' frame and for the yaw rate.

        Of way-points it is that of their choice. The numbers of a message are further ones in (-1, 1).
        """
        if self.waypoints is None:
            return NormalTanhDistribution(self.action_size)
        return SpokenChoice(self.waypoints, self.message_size) if self.message_size else self.waypoints

    def divergence(self, logits: jax.Array, teacher: jax.Array) -> jax.Array:
        """Return KL(teacher || policy) (...) of the distributions with these parameters (..., P)."""
        distribution = self.distribution
        if isinstance(distribution, NormalTanhDistribution):
            return cast(jax.Array, gaussian_divergence(distribution, logits, teacher))
        return distribution.divergence(logits, teacher)

    def init(self, key: jax.Array, features: Features, central: Features) -> AgentParameters:
        """Return fresh parameters for features (B, ...) of actor and critic."""
        actor_key, critic_key = jax.random.split(key)
        hidden = self.blank_memory(features.own.shape[0])
        fresh = jnp.zeros((1, features.own.shape[0]), bool)
        seen = _with_time(features)
        return AgentParameters(
            self._of_each_group(lambda key: self._actor.init(key, seen, hidden, fresh), actor_key),
            self._of_each_group(lambda key: self._first_critic(key, central, fresh), critic_key),
            _statistics(features.own),
            _statistics(features.neighbours),
            no_returns(),
            {group: _statistics(values) for group, values in features.entities.items()},
        )

    def encode(self, signals: Mapping[str, jax.Array]) -> Features:
        """Return the actor's features of signals with leading batch axes; see `observation_encoding.encode`."""
        most = self.config.most_neighbours
        return self._encoded(without_surplus(signals, most) if most else signals)

    def _encoded(self, signals: Mapping[str, jax.Array]) -> Features:
        features = encode(signals, self.observation)
        return features if self.waypoints is None else replace(features, point=signals["control_point_world"])

    def encode_central(self, signals: Mapping[str, jax.Array]) -> Features:
        """Return the features of `Environment.central_signals`: a central critic knows more than robots tell others."""
        sees = replace(self.observation, peer_range_m=max(self.observation.peer_range_m, Observation.peer_range_m))
        return replace(self, observation=sees)._encoded(signals)  # noqa: SLF001

    def blank_critic_memory(self, robots: int) -> jax.Array:
        """Return the critic's memory (robots, C) at the start of an episode."""
        return jnp.zeros((robots, self.config.critic_memory))

    def blank_memory(self, robots: int) -> jax.Array:
        """Return the memory (robots, M) at the start of an episode."""
        return jnp.zeros((robots, self.config.memory))

    def act(
        self, parameters: AgentParameters, features: Features, hidden: jax.Array, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the distribution's parameters (T, B, 2A) and the new memory; see `Actor`."""
        seen = self.normalise(parameters, features)
        if not self.groups:
            return cast(tuple[jax.Array, jax.Array], self._actor.apply(parameters.actor, seen, hidden, fresh))
        own, size = of_robots(parameters.actor, self.groups), len(self.groups)
        split = by_robot((seen, fresh), size, 1), by_robot(hidden, size, 0)
        found: Any = jax.vmap(
            lambda one, now, before: self._actor.apply(one, now[0], before, now[1]), in_axes=(0, 2, 1), out_axes=(2, 1)
        )(own, *split)
        return found[0].reshape(*fresh.shape, -1), found[1].reshape(hidden.shape)

    def value(self, parameters: AgentParameters, central: Features) -> jax.Array:
        """Return values (...) for the critic's features."""
        if self.groups:
            own, axis = of_robots(parameters.critic, self.groups), central.own.ndim - 2
            apart = by_robot(central, len(self.groups), axis)
            found: Any = jax.vmap(self._critic.apply, in_axes=(0, axis + 1), out_axes=axis + 1)(own, apart)
            scaled = found.reshape(central.own.shape[:-1])
        else:
            scaled = cast(jax.Array, self._critic.apply(parameters.critic, central))
        return parameters.value_statistics.mean[0] + self.value_scale(parameters) * scaled

    def values(
        self, parameters: AgentParameters, central: Features, hidden: jax.Array, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return values (T, B) for the critic's features (T, B, ...), and its memory (B, C) after them."""
        if not self.config.critic_memory:
            return self.value(parameters, central), hidden
        found: Any = RecurrentCritic(self.config).apply(parameters.critic, central, hidden, fresh)
        return parameters.value_statistics.mean[0] + self.value_scale(parameters) * found[0], found[1]

    def value_scale(self, parameters: AgentParameters) -> jax.Array:
        """Return the deviation () of the returns seen so far."""
        return cast(jax.Array, parameters.value_statistics.std[0])

    def normalise(self, parameters: AgentParameters, features: Features) -> Features:
        """Return features with approximately zero mean and unit variance."""
        return replace(
            features,
            own=running_statistics.normalize(features.own, parameters.own_statistics),
            neighbours=running_statistics.normalize(features.neighbours, parameters.neighbour_statistics),
            entities={
                group: running_statistics.normalize(values, parameters.entity_statistics[group])
                for group, values in features.entities.items()
            },
        )

    def observe(self, parameters: AgentParameters, features: Features, counted: jax.Array) -> AgentParameters:
        """Return the parameters with statistics updated by the features (T, B, ...) that count (T, B) bool."""
        return replace(
            parameters,
            own_statistics=_updated(parameters.own_statistics, features.own, counted),
            neighbour_statistics=_updated(parameters.neighbour_statistics, features.neighbours, counted),
            entity_statistics={
                group: _updated(parameters.entity_statistics[group], values, counted)
                for group, values in features.entities.items()
            },
        )

    def observe_returns(self, parameters: AgentParameters, returns: jax.Array, counted: jax.Array) -> AgentParameters:
        """Return the parameters with statistics updated by the returns (T, B) that count (T, B) bool."""
        statistics = _updated(parameters.value_statistics, returns[..., None], counted)
        return replace(parameters, value_statistics=statistics)

    def command(self, features: Features, action: jax.Array) -> jax.Array:
        """Return the command of an action (..., A): velocity (..., D) [m/s, world], then any yaw rate [rad/s].

        Of weights of way-points it is the way-point (..., D) [m, world]. The numbers of a message follow unchanged.
        """
        if self.message_size:
            moves, said = action[..., : -self.message_size], action[..., -self.message_size :]
            return jnp.concatenate([replace(self, message_size=0).command(features, moves), said], axis=-1)
        if self.waypoints is not None and features.point is not None:
            share = 1.0 if features.speed is None else features.speed
            offset = out_of_frame(self.waypoints.offset(action), features.frame)
            return self.waypoints.inside(features.point + share * offset)
        velocity = self.velocity_world(features, action[..., : self.dimension])
        if not self.yaw_rate_limit:
            return velocity
        return jnp.concatenate([velocity, self.yaw_rate_limit * action[..., self.dimension :]], axis=-1)

    def velocity_world(self, features: Features, action: jax.Array) -> jax.Array:
        """Return the control-point velocity (..., D) [m/s, world] of an action (..., D) in the features' frame.

        An action of length 1 is full speed, or the robot's share of it.
        """
        length = jnp.sqrt(jnp.sum(action**2, axis=-1, keepdims=True))
        shortened = action / jnp.maximum(length, 1.0)
        share = 1.0 if features.speed is None else features.speed
        return self.speed_limit_m_s * share * out_of_frame(shortened, features.frame)

    def mapped_action(self, action: jax.Array, frame: jax.Array, mapped: jax.Array, mapping: WorldMap) -> jax.Array:
        """Return actions (..., B, A), before the tanh, of robots in mapped worlds (B,).

        ``frame`` and ``mapped`` (..., B, 2) are the frames of the features there and here, see `Features.frame`.
        """

        def turned(vector: jax.Array) -> jax.Array:
            there = mapping.vector(jnp.moveaxis(out_of_frame(vector, _unit(frame)), -1, 0))
            return out_of_frame(jnp.moveaxis(there, 0, -1), _unit(mapped) * jnp.array([1.0, -1.0]))

        if self.waypoints is not None:
            return self.waypoints.nearest(turned(self.waypoints.offset(self.waypoints.postprocess(action))))
        moves, turns = action[..., : self.dimension], action[..., self.dimension :]
        return jnp.concatenate([turned(moves), mapping.sense[:, None] * turns], axis=-1)

    def policy(
        self, parameters: AgentParameters
    ) -> Callable[[Mapping[str, jax.Array], jax.Array], tuple[jax.Array, jax.Array]]:
        """Return the deterministic step (signals (B, ...), hidden (B, M)) -> (command (B, A), hidden).

        Robots with parameters of their own are told apart by the signal `ROBOT_NUMBER`, in any order.
        """

        def step(signals: Mapping[str, jax.Array], hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
            features = self.encode(signals)
            normalised = self.normalise(parameters, features)
            logits, hidden = self._step(parameters.actor, normalised, hidden, signals.get(ROBOT_NUMBER))
            return self.command(features, self.distribution.mode(logits)), hidden

        return step

    def _step(
        self, actor: Params, seen: Features, hidden: jax.Array, number: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the distribution's parameters and the memory after one step of robots with a number (B, 1)."""

        def of(one: Params) -> tuple[jax.Array, jax.Array]:
            return cast(tuple[jax.Array, jax.Array], self._actor.apply(one, seen, hidden, method="step"))

        if not self.groups:
            return of(actor)
        if number is None:
            raise TestudoError(f"policy: the signal {ROBOT_NUMBER} is missing; each robot has its own parameters")
        # all networks run, and each robot takes the outputs of its own: a file cannot index weights by an input
        logits, memory = of(_group(actor, self.groups[0]))
        for robot, group in enumerate(self.groups[1:], start=1):
            if group == self.groups[robot - 1]:
                continue
            own, later = of(_group(actor, group)), number > robot - 0.5
            logits, memory = (jnp.where(later, new, old) for new, old in zip(own, (logits, memory), strict=True))
        return logits, memory

    def _of_each_group(self, init: Callable[[jax.Array], Params], key: jax.Array) -> Params:
        """Return parameters, with a leading axis for the groups if robots do not share them."""
        return jax.vmap(init)(jax.random.split(key, max(self.groups) + 1)) if self.groups else init(key)

    def _first_critic(self, key: jax.Array, central: Features, fresh: jax.Array) -> Params:
        if not self.config.critic_memory:
            return self._critic.init(key, central)
        hidden = self.blank_critic_memory(central.own.shape[0])
        return RecurrentCritic(self.config).init(key, _with_time(central), hidden, fresh)

    @property
    def _actor(self) -> Actor:
        return Actor(self.config, self.action_size, self.waypoints)

    @property
    def _critic(self) -> Critic:
        return Critic(self.config)


def of_robots(parameters: Params, groups: tuple[int, ...]) -> Params:
    """Return parameters of groups (G, ...) as those of the robots (N, ...)."""
    return jax.tree.map(lambda x: x[jnp.asarray(groups)], parameters)


def by_robot(values: Any, team: int, axis: int) -> Any:
    """Return arrays whose ``axis`` has the robots of all worlds as worlds and robots, two axes."""
    return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], x.shape[axis] // team, team, *x.shape[axis + 1 :]), values)


def _group(parameters: Params, group: int) -> Params:
    return jax.tree.map(lambda x: x[group], parameters)


def _unit(frame: jax.Array) -> jax.Array:
    """Return cosine and sine (..., 2) of length 1, which those of a near goal are not."""
    return frame / jnp.maximum(jnp.sqrt(jnp.sum(frame**2, axis=-1, keepdims=True)), _TINY)


def _with_time(features: Features) -> Features:
    return jax.tree.map(lambda x: x[None], features)


def _statistics(values: jax.Array) -> Any:
    return running_statistics.init_state(specs.Array(values.shape[-1:], jnp.dtype("float32")))


def no_returns() -> Any:
    """Return the statistics of no returns, with which the critic's unit is 1."""
    return _statistics(jnp.zeros(1))


def _updated(statistics: Any, values: jax.Array, counted: jax.Array) -> Any:
    """Return statistics updated by values (T, B, ..., C); those of a robot count all or none, (T, B) bool."""
    weights = jnp.broadcast_to(counted.reshape(*counted.shape, *(1,) * (values.ndim - 3)), values.shape[:-1])
    return running_statistics.update(statistics, values, weights=weights, std_min_value=LEAST_SPREAD)
