"""What all learners are: the parts of a run, a start that is compiled once, and a learning rate that falls."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import optax
from jax.sharding import Mesh

from testudo_policies.learning.losses import Batch
from testudo_policies.learning.rollout import RolloutState, StepFigures, collect_rollout
from testudo_policies.learning.train_state import Metrics, TrainState
from testudo_policies.networks.agent import Agent
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment


@dataclass(frozen=True)
class RunLearner(ABC):
    """The learner of one run, without its algorithm."""

    config: TrainConfig
    agent: Agent
    environment: Environment
    mesh: Mesh | None = None  # devices over which the worlds are sharded; None for one device

    @cached_property
    def start(self) -> Callable[[jax.Array], TrainState]:
        """`init`, compiled once for this learner."""
        return jax.jit(self.init)

    @abstractmethod
    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update."""

    @abstractmethod
    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout and learn from it."""

    def collect(self, state: TrainState, key: jax.Array, **how: Any) -> tuple[RolloutState, Batch, StepFigures]:
        """Return the rollout of an update; ``how`` are further options of `collect_rollout`."""
        length = self.config.rollout
        return collect_rollout(self.agent, self.environment, state.parameters, state.rollout, key, length, **how)

    def falling_rate(self, uses: int = 1) -> optax.Schedule:
        """Return the learning rate, which falls to a tenth, of an optimiser with ``uses`` in each gradient step."""
        config = self.config
        steps = config.updates * config.epochs * config.minibatches * uses
        return optax.linear_schedule(config.learning_rate, config.learning_rate / 10, steps)
