"""Two discriminators of real and simulated motion, and the dynamics ratio that follows from them.

With balanced classes, logit p(real | s, a, s') - logit p(real | s, a) = log p_real(s' | s, a) / p_sim(s' | s, a)
(Eysenbach et al., 2021; H2O: Niu et al., 2022, "When to Trust Your Simulator"). As in both papers, noise on the inputs
prevents overfitting to single samples. The inputs are a robot's own motion in its body frame: its law is the same
everywhere and in every task, so minutes of a real run are enough. Peers act through the shield, which is the same in
reality and simulation.
"""

from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from testudo_policies.learning.losses import Batch
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.observation_encoding import Features, out_of_frame
from testudo_sim.scenarios.scenario import BODY, WORLD

Motion = dict[str, jax.Array]


@dataclass(frozen=True)
class DiscriminatorConfig:
    """Sizes and training parameters of the discriminators."""

    width: int = 64
    steps: int = 8  # gradient steps after each rollout
    samples: int = 512  # samples of each class in one gradient step
    learning_rate: float = 1e-3
    noise: float = 0.1  # noise on the inputs, as a share of their standard deviation in the real data
    least: float = 0.01  # lower bound of the ratio; the upper bound is 1, as in the code of H2O


class _Classifier(nn.Module):
    width: int

    @nn.compact
    def __call__(self, values: jax.Array) -> jax.Array:
        """Return logits (...)."""
        for _ in range(2):
            values = nn.relu(nn.Dense(self.width)(values))
        return nn.Dense(1)(values)[..., 0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiscriminatorParameters:
    """Parameters of both classifiers and the optimiser's state."""

    with_next: Any
    without_next: Any
    optimiser: Any


@dataclass(frozen=True)
class Discriminators:
    """Discriminators for given real motions."""

    config: DiscriminatorConfig
    real: Motion  # (M, C) by part
    known: jax.Array  # (M,) bool: real steps with a known motion

    def init(self, key: jax.Array) -> DiscriminatorParameters:
        """Return untrained classifiers."""
        first, second = jax.random.split(key)
        parts = (
            self._classifier.init(first, self._joined(self.real)[:1]),
            self._classifier.init(second, self._short(self.real)[:1]),
        )
        return DiscriminatorParameters(*parts, self._optimiser.init(parts))

    def trust(self, classifiers: DiscriminatorParameters, motion: Motion, known: jax.Array) -> jax.Array:
        """Return the clipped dynamics ratio (...) of simulated motions; 1 where the motion is unknown."""
        log_ratio = self.log_ratio(classifiers, motion, known)
        return jnp.exp(jnp.clip(log_ratio, jnp.log(self.config.least), 0.0))

    def log_ratio(self, classifiers: DiscriminatorParameters, motion: Motion, known: jax.Array) -> jax.Array:
        """Return log p_real(s' | s, a) / p_sim(s' | s, a) (...) of motions; 0 where the motion is unknown."""
        long = self._logit(classifiers.with_next, self._joined(motion))
        short = self._logit(classifiers.without_next, self._short(motion))
        return jnp.where(known, long - short, 0.0)

    def gap(
        self, classifiers: DiscriminatorParameters, motion: Motion, known: jax.Array, noise: jax.Array
    ) -> jax.Array:
        """Return the mean (...) of log p_sim / p_real over next states about the simulated ones.

        ``noise`` (K, ..., C) is what is added to the next state, in standard deviations of the real data.
        """
        scale = jnp.std(self.real[NEXT], axis=0, where=self.known[:, None])

        def once(moved: jax.Array) -> jax.Array:
            return -self.log_ratio(classifiers, {**motion, NEXT: motion[NEXT] + scale * moved}, known)

        return jnp.mean(jax.vmap(once)(noise), axis=0)

    def learn(
        self, classifiers: DiscriminatorParameters, motion: Motion, known: jax.Array, key: jax.Array
    ) -> tuple[DiscriminatorParameters, jax.Array]:
        """Return the classifiers after some gradient steps, and their mean loss (log 2: no discrimination)."""
        flat, known = flat_motion(motion, known)

        def step(current: DiscriminatorParameters, step_key: jax.Array) -> tuple[DiscriminatorParameters, jax.Array]:
            rows_key, real_key, noise_key = jax.random.split(step_key, 3)
            simulated = self._sample(flat, known, rows_key)
            real = self._sample(self.real, self.known, real_key)

            def loss(parts: tuple[Any, Any]) -> jax.Array:
                return self._loss(parts, real, simulated, noise_key)

            parts = (current.with_next, current.without_next)
            value, gradient = jax.value_and_grad(loss)(parts)
            changes, optimiser = self._optimiser.update(gradient, current.optimiser, parts)
            with_next, without_next = cast(tuple[Any, Any], optax.apply_updates(parts, changes))
            return DiscriminatorParameters(with_next, without_next, optimiser), value

        classifiers, losses = jax.lax.scan(step, classifiers, jax.random.split(key, self.config.steps))
        return classifiers, jnp.mean(losses)

    def _sample(self, motion: Motion, known: jax.Array, key: jax.Array) -> Motion:
        """Draw samples of the known motions."""
        known_first = jnp.argsort(~known)
        count = jnp.maximum(jnp.sum(known), 1)
        rows = known_first[jax.random.randint(key, (self.config.samples,), 0, count)]
        return {name: value[rows] for name, value in motion.items()}

    def _loss(self, parts: tuple[Any, Any], real: Motion, simulated: Motion, key: jax.Array) -> jax.Array:
        total = jnp.zeros(())
        for classifier, inputs, noise_key in zip(
            parts, (self._joined, self._short), jax.random.split(key), strict=True
        ):
            real_key, simulated_key = jax.random.split(noise_key)
            for values, sign, one_key in ((inputs(real), -1.0, real_key), (inputs(simulated), 1.0, simulated_key)):
                noisy = values + self.config.noise * jax.random.normal(one_key, values.shape)
                total = total + jnp.mean(jax.nn.softplus(sign * self._logit(classifier, noisy))) / 4
        return total

    def _logit(self, parameters: Any, inputs: jax.Array) -> jax.Array:
        return cast(jax.Array, self._classifier.apply(parameters, inputs))

    def _joined(self, motion: Motion) -> jax.Array:
        return jnp.concatenate([self._short(motion), self._scaled(motion, NEXT)], axis=-1)

    def _short(self, motion: Motion) -> jax.Array:
        return jnp.concatenate([self._scaled(motion, STATE), self._scaled(motion, ACTION)], axis=-1)

    def _scaled(self, motion: Motion, part: str) -> jax.Array:
        real, known = self.real[part], self.known[:, None]
        return (motion[part] - jnp.mean(real, axis=0, where=known)) / (jnp.std(real, axis=0, where=known) + 1e-3)

    @property
    def _classifier(self) -> _Classifier:
        return _Classifier(self.config.width)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)


