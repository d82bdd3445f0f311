"""Levenberg-Marquardt within bounds on sums of the stretches' curvatures: one fit for all, or one for each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testudo_analysis.identify.estimation.differentiable_rollout import BatchedRollout, Curvature

_ROUNDS = 40
_ENOUGH = 1e-5
"""A relative gain of the loss below this ends the fit."""


@dataclass(frozen=True)
class Fit:
    """G fits of P parameters."""

    values: np.ndarray
    """(G, P)."""
    loss: np.ndarray
    """(G,)."""
    curvature: Curvature
    """Of the stretches, there."""
    rounds: int


def fit(
    roller: BatchedRollout,
    start: np.ndarray,
    free: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    scale: np.ndarray,
    group: np.ndarray,
    weight: np.ndarray,
) -> Fit:
    """Return the parameters of least robust loss for each group of stretches.

    Args:
        roller: errors and their derivatives.
        start: (G, P) or (P,).
        free: (P,) bool: the others stay.
        bounds: (P,), (P,).
        scale: (H, E): what counts as a large error.
        group: (C,) int.
        weight: (C,): zero leaves a stretch out.
    """
    groups = int(group.max()) + 1
    low, high = bounds
    values = np.clip(np.broadcast_to(start, (groups, len(low))), low, high).astype(float)
    found = roller.curvature(values[group], scale)
    loss, gradient, hessian = (_summed(part, group, weight, groups) for part in _parts(found))
    damping, running = np.full(groups, 1e-3), np.ones(groups, bool)
    rounds = 0
    while rounds < _ROUNDS and running.any():
        rounds += 1
        step = np.stack([_step(values[g], gradient[g], hessian[g], damping[g], free, bounds) for g in range(groups)])
        tried = np.clip(values + np.where(running[:, None], step, 0.0), low, high)
        foreseen = -np.einsum("gp,gp->g", gradient, step)
        new = roller.curvature(tried[group], scale)
        new_loss, new_gradient, new_hessian = (_summed(part, group, weight, groups) for part in _parts(new))
        better = running & (new_loss < loss)
        gained = np.where(better, (loss - new_loss) / np.maximum(loss, 1e-300), 0.0)
        values = np.where(better[:, None], tried, values)
        gradient = np.where(better[:, None], new_gradient, gradient)
        hessian = np.where(better[:, None, None], new_hessian, hessian)
        loss = np.where(better, new_loss, loss)
        found = _chosen(found, new, better[group])
        damping = np.where(better, np.maximum(damping / 5, 1e-7), np.minimum(damping * 8, 1e9))
        running &= ~(better & (gained < _ENOUGH)) & (damping < 1e6) & ~(~better & (foreseen < _ENOUGH * loss))
    return Fit(values, loss, found, rounds)


def _parts(found: Curvature) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.loss, found.gradient, found.hessian


def _chosen(old: Curvature, new: Curvature, better: np.ndarray) -> Curvature:
    """Return the new curvature of those stretches (C,) of which it is better."""
    return Curvature(
        *(
            np.where(better.reshape(-1, *(1,) * (mine.ndim - 1)), theirs, mine)
            for mine, theirs in zip(_parts(old), _parts(new), strict=True)
        )
    )


def _summed(values: np.ndarray, group: np.ndarray, weight: np.ndarray, groups: int) -> np.ndarray:
    """Return sums (G, ...) of values (C, ...) by group."""
    total = np.zeros((groups, *values.shape[1:]))
    np.add.at(total, group, values * weight.reshape(-1, *(1,) * (values.ndim - 1)))
    return total


def _step(
    values: np.ndarray,
    gradient: np.ndarray,
    hessian: np.ndarray,
    damping: float,
    free: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Return the damped step of the parameters that are free and not pressed against a bound."""
    low, high = bounds
    size = np.diag(hessian)
    moves = free & (size > 0) & ~((values <= low) & (gradient > 0)) & ~((values >= high) & (gradient < 0))
    step = np.zeros_like(values)
    if moves.any():
        inner = hessian[np.ix_(moves, moves)] + np.diag(damping * size[moves])
        step[moves] = -np.linalg.lstsq(inner, gradient[moves], rcond=None)[0]
    return step
