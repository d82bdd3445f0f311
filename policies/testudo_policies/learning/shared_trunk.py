"""One network for several scenarios: PPO in all of them at once, with shared decision layers, the trunk.

Each scenario has its own perception (encoder of its signals, statistics of its features) and its own head (mean and
scale of its actions, values of its states); memory and hidden layer behind the encoder are shared, in actor and critic
(multi-task sharing, as in section 22 of the methods). Put together they are the ordinary parameters of one scenario, so
that its policy is evaluated and exported as any other.

A gradient step goes down the sum of the losses of all scenarios: the trunk's gradient is the sum of theirs, and what a
scenario has of its own is moved by its loss alone. Trunk, and perception with head of each scenario, are clipped each
by its own norm.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.learning.ppo import PPO, Lesson
from testudo_policies.learning.train_state import Metrics, TrainState, gradient_step, typed
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment

_TRUNK = ("memory", "head")  # layers of actor and critic behind the encoder
_LAYERS = "params"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SharedParameters:
    """Parameters of all scenarios."""

    actor: Any  # layers of the trunk
    critic: Any
    own: Mapping[str, AgentParameters]  # by scenario, without the trunk

    @classmethod
    def of_scenarios(cls, parameters: Mapping[str, AgentParameters]) -> Self:
        """Return the parameters of several scenarios with the trunk of the first."""
        own = {name: replace(one, actor=_rest(one.actor), critic=_rest(one.critic)) for name, one in parameters.items()}
        first = next(iter(parameters.values()))
        return cls(_trunk(first.actor), _trunk(first.critic), own)

    def of(self, scenario: str) -> AgentParameters:
        """Return the ordinary parameters of a scenario."""
        own = self.own[scenario]
        return replace(own, actor=_joined(self.actor, own.actor), critic=_joined(self.critic, own.critic))

    @property
    def learned(self) -> tuple[Any, ...]:
        """Return what gradients move: actor and critic of the trunk, then of each scenario in alphabetical order."""
        own = [self.own[name] for name in sorted(self.own)]
        return (self.actor, self.critic, *(part for one in own for part in (one.actor, one.critic)))

    def with_learned(self, learned: tuple[Any, ...]) -> Self:
        """Return these parameters with other values of `learned`."""
        pairs = zip(learned[2::2], learned[3::2], strict=True)
        own = {
            name: replace(self.own[name], actor=actor, critic=critic)
            for name, (actor, critic) in zip(sorted(self.own), pairs, strict=True)
        }
        return replace(self, actor=learned[0], critic=learned[1], own=own)


def _trunk(network: Any) -> Any:
    return {name: layer for name, layer in network[_LAYERS].items() if name in _TRUNK}


def _rest(network: Any) -> Any:
    return {_LAYERS: {name: layer for name, layer in network[_LAYERS].items() if name not in _TRUNK}}


def _joined(trunk: Any, own: Any) -> Any:
    return {_LAYERS: {**trunk, **own[_LAYERS]}}


@dataclass(frozen=True)
class SharedTrunk:
    """The learner of one run with several scenarios; figures have the name of the scenario and a slash before them."""

    config: TrainConfig
    components: Mapping[str, TrainingComponents]  # by scenario
    mesh: Mesh | None = None  # devices over which the worlds are sharded; None for one device

    @cached_property
    def parts(self) -> dict[str, PPO]:
        """The learner of each scenario, of which this one uses rollout and loss."""
        return {
            name: PPO(replace(one.config, worlds=self.config.worlds), one.agent, one.environment, self.mesh)
            for name, one in self.components.items()
        }

    @property
    def environment(self) -> Environment:
        """The worlds of the first scenario."""
        return next(iter(self.components.values())).environment

    @cached_property
    def start(self) -> Callable[[jax.Array], TrainState]:
        """`init`, compiled once for this learner."""
        return jax.jit(self.init)

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update: that of each scenario alone, with the trunk of the first."""
        states = {name: part.init(key) for name, part in self.parts.items()}
        parameters: Any = SharedParameters.of_scenarios({name: one.parameters for name, one in states.items()})
        optimiser = self._optimiser.init(parameters.learned)
        rollouts: Any = {name: one.rollout for name, one in states.items()}
        key = next(iter(states.values())).key
        return jax.tree.map(typed, TrainState(parameters, optimiser, rollouts, key, jnp.zeros((), jnp.int32)))

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout in each scenario and learn from all of them."""
        rollout_key, learn_key, key = jax.random.split(state.key, 3)
        shared: Any = state.parameters
        rollouts: Any = state.rollout
        lessons, after, figures = dict[str, Lesson](), {}, Metrics()
        for number, (name, part) in enumerate(self.parts.items()):
            alone = replace(state, parameters=shared.of(name), rollout=rollouts[name], optimiser=None)
            found = part.live(alone, jax.random.fold_in(rollout_key, number))
            lessons[name], after[name] = found[:2]
            figures |= {f"{name}/{figure}": value for figure, value in found[2].items()}
        seen: Any = replace(shared, own=SharedParameters.of_scenarios(_parameters(lessons)).own)
        shared, optimiser, losses = self._learn(seen, lessons, state.optimiser, learn_key)
        rollouts = after
        return TrainState(shared, optimiser, rollouts, key, state.updates + 1), figures | losses

    def loss(
        self,
        trial: SharedParameters,
        lessons: Mapping[str, Lesson],
        columns: Mapping[str, jax.Array],
        key: jax.Array,
    ) -> tuple[jax.Array, Metrics]:
        """Return the sum of the losses of a minibatch of each scenario, and their parts."""
        total, figures = jnp.zeros(()), Metrics()
        for number, (name, part) in enumerate(self.parts.items()):
            one, found = part.loss(trial.of(name), lessons[name], columns[name], jax.random.fold_in(key, number))
            total += one
            figures |= {f"{name}/{figure}": value for figure, value in found.items()}
        return total, figures

    def shuffled(self, lessons: Mapping[str, Lesson], key: jax.Array) -> dict[str, jax.Array]:
        """Return the minibatches of an epoch, see `PPO.shuffled`, by scenario."""
        return {
            name: part.shuffled(lessons[name], jax.random.fold_in(key, number))
            for number, (name, part) in enumerate(self.parts.items())
        }

    def _learn(
        self, parameters: SharedParameters, lessons: Mapping[str, Lesson], optimiser: Any, key: jax.Array
    ) -> tuple[SharedParameters, Any, Metrics]:
        """Take the gradient steps of all epochs."""

        def step(carry: Any, index: Any) -> Any:
            current, optimiser = carry
            columns, step_key = index

            def loss(learned: tuple[Any, ...]) -> Any:
                return self.loss(current.with_learned(learned), lessons, columns, step_key)

            learned, optimiser, losses = gradient_step(loss, self._optimiser, current.learned, optimiser)
            norm = losses.pop("gradient/all")
            return (current.with_learned(learned), optimiser), losses | {f"{n}/gradient/all": norm for n in self.parts}

        def epoch(carry: Any, epoch_key: jax.Array) -> Any:
            shuffle_key, step_key = jax.random.split(epoch_key)
            order = self.shuffled(lessons, shuffle_key)
            return jax.lax.scan(step, carry, (order, jax.random.split(step_key, self.config.minibatches)))

        keys = jax.random.split(key, self.config.epochs)
        (parameters, optimiser), losses = jax.lax.scan(epoch, (parameters, optimiser), keys)
        return parameters, optimiser, jax.tree.map(jnp.mean, losses)

    @property
    def _optimiser(self) -> Any:
        return next(iter(self.parts.values())).optimiser


def _parameters(lessons: Mapping[str, Lesson]) -> dict[str, AgentParameters]:
    return {name: lesson.parameters for name, lesson in lessons.items()}


@dataclass(frozen=True)
class SharedComponents:
    """The parts of a training run with several scenarios."""

    config: TrainConfig
    learner: SharedTrunk


def build_run(config: TrainConfig) -> TrainingComponents | SharedComponents:
    """Build the parts of a training run of one scenario or of several.

    Raises:
        TestudoError: the configuration is invalid, or does not go with several scenarios; the text names the option.
    """
    names = config.scenarios
    if len(names) == 1:
        return build(config)
    if len(set(names)) < len(names):
        raise TestudoError(f"scenario: found {config.scenario}, expected each scenario once")
    for option, found, expected in (
        ("--trainer", config.trainer, ("testudo",)),
        ("--algorithm", config.algorithm, ("mappo", "ippo")),
        ("--sharing", config.sharing, ("shared",)),
        ("--teacher", "one" if config.teacher else "none", ("none",)),
    ):
        if found not in expected:
            raise TestudoError(f"{option}: found {found} for several scenarios, expected {' or '.join(expected)}")
    parts = {name: build(replace(config, scenario=name, trunk=config.scenario)) for name in names}
    return SharedComponents(config, SharedTrunk(config, parts))
