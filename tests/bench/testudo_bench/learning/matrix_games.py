"""`testudo bench games`: HASAC's turns and MASAC's simultaneous change on matrix games that are solved exactly.

Two robots have one reward R (A, A) and mixed strategies p and q, from which J = E[R] + alpha (H(p) + H(q)) follows
exactly. The code of the learner's turns runs on them (`testudo_policies.learning.soft_turns`); a gradient step is one
of mirror descent with the rate 1 / alpha, after which a strategy is the soft best response softmax(R q / alpha) to what
the other does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from testudo_deploy.commands.report import BenchResult
from testudo_policies.learning.soft_turns import SoftTeam, turns_of

COLUMNS = ("game", "alpha", "J in turns", "reward", "largest fall of J", "J at once", "reward", "still changes by")
ROUNDS = 60
_CYCLE = 8  # last rounds, of which those at once are averaged
_SEED = 0
_LEAST = 1e-30  # smallest probability, so that its logarithm is finite


@dataclass(frozen=True)
class MatrixGame:
    """A game of two robots with one reward."""

    name: str
    reward: tuple[tuple[float, ...], ...]  # by the choice of the first and of the second robot
    temperature: float  # alpha, of each robot's entropy
    tilt: float = 0.0
    """At the start the first robot prefers its first choice by this, the second one its last; 0: uniform strategies."""

    @property
    def start(self) -> jax.Array:
        """Return the first strategies (2, A)."""
        lean = jnp.zeros((2, len(self.reward))).at[0, 0].set(self.tilt).at[1, -1].set(self.tilt)
        strategies = 1 / len(self.reward) + lean
        return strategies / jnp.sum(strategies, axis=-1, keepdims=True)


GAMES = (
    MatrixGame("coordination", ((1, 0), (0, 1.2)), 1.0),
    MatrixGame("coordination", ((1, 0), (0, 1.2)), 0.3),
    MatrixGame("climbing", ((11, -30, 0), (-30, 7, 6), (0, 0, 5)), 1.0),
    MatrixGame("climbing", ((11, -30, 0), (-30, 7, 6), (0, 0, 5)), 0.3),
    MatrixGame("penalty", ((10, 0, -100), (0, 2, 0), (-100, 0, 10)), 3.0),
    MatrixGame("penalty", ((10, 0, -100), (0, 2, 0), (-100, 0, 10)), 10.0, 0.001),  # from p = q all at once find it
)


@dataclass(frozen=True)
class Play:
    """The course of a game over rounds (R,)."""

    strategies: np.ndarray  # (R, 2, A)
    value: np.ndarray  # (R,): J
    reward: np.ndarray  # (R,): E[R]

    @property
    def largest_fall(self) -> float:
        """Return by how much J fell at most from one round to the next."""
        return float(max(0.0, np.max(self.value[:-1] - self.value[1:])))

    @property
    def last_change(self) -> float:
        """Return by how much a probability changed in the last round."""
        return float(np.max(np.abs(self.strategies[-1] - self.strategies[-2])))


def play(game: MatrixGame, *, in_turns: bool, seed: int = _SEED, rounds: int = ROUNDS) -> Play:
    """Return the course of a game in which the robots change in turns, in a new random order in each round, or not."""
    reward, alpha = jnp.asarray(game.reward, jnp.float32), game.temperature
    pair = len(game.start)

    def act(strategies: jax.Array) -> tuple[jax.Array, jax.Array]:
        logarithm = jnp.log(jnp.maximum(strategies, _LEAST))
        return strategies, jnp.sum(strategies * logarithm, axis=-1)

    def value(strategies: jax.Array) -> jax.Array:
        return strategies[0] @ reward @ strategies[1]

    # the learner weighs the mean of the entropies, and J their sum
    counted, temperature = jnp.ones(pair, bool), jnp.asarray(pair * alpha)
    team = SoftTeam(act, value, temperature, counted, _mirror_descent(1 / alpha))

    def one(strategies: jax.Array, key: jax.Array) -> Any:
        strategies, _, _ = team.changed(strategies, optax.EmptyState(), turns_of(key, pair, in_turns=in_turns))
        expected, entropy = value(strategies), -jnp.sum(act(strategies)[1])
        return strategies, (strategies, expected + alpha * entropy, expected)

    @jax.jit
    def course(key: jax.Array) -> Any:
        return jax.lax.scan(one, game.start, jax.random.split(key, rounds))[1]

    return Play(*(np.asarray(x) for x in course(jax.random.key(seed))))


def bench_games(*, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Play matrix games with the turns of HASAC, and with the simultaneous change of MASAC, exactly.

    Args:
        say: called with progress messages.
    """
    rows, values = [], []
    for game in GAMES:
        say(f"{game.name}, alpha {game.temperature:g}")
        turns, once = play(game, in_turns=True), play(game, in_turns=False)
        rows.append(_row(game, turns, once))
        values.append(_values(game, turns, once))
    title = f"exact matrix games, {ROUNDS} rounds; at once: means of the last {_CYCLE}"
    return BenchResult(title, COLUMNS, rows, {"games": values})


def _mirror_descent(rate: float) -> optax.GradientTransformation:
    """Return steps of probabilities (..., A) along the gradient of their logarithms, which keep their sum."""

    def update(gradient: Any, state: Any, strategies: Any) -> tuple[Any, Any]:
        logarithm = jnp.log(jnp.maximum(strategies, _LEAST)) - rate * gradient
        return jax.nn.softmax(logarithm, axis=-1) - strategies, state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def _at_once(once: Play) -> tuple[float, float]:
    return float(np.mean(once.value[-_CYCLE:])), float(np.mean(once.reward[-_CYCLE:]))


def _row(game: MatrixGame, turns: Play, once: Play) -> tuple[str, ...]:
    value, reward = _at_once(once)
    figures = (turns.value[-1], turns.reward[-1], turns.largest_fall, value, reward, once.last_change)
    return (game.name, f"{game.temperature:g}", *(f"{figure:.2f}" for figure in figures))


def _values(game: MatrixGame, turns: Play, once: Play) -> dict[str, Any]:
    value, reward = _at_once(once)
    return {
        "game": game.name,
        "temperature": game.temperature,
        "in_turns": {
            "value": float(turns.value[-1]),
            "reward": float(turns.reward[-1]),
            "strategies": turns.strategies[-1].tolist(),
            "largest_fall": turns.largest_fall,
        },
        "at_once": {"value": value, "reward": reward, "last_change": once.last_change},
    }
