"""Replay of the steps of whole teams: the ring buffer is flashbax's."""

from dataclasses import dataclass
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
from flashbax.buffers.trajectory_buffer import TrajectoryBuffer, TrajectoryBufferState

from testudo_policies.learning.losses import Batch
from testudo_policies.train_config import TrainConfig

_PAIR = 2  # steps of a sequence without memory: a step, and its next state


@dataclass(frozen=True)
class Replay:
    """The newest steps of all worlds, drawn as sequences (L, E * N).

    Of a policy with memory a sequence has the length of a rollout and begins with the memory that the robot had then
    (Kapturowski et al., 2019); without memory it is a step and the next one.
    """

    config: TrainConfig

    @property
    def length(self) -> int:
        """Return the steps L of a sequence."""
        return self.config.rollout if self.config.memory else _PAIR

    @property
    def sequences(self) -> int:
        """Return the number E of sequences in a gradient step: the decisions of a minibatch of PPO, of new steps."""
        return max(1, self.config.worlds * self.config.rollout // (self.config.minibatches * (self.length - 1)))

    def empty(self, batch: Any) -> TrajectoryBufferState[Any]:
        """Return the buffer without steps, for rollouts (T, E * N, ...) as shapes."""
        one = jax.tree.map(lambda x: jnp.zeros((self.config.team_size, *x.shape[2:]), x.dtype), batch)
        return self._buffer.init(one)

    def add(self, state: TrajectoryBufferState[Any], batch: Batch) -> TrajectoryBufferState[Any]:
        """Return the buffer with a rollout, in place of the oldest steps."""
        return self._buffer.add(state, self._by_world(batch))

    def draw(self, state: TrajectoryBufferState[Any], key: jax.Array) -> Batch:
        """Return random sequences (L, E * N, ...)."""
        found = self._buffer.sample(state, key).experience
        robots = self.config.team_size * self.sequences

        def by_time(values: jax.Array) -> jax.Array:
            return jnp.moveaxis(values, 1, 0).reshape(self.length, robots, *values.shape[3:])

        drawn: Batch = jax.tree.map(by_time, found)
        return drawn

    def _by_world(self, batch: Batch) -> Batch:
        """Return steps (T, E * N, ...) as (E, T, N, ...), the form of the buffer."""
        team = self.config.team_size
        by_world: Batch = jax.tree.map(
            lambda x: jnp.moveaxis(jnp.reshape(x, (x.shape[0], -1, team, *x.shape[2:])), 0, 1), batch
        )
        return by_world

    @property
    def _buffer(self) -> TrajectoryBuffer[Any, Any, Any]:
        config = self.config
        longest = max(config.replay // config.worlds, 2 * config.rollout)
        return flashbax.make_trajectory_buffer(
            add_batch_size=config.worlds,
            sample_batch_size=self.sequences,
            sample_sequence_length=self.length,
            period=1,
            min_length_time_axis=config.rollout,
            max_length_time_axis=longest - longest % config.rollout,
        )
