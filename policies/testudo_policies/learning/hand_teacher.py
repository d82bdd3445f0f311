"""The hand-written velocities of a scenario as the teacher of a student.

They know the whole state of the world, which is why they may be better than what a policy can learn from its signals
alone. Of each state they say one command; as a distribution it has a fixed spread, so that the divergence from it is a
squared error of the mean.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_policies.hand_written import HAND_WRITTEN, hand_written
from testudo_policies.learning.rollout import RolloutState, flat
from testudo_policies.learning.teacher import Taught
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.observation_encoding import Features, out_of_frame
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment, WorldState

_SPREAD = 0.3  # standard deviation of an action before the tanh
_LARGEST = 0.97  # action of full speed: the tanh reaches 1 nowhere
_CERTAIN = 5.0  # score of the way-point that is meant; the others have 0
_LEAST_FRAME = 0.1  # near a goal the frame, and with it every command, gets shorter


@dataclass(frozen=True)
class HandTeacher:
    """Says how the hand-written velocities would act in the student's worlds, as an action of the student."""

    agent: Agent  # the student's

    def begin(self, key: jax.Array, rollout: RolloutState, environment: Environment) -> Taught:
        """Return its part of the state of a run: nothing, as it has neither parameters nor memory."""
        return Taught({}, jnp.zeros((rollout.hidden.shape[0], 0)))

    def label(
        self, environment: Environment, taught: Taught, worlds: WorldState, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the parameters of its distribution (B, P) in the states of worlds, and its memory (B, 0)."""
        features = flat(self.agent.encode(environment.signals(worlds)))
        return distribution_of(self.agent, features, hand_written(environment, worlds)), taught.hidden


def distribution_of(agent: Agent, features: Features, command: jax.Array) -> jax.Array:
    """Return the parameters (..., P) of the distribution around the action that gives a command (..., C)."""
    length = jnp.maximum(jnp.sqrt(jnp.sum(features.frame**2, axis=-1, keepdims=True)), _LEAST_FRAME)
    back = features.frame * jnp.array([1.0, -1.0]) / length**2
    share = 1.0 if features.speed is None else jnp.maximum(features.speed, 1e-3)
    if agent.waypoints is not None and features.point is not None:
        offset = out_of_frame((command - features.point) / share, back * length)
        return _CERTAIN * agent.waypoints.postprocess(agent.waypoints.nearest(offset))
    moves = out_of_frame(command[..., : agent.dimension] / (agent.speed_limit_m_s * share), back)
    turns = command[..., agent.dimension :] / (agent.yaw_rate_limit or 1.0)
    mean = jnp.arctanh(jnp.clip(jnp.concatenate([moves, turns], axis=-1), -_LARGEST, _LARGEST))
    return jnp.concatenate([mean, jnp.full_like(mean, jnp.log(jnp.expm1(_SPREAD)))], axis=-1)


def check_hand_teacher(config: TrainConfig) -> None:
    """Raise `TestudoError` where the hand-written velocities cannot be imitated."""
    if config.message:
        raise TestudoError(
            f"--teacher {HAND_WRITTEN}: found --message {config.message}, expected 0: the hand-written robots say "
            "nothing to each other; remove one of the options"
        )