STATE, ACTION, NEXT = "state", "action", "next"


def motions(agent: Agent, batch: Batch) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the motion of each step (T, B, C) by part, and which steps have a known motion (T, B).

    The motion of a step that ends an episode, and of the last step, is unknown: its next row is missing. Parts: the
    velocity before the step, in the robot's channels; the action, a velocity in the body frame [m/s]; and displacement
    [m], yaw change [rad] and velocity after the step.
    """
    point, yaw, velocity = _own(agent, batch.features)
    command = _rotated(agent.velocity_world(batch.features, agent.distribution.postprocess(batch.action)), -yaw)
    displacement = _rotated(_next(point) - point, -yaw)
    yaw_change = jnp.remainder(_next(yaw) - yaw + jnp.pi, 2 * jnp.pi) - jnp.pi
    known = ~(batch.terminated | batch.truncated)
    known = known & batch.counted  # a robot that brakes does not do its action
    known = known & (jnp.arange(known.shape[0]) < known.shape[0] - 1)[:, None]
    return {
        STATE: velocity,
        ACTION: command,
        NEXT: jnp.concatenate([displacement, yaw_change, _next(velocity)], axis=-1),
    }, known


def flat_motion(motion: dict[str, jax.Array], known: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return motions flattened to (M, C), and which are known (M,)."""
    return {name: value.reshape(-1, value.shape[-1]) for name, value in motion.items()}, known.reshape(-1)


def _own(agent: Agent, features: Features) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return control point (..., D), yaw (..., 1) and velocity (..., D) from the features of `encode`."""
    size, own, frame = agent.dimension, features.own, features.frame
    # a frame that points to a signal begins with the distance, twice, and the height of that
    at = 0 if agent.observation.frame in (WORLD, BODY) else 2 + (size - 2)
    point = own[..., at : at + size]
    at += size + 2
    relative = jnp.arctan2(own[..., at + 1], own[..., at])
    yaw = relative + jnp.arctan2(frame[..., 1], frame[..., 0])
    return point, yaw[..., None], own[..., at + 2 : at + 2 + size]


def _rotated(vector: jax.Array, angle: jax.Array) -> jax.Array:
    return out_of_frame(vector, jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1))


def _next(values: Any) -> jax.Array:
    """Return the values of the next step; the last row repeats itself."""
    return jnp.concatenate([values[1:], values[-1:]])
