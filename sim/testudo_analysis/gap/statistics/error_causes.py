"""What kind of error it is: the part of it that goes with the way, with changes of speed, and with turns.

A wrong scale makes an error that grows with the way; a wrong lag or delay one that goes with the change of velocity;
speed that is lost in turns one that goes with the product of way and turn rate. All of them are fitted at once by
least squares, so that each says what the others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.statistics.block_bootstrap import Interval, TimeBlocks

_WORTH, _LEAST = 0.02, 0.005
"""A cause is named if it explains this share of the squared error, and makes an error of this share of the motion."""
_KEPT = 0.995
"""Share of the starts, by size of the error, that is fitted: jumps of the tracker would rule the squares."""


@dataclass(frozen=True)
class ErrorCause:
    """One part of the error."""

    kind: str
    """`speed scale`, `turn scale`, `response`, `turn response`, `turn slip` or `heading offset`."""
    effect: Interval
    unit: str
    explains: float
    """Share of the squared error of its channel that it accounts for beside the others, or after the larger ones."""
    words: str
    named: bool
    """It is there for sure, and matters."""


@dataclass(frozen=True)
class CauseTerm:
    """A kind of error that a fit looks for."""

    kind: str
    unit: str
    say: Callable[[Interval], str]


def _share(model_does: str, other: str) -> Callable[[Interval], str]:
    def say(effect: Interval) -> str:
        value, low, high = (100 * end for end in (effect.value, effect.low, effect.high))
        which = model_does if value > 0 else other
        low, high = sorted((abs(low), abs(high))) if low * high > 0 else (low, high)
        return f"{which} by {abs(value):.1f} % ({low:.1f} to {high:.1f})"

    return say


def _delay(what: str) -> Callable[[Interval], str]:
    def say(effect: Interval) -> str:
        value, low, high = (1e3 * end for end in (effect.value, effect.low, effect.high))
        low, high = sorted((abs(low), abs(high))) if low * high > 0 else (low, high)
        when = "early" if value > 0 else "late"
        return f"lag- or delay-like: the model {what} {abs(value):.0f} ms too {when} ({low:.0f} to {high:.0f})"

    return say


def _slip(effect: Interval) -> str:
    lost = "loses" if effect.value > 0 else "gains"
    return (
        f"slip-like: the robot {lost} {abs(effect.value):.2f} of its speed for each rad/s of turning "
        f"({effect.low:.2f} to {effect.high:.2f}) beside what the model has"
    )


def _offset(effect: Interval) -> str:
    value, low, high = np.degrees([effect.value, effect.low, effect.high])
    side = "right" if value > 0 else "left"
    return (
        f"offset-like: the robot drives {abs(value):.2f} deg to the {side} of the heading that is recorded "
        f"({low:.2f} to {high:.2f})"
    )


SCALE, TURN_SCALE, RESPONSE, TURN_RESPONSE = "speed scale", "turn scale", "response", "turn response"
SLIP, OFFSET = "turn slip", "heading offset"
_ALONG = (
    CauseTerm(SCALE, "1", _share("scale-like: the model drives too far", "scale-like: the model drives too little")),
    CauseTerm(RESPONSE, "s", _delay("changes its speed")),
    CauseTerm(SLIP, "s/rad", _slip),
)
_YAW = (
    CauseTerm(TURN_SCALE, "1", _share("scale-like: the model turns too far", "scale-like: the model turns too little")),
    CauseTerm(TURN_RESPONSE, "s", _delay("changes its turning")),
)
_ACROSS = (CauseTerm(OFFSET, "rad", _offset),)


@dataclass(frozen=True)
class Predicted:
    """What a parameter set predicts of each window, (S,)."""

    way_m: np.ndarray
    """Signed."""
    asked_way_m: np.ndarray
    """The part of it that commands made: without what was left of the velocity at the start."""
    speed_change_m_s: np.ndarray
    turned_rad: np.ndarray | None = None
    """None for robots that hold their heading, as below."""
    asked_turn_rad: np.ndarray | None = None
    turn_change_rad_s: np.ndarray | None = None


def causes(
    blocks: TimeBlocks, errors: Mapping[str, np.ndarray], predicted: Predicted, horizon_s: float
) -> tuple[ErrorCause, ...]:
    """Return the parts of the error after one horizon, those that explain most first.

    Args:
        blocks: of time.
        errors: predicted less real (S,) by channel: along, across [m], yaw [rad]; NaN where missing.
        predicted: what the errors may go with.
        horizon_s: of both.
    """
    found, way, turned = [], predicted.way_m, predicted.turned_rad
    along = [predicted.asked_way_m, predicted.speed_change_m_s]
    along += [] if turned is None else [way * np.abs(turned) / horizon_s]
    found += fit_terms(blocks, errors["along"], along, _ALONG[: len(along)])
    if turned is not None:
        found += fit_terms(blocks, errors["yaw"], [predicted.asked_turn_rad, predicted.turn_change_rad_s], _YAW)
        # what follows from a wrong heading at the end is half of it on the way
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
    """Return what each of the terms accounts for.

    Args:
        blocks: of time.
        error: predicted less real (S,); NaN where missing.
        columns: what the error may go with, (S,) for each term; the effect is the error over it.
        terms: their kinds.
        in_turn: what a term explains is told after those that explain more, not beside all others.
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
            ErrorCause(terms[which].kind, effect, terms[which].unit, shares[k], terms[which].say(effect), bool(named))
        )
    return found


def _beside_the_others(squares: np.ndarray, products: np.ndarray, total: float) -> list[float]:
    """Return the share of the squared error that each term accounts for when all others have done what they can."""
    left, every = _left(squares, products, total), range(len(products))
    without = [[i for i in every if i != k] for k in every]
    return [max((_left(squares[np.ix_(rest, rest)], products[rest], total) - left) / total, 0.0) for rest in without]


def _in_turn(squares: np.ndarray, products: np.ndarray, total: float) -> list[float]:
    """Return the share that each accounts for of what is left by those before it, the one that takes most always next.

    For terms that resemble one another: beside the others none of them would account for anything.
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
    """Return the squared error that the best fit leaves."""
    if not len(products):
        return total
    return total - float(products @ np.linalg.solve(squares + 1e-9 * np.eye(len(products)), products))
