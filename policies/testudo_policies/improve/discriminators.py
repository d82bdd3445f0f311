"""Two discriminators that tell real from simulated motion, and the ratio of dynamics that they give.

With balanced classes, logit p(real | s, a, s') less logit p(real | s, a) is log p_real(s' | s, a) / p_sim(s' | s, a)
(Eysenbach et al., 2021; H2O: Niu et al., 2022, "When to Trust Your Simulator"). As in both, noise on the inputs keeps
the discriminators from telling single samples apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from testudo_policies.improve.motion_features import ACTION, NEXT, STATE, flat_motion

Motion = dict[str, jax.Array]


@dataclass(frozen=True)
class DiscriminatorConfig:
    """Sizes and rates."""

    width: int = 64
    steps: int = 8
    """Gradient steps after each rollout."""
    samples: int = 512
    """Of each class, for one step."""
    learning_rate: float = 1e-3
    noise: float = 0.1
    """Of the inputs, as a share of their spread in the real data."""
    least: float = 0.01
    """Smallest trust; the largest is 1, as in H2O's own code."""


class _Judge(nn.Module):
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
    """Everything that the discriminators learn, and what they are fed with."""

    with_next: Any
    without_next: Any
    optimiser: Any


@dataclass(frozen=True)
class Discriminators:
    """Made for the motions of some real data."""

    config: DiscriminatorConfig
    real: Motion
    """(M, C) by part."""
    known: jax.Array
    """(M,) bool: the steps of the real data that have a motion."""

    def init(self, key: jax.Array) -> DiscriminatorParameters:
        """Return untrained judges, which trust everything alike."""
        first, second = jax.random.split(key)
        parts = (
            self._judge.init(first, self._joined(self.real)[:1]),
            self._judge.init(second, self._short(self.real)[:1]),
        )
        return DiscriminatorParameters(*parts, self._optimiser.init(parts))

    def trust(self, judges: DiscriminatorParameters, motion: Motion, known: jax.Array) -> jax.Array:
        """Return the truncated ratio of dynamics (...) of simulated motions; 1 where there is none."""
        long = self._judge.apply(judges.with_next, self._joined(motion))
        short = self._judge.apply(judges.without_next, self._short(motion))
        ratio = jnp.exp(jnp.clip(long - short, jnp.log(self.config.least), 0.0))
        return jnp.where(known, ratio, 1.0)

    def learn(
        self, judges: DiscriminatorParameters, motion: Motion, known: jax.Array, key: jax.Array
    ) -> tuple[DiscriminatorParameters, jax.Array]:
        """Return the judges after some steps on simulated motions (...), and their mean loss (log 2: cannot tell)."""
        flat, known = flat_motion(motion, known)

        def step(current: DiscriminatorParameters, step_key: jax.Array) -> tuple[DiscriminatorParameters, jax.Array]:
            rows_key, real_key, noise_key = jax.random.split(step_key, 3)
            simulated = self._drawn(flat, known, rows_key)
            real = self._drawn(self.real, self.known, real_key)

            def loss(parts: tuple[Any, Any]) -> jax.Array:
                return self._loss(parts, real, simulated, noise_key)

            parts = (current.with_next, current.without_next)
            value, gradient = jax.value_and_grad(loss)(parts)
            changes, optimiser = self._optimiser.update(gradient, current.optimiser, parts)
            return DiscriminatorParameters(*optax.apply_updates(parts, changes), optimiser), value

        judges, losses = jax.lax.scan(step, judges, jax.random.split(key, self.config.steps))
        return judges, jnp.mean(losses)

    def _drawn(self, motion: Motion, known: jax.Array, key: jax.Array) -> Motion:
        """Return samples of the known motions."""
        first_the_known = jnp.argsort(~known)
        count = jnp.maximum(jnp.sum(known), 1)
        rows = first_the_known[jax.random.randint(key, (self.config.samples,), 0, count)]
        return {name: value[rows] for name, value in motion.items()}

    def _loss(self, parts: tuple[Any, Any], real: Motion, simulated: Motion, key: jax.Array) -> jax.Array:
        total = 0.0
        for judge, inputs, noise_key in zip(parts, (self._joined, self._short), jax.random.split(key), strict=True):
            real_key, simulated_key = jax.random.split(noise_key)
            for values, sign, one_key in ((inputs(real), -1.0, real_key), (inputs(simulated), 1.0, simulated_key)):
                noisy = values + self.config.noise * jax.random.normal(one_key, values.shape)
                total = total + jnp.mean(jax.nn.softplus(sign * self._judge.apply(judge, noisy))) / 4
        return total

    def _joined(self, motion: Motion) -> jax.Array:
        return jnp.concatenate([self._short(motion), self._scaled(motion, NEXT)], axis=-1)

    def _short(self, motion: Motion) -> jax.Array:
        return jnp.concatenate([self._scaled(motion, STATE), self._scaled(motion, ACTION)], axis=-1)

    def _scaled(self, motion: Motion, part: str) -> jax.Array:
        real, known = self.real[part], self.known[:, None]
        return (motion[part] - jnp.mean(real, axis=0, where=known)) / (jnp.std(real, axis=0, where=known) + 1e-3)

    @property
    def _judge(self) -> _Judge:
        return _Judge(self.config.width)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)
