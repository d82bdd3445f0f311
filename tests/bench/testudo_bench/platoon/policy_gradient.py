"""PPO of the cars' policies, all at once: one network for all cars, a critic that sees the whole platoon (MAPPO).

As in the paper's comparison the cars learn together. A car's network sees what its shield sees, both speeds and the
gap, and chooses among the admitted accelerations only; a car's cost in a second is its gap. Without the shield a gap
that becomes unsafe costs `Learning.penalty_m` in every second that follows, and ends the episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.random import Generator
from numpy.typing import NDArray

from testudo_bench.platoon.cars import PlatoonState, Values, advance, at_rest
from testudo_bench.platoon.driving import SECONDS, Choice, Task, accelerations
from testudo_bench.platoon.learners import Learning
from testudo_bench.platoon.shields import CarShield, Mask

_SPEED_M_S, _GAP_M = 10.0, 50.0  # units of the networks' inputs
_NEVER = -1e9  # score of what is not admitted

type Seen = NDArray[np.float32]


@dataclass(frozen=True)
class PPOSettings:
    """How the networks learn."""

    batches: int = 50  # into which the episodes are divided, each of which is learned from once
    width: int = 64
    discount: float = 0.95
    trace: float = 0.95  # lambda of the generalised advantage estimate
    clip: float = 0.2
    entropy: float = 0.01
    learning_rate: float = 1e-3
    epochs: int = 4
    minibatches: int = 8


class _Net(nn.Module):
    """Two hidden layers."""

    width: int
    outputs: int

    @nn.compact
    def __call__(self, seen: jax.Array) -> jax.Array:
        for _ in range(2):
            seen = nn.tanh(nn.Dense(self.width)(seen))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(0.01))(seen)


@dataclass(frozen=True)
class NetworkDriver:
    """Chooses the admitted acceleration with the highest score; see `Driver`."""

    scores: Callable[[Seen], jax.Array]  # from what cars see (..., 3) to scores (..., A)

    def __call__(self, state: PlatoonState, admitted: Mask, random: Generator) -> Choice:
        """See `Driver`."""
        del random
        scores = np.moveaxis(np.asarray(self.scores(_seen(state))), -1, 0)
        return np.argmax(np.where(admitted, scores, -np.inf), axis=0)


@dataclass(frozen=True)
class Platoon:
    """What came of learning."""

    driver: NetworkDriver
    unsafe_episodes: int  # of the learning


def learn_together(
    task: Task,
    shield: CarShield,
    learning: Learning,
    seed: int,
    say: Callable[[float], None] = lambda _: None,
    settings: PPOSettings = PPOSettings(),
) -> Platoon:
    """Return the driver that all cars share; ``say`` is called with the finished share."""
    random, learner = np.random.default_rng(seed), _Learner.create(task, settings)
    nets = learner.init(jax.random.key(seed))
    batches, unsafe = min(settings.batches, learning.episodes), 0
    for batch in range(batches):
        episodes = learning.episodes // batches + (batch < learning.episodes % batches)
        lived, lost = _episodes(task, shield, learning, learner, nets[0], episodes, random)
        unsafe += lost
        nets = learner.update(nets, lived, jax.random.key(int(random.integers(2**31))))
        say((batch + 1) / batches)
    return Platoon(NetworkDriver(jax.jit(partial(learner.actor.apply, nets[0][0]))), unsafe)


def _seen(state: PlatoonState) -> Seen:
    """Return what each follower sees (K, E, 3): own speed, speed of the car ahead, gap."""
    speed = state.speed_m_s / _SPEED_M_S
    return np.stack([speed[1:], speed[:-1], state.gap_m / _GAP_M], axis=-1).astype(np.float32)


def _whole(state: PlatoonState) -> Seen:
    """Return what the critic sees of each follower (K, E, 3 + cars + K + K): its own view, the platoon, its number."""
    followers, episodes = state.gap_m.shape
    all_of_it = np.concatenate([state.speed_m_s / _SPEED_M_S, state.gap_m / _GAP_M]).T
    shape = (followers, episodes, all_of_it.shape[1])
    number = np.broadcast_to(np.eye(followers)[:, None], (followers, episodes, followers))
    return np.concatenate([_seen(state), np.broadcast_to(all_of_it, shape), number], axis=-1).astype(np.float32)


def _episodes(
    task: Task, shield: CarShield, learning: Learning, learner: "_Learner", nets: Any, episodes: int, random: Generator
) -> tuple[dict[str, Values], int]:
    """Return what the followers lived through, arrays (T, K, E, ...), and the number of episodes that became unsafe."""
    state, rows = at_rest(task.cars - 1, episodes, task.start_gap_m), []
    for _ in range(SECONDS):
        admitted = shield.admits(state.speed_m_s[1:], state.speed_m_s[:-1], state.gap_m)
        admitted[0] |= ~np.any(admitted, axis=0)
        seen, whole = _seen(state), _whole(state)
        scores, value = (np.asarray(x) for x in learner.act(nets, seen, whole))
        allowed = np.moveaxis(admitted, 0, -1)
        chance = _chances(scores, allowed)
        chosen = np.argmax(np.cumsum(chance, axis=-1) > random.random((*chance.shape[:-1], 1)), axis=-1)
        after = advance(task.spec, state, accelerations(task.spec, state, chosen, random), task.lag_s)
        lost = state.all_safe & ~after.all_safe
        unsafe = learning.penalty_m / (1 - learner.settings.discount)
        cost = np.where(lost & ~after.safe, unsafe, after.gap_m)
        taken = np.log(np.take_along_axis(chance, chosen[..., None], axis=-1)[..., 0])
        over = np.broadcast_to(~after.all_safe, cost.shape)
        counted = np.broadcast_to(state.all_safe, cost.shape)
        rows.append((seen, whole, allowed, chosen, taken, value, -cost / _GAP_M, over, counted))
        state = after
    names = ("seen", "whole", "allowed", "chosen", "taken", "value", "reward", "over", "counted")
    lived = {name: np.stack(parts) for name, parts in zip(names, zip(*rows, strict=True), strict=True)}
    lived["last"] = np.asarray(learner.act(nets, _seen(state), _whole(state))[1])
    return lived, int(np.sum(~state.all_safe))


def _chances(scores: Values, allowed: Mask) -> Values:
    masked = np.where(allowed, scores.astype(float), _NEVER)
    chance = np.exp(masked - np.max(masked, axis=-1, keepdims=True)) * allowed
    return chance / np.sum(chance, axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class _Learner:
    """The networks and their update."""

    settings: PPOSettings
    actor: _Net
    critic: _Net
    optimiser: optax.GradientTransformation
    sizes: tuple[int, int]  # of what actor and critic see

    @classmethod
    def create(cls, task: Task, settings: PPOSettings) -> "_Learner":
        optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(settings.learning_rate))
        actor = _Net(settings.width, len(task.spec.accelerations_m_s2))
        return cls(settings, actor, _Net(settings.width, 1), optimiser, (3, 3 + 3 * task.cars - 2))

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """Return the parameters of actor and critic, and the state of the optimiser."""
        nets = tuple(
            net.init(one, jnp.zeros(size))
            for net, one, size in zip((self.actor, self.critic), jax.random.split(key), self.sizes, strict=True)
        )
        return nets, self.optimiser.init(nets)

    @partial(jax.jit, static_argnums=0)
    def act(self, nets: Any, seen: Seen, whole: Seen) -> tuple[jax.Array, jax.Array]:
        """Return scores (..., A) and values (...)."""
        return self.actor.apply(nets[0], seen), self._value(nets, whole)  # type: ignore[return-value]

    def _value(self, nets: Any, whole: Any) -> jax.Array:
        found: Any = self.critic.apply(nets[1], whole)
        return found[..., 0] / (1 - self.settings.discount)

    @partial(jax.jit, static_argnums=0)
    def update(self, state: tuple[Any, Any], lived: dict[str, Any], key: jax.Array) -> tuple[Any, Any]:
        """Return parameters and optimiser after the epochs of PPO over a batch of episodes."""
        settings = self.settings
        later = jnp.concatenate([lived["value"][1:], lived["last"][None]])
        going = 1.0 - lived["over"]
        error = lived["reward"] + settings.discount * going * later - lived["value"]

        def back(after: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            advantage = now[0] + settings.discount * settings.trace * now[1] * after
            return advantage, advantage

        _, advantage = jax.lax.scan(back, jnp.zeros_like(error[0]), (error, going), reverse=True)
        counted = lived["counted"].astype(float)
        mean = jnp.sum(advantage * counted) / jnp.sum(counted)
        spread = jnp.sqrt(jnp.sum((advantage - mean) ** 2 * counted) / jnp.sum(counted))
        batch = {name: value for name, value in lived.items() if name not in ("last", "reward", "over")}
        batch |= {"goal": advantage + lived["value"], "advantage": (advantage - mean) / (spread + 1e-6)}
        batch = {name: value.reshape(-1, *value.shape[3:]) for name, value in batch.items()}
        size = len(batch["taken"]) // settings.minibatches

        def step(carry: tuple[Any, Any], rows: jax.Array) -> tuple[tuple[Any, Any], None]:
            nets, optimiser = carry
            slope = jax.grad(self._loss)(nets, {name: value[rows] for name, value in batch.items()})
            change, optimiser = self.optimiser.update(slope, optimiser)
            return (optax.apply_updates(nets, change), optimiser), None

        def epoch(carry: tuple[Any, Any], one: jax.Array) -> tuple[tuple[Any, Any], None]:
            order = jax.random.permutation(one, len(batch["taken"]))[: size * settings.minibatches]
            return jax.lax.scan(step, carry, order.reshape(settings.minibatches, size))

        return jax.lax.scan(epoch, state, jax.random.split(key, settings.epochs))[0]

    def _loss(self, nets: Any, part: dict[str, jax.Array]) -> jax.Array:
        settings, scores = self.settings, self.actor.apply(nets[0], part["seen"])
        chance = jax.nn.log_softmax(jnp.where(part["allowed"], scores, _NEVER))  # type: ignore[arg-type]
        taken = jnp.take_along_axis(chance, part["chosen"][:, None], axis=-1)[:, 0]
        ratio = jnp.exp(taken - part["taken"])
        bounded = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        gain = jnp.minimum(ratio * part["advantage"], bounded * part["advantage"])
        entropy = -jnp.sum(jnp.where(part["allowed"], jnp.exp(chance) * chance, 0.0), axis=-1)
        miss = ((self._value(nets, part["whole"]) - part["goal"]) * (1 - settings.discount)) ** 2
        loss = miss - gain - settings.entropy * entropy
        return jnp.sum(loss * part["counted"]) / jnp.maximum(jnp.sum(part["counted"]), 1.0)
