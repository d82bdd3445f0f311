"""Kinds of error: the parts proportional to distance, to changes of speed, and to turns.

A wrong scale makes an error proportional to the distance, a wrong lag or delay one proportional to the change of
velocity, speed lost in turns one proportional to distance times turn rate. One least-squares fit has all of them, so
that each explains what the others leave.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.block_bootstrap import Interval, TimeBlocks

_WORTH, _LEAST = 0.02, 0.005
"""A cause is named if it explains this share of the squared error and is this share of the motion."""
_KEPT = 0.995
"""Share of the starts, by size of the error, that is fitted: tracker jumps would dominate the squares."""


@dataclass(frozen=True)
class ErrorCause:
    """One part of the error."""

    kind: str  # `speed scale`, `turn scale`, `response`, `turn response`, `turn slip` or `heading offset`
    effect: Interval
    unit: str
    explains: float
    """Explained share of the squared error of its channel: beside the other causes, or after the larger ones."""
    words: str
    named: bool  # it is significant and large enough to matter


@dataclass(frozen=True)
class CauseTerm:
    """A kind of error that a fit looks for."""

    kind: str
    unit: str
    text: str  # sentence with `{}` for size, low and high; `[a|b]` is a for positive effects, b for others
    factor: float = 1.0  # from the unit to that of the sentence
    digits: str = ".1f"
    signed: bool = False  # the ends of the interval keep their signs even if both are the same

    def words(self, effect: Interval) -> str:
        """Return the sentence of an effect."""
        value, low, high = (self.factor * end for end in (effect.value, effect.low, effect.high))
        if low * high > 0 and not self.signed:
            low, high = sorted((abs(low), abs(high)))
        chosen = re.sub(r"\[(.*?)\|(.*?)\]", lambda match: match[1] if value > 0 else match[2], self.text)
        return chosen.format(*(f"{number:{self.digits}}" for number in (abs(value), low, high)))


SCALE, TURN_SCALE, RESPONSE, TURN_RESPONSE = "speed scale", "turn scale", "response", "turn response"
SLIP, OFFSET = "turn slip", "heading offset"
_LATE = "lag- or delay-like: the model changes its {what} {{}} ms too [early|late] ({{}} to {{}})"
_ALONG = (
    CauseTerm(SCALE, "1", "scale-like: the model drives too [far|little] by {} % ({} to {})", 100),
    CauseTerm(RESPONSE, "s", _LATE.format(what="speed"), 1e3, ".0f"),
    CauseTerm(
        SLIP,
        "s/rad",
        "slip-like: the robot [loses|gains] {} of its speed for each rad/s of turning ({} to {}) beyond the model",
        digits=".2f",
        signed=True,
    ),
)
_YAW = (
    CauseTerm(TURN_SCALE, "1", "scale-like: the model turns too [far|little] by {} % ({} to {})", 100),
    CauseTerm(TURN_RESPONSE, "s", _LATE.format(what="turning"), 1e3, ".0f"),
)
_SIDE = "offset-like: the robot drives {} deg to the [right|left] of the recorded heading ({} to {})"
_ACROSS = (CauseTerm(OFFSET, "rad", _SIDE, 180 / np.pi, ".2f", signed=True),)


@dataclass(frozen=True)
class Predicted:
    """Predictions of a parameter set for each window."""

    along: np.ndarray
    """(3, S): signed distance [m]; its part caused by commands, without the initial velocity; change of speed [m/s]."""
    turn: np.ndarray | None = None
    """(3, S): the same of the heading [rad, rad, rad/s]; None for robots that hold their heading."""


def causes(
    blocks: TimeBlocks, errors: Mapping[str, np.ndarray], predicted: Predicted, horizon_s: float
) -> tuple[ErrorCause, ...]:
    """Return the parts of the error after one horizon, sorted by the explained share.

    ``errors`` are predicted less real (S,) by channel: along, across [m], yaw [rad]; NaN where missing.
    """
    way, asked, change = predicted.along
    if predicted.turn is None:
        found = fit_terms(blocks, errors["along"], [asked, change], _ALONG[:2])
    else:
        turned, *regressors = predicted.turn
        found = fit_terms(blocks, errors["along"], [asked, change, way * np.abs(turned) / horizon_s], _ALONG)
        found += fit_terms(blocks, errors["yaw"], regressors, _YAW)
        # half of the final heading error acts along the path
        found += fit_terms(blocks, errors["across"] - 0.5 * way * errors["yaw"], [way], _ACROSS)
    return tuple(sorted(found, key=lambda cause: -cause.explains))


def fit_terms(
    blocks: TimeBlocks,
    error: np.ndarray,
    columns: Sequence[np.ndarray],
    terms: Sequence[CauseTerm],
    *,
    in_turn: bool = False,
) -> list[ErrorCause]:
    """Return the part of the error that each term explains.

    ``error`` (S,) is predicted less real, NaN where missing; ``columns`` are the regressors (S,) of the terms, and the
    effect of a term is its coefficient. With ``in_turn`` the explained share of a term is that after the larger ones,
    not beside all others.
    """
    good = np.isfinite(error) & np.all([np.isfinite(column) for column in columns], axis=0)
    if good.sum() < 10 * len(columns):
        return []
    good &= np.abs(error) <= np.quantile(np.abs(error[good]), _KEPT)
    x, y, index = np.stack(columns)[:, good], error[good], blocks.index[good]
    used = [k for k, row in enumerate(x) if np.sqrt(np.mean(row**2)) > 1e-9]
    if not used or not np.any(y):
        return []
    x, size = x[used], len(used)
    count = blocks.weights.shape[1]
    squares = np.array([[np.bincount(index, x[i] * x[j], count) for j in range(size)] for i in range(size)])
    products = np.array([np.bincount(index, row * y, count) for row in x])
    scale = np.sqrt(np.einsum("iib->i", squares))
    squares, products = squares / scale[:, None, None] / scale[None, :, None], products / scale[:, None]
    ridge = 1e-9 * np.eye(size)
    value = np.linalg.solve(squares.sum(axis=2) + ridge, products.sum(axis=1))
    drawn = np.einsum("ijb,rb->rij", squares, blocks.weights), np.einsum("ib,rb->ri", products, blocks.weights)
    samples = np.linalg.solve(drawn[0] + ridge, drawn[1][..., None])[..., 0]
    total = float(y @ y)
    shares = (_in_turn if in_turn else _beside_the_others)(squares.sum(axis=2), products.sum(axis=1), total)
    found = []
    for k, which in enumerate(used):
        effect = Interval.of_samples(float(value[k] / scale[k]), samples[:, k] / scale[k])
        named = (
            (effect.is_above or effect.is_below)
            and shares[k] > _WORTH
            and abs(effect.value) * scale[k] > _LEAST * scale.max()
        )
        found.append(
            ErrorCause(terms[which].kind, effect, terms[which].unit, shares[k], terms[which].words(effect), bool(named))
        )
    return found


def _beside_the_others(squares: np.ndarray, products: np.ndarray, total: float) -> list[float]:
    """Return the share of the squared error that each term explains in addition to all others."""
    left, every = _left(squares, products, total), range(len(products))
    without = [[i for i in every if i != k] for k in every]
    return [max((_left(squares[np.ix_(rest, rest)], products[rest], total) - left) / total, 0.0) for rest in without]


def _in_turn(squares: np.ndarray, products: np.ndarray, total: float) -> list[float]:
    """Return the share that each term explains of what the terms before it leave, the largest first.

    For correlated terms: in addition to the others none of them would explain anything.
    """
    shares, taken, left = [0.0] * len(products), [], total
    while len(taken) < len(products):
        rest = {
            k: _left(squares[np.ix_([*taken, k], [*taken, k])], products[[*taken, k]], total)
            for k in range(len(products))
            if k not in taken
        }
        best = min(rest, key=lambda k: rest[k])
        shares[best] = max((left - rest[best]) / total, 0.0)
        left = rest[best]
        taken.append(best)
    return shares


def _left(squares: np.ndarray, products: np.ndarray, total: float) -> float:
    """Return the squared error of the best fit."""
    if not len(products):
        return total
    return total - float(products @ np.linalg.solve(squares + 1e-9 * np.eye(len(products)), products))
