"""Robust least squares on stretches of a run: bounded Levenberg-Marquardt fits, and the uncertainty by a bootstrap.

The bootstrap resamples stretches; each resample takes one Gauss-Newton step from the fit (one-step bootstrap; Shao and
Tu, The Jackknife and Bootstrap, 1995), so that thousands need no rollout. Stretches are drawn whole and in pairs of
neighbours, as the errors of overlapping windows are correlated.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from testudo_analysis.identify.estimation.differentiable_rollout import BatchedRollout, Curvature
from testudo_hardware.schema import QUANTITIES
from testudo_hardware.spec import RobotSpec

_ROUNDS = 40
_ENOUGH = 1e-5  # a relative gain of the loss below this ends the fit


@dataclass(frozen=True)
class Fit:
    """G fits of P parameters."""

    values: np.ndarray  # (G, P)
    loss: np.ndarray  # (G,)
    curvature: Curvature  # of the stretches at these values
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

    ``roller`` gives the errors and their derivatives from ``start`` (G, P) or (P,) on; ``free`` (P,) bool: the others
    are fixed; ``bounds`` (P,), (P,); ``scale`` (H, E) of large errors; ``group`` (C,) int; a ``weight`` (C,) of zero
    leaves a stretch out.
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
        expected = -np.einsum("gp,gp->g", gradient, step)
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
        running &= ~(better & (gained < _ENOUGH)) & (damping < 1e6) & ~(~better & (expected < _ENOUGH * loss))
    return Fit(values, loss, found, rounds)


def _parts(found: Curvature) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.loss, found.gradient, found.hessian


def _chosen(old: Curvature, new: Curvature, better: np.ndarray) -> Curvature:
    """Return the new curvature for the stretches (C,) in which it is better."""
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
    """Return the damped step of the free parameters that do not push against a bound."""
    low, high = bounds
    size = np.diag(hessian)
    moves = free & (size > 0) & ~((values <= low) & (gradient > 0)) & ~((values >= high) & (gradient < 0))
    step = np.zeros_like(values)
    if moves.any():
        inner = hessian[np.ix_(moves, moves)] + np.diag(damping * size[moves])
        step[moves] = -np.linalg.lstsq(inner, gradient[moves], rcond=None)[0]
    return step


RESAMPLES = 2000
LEVEL = 0.95
FEWEST_BLOCKS = 4
"""With fewer blocks there is no interval."""
_PAIRED_FROM = 30

MANOEUVRES = {
    "dynamics.velocity_lag": "command steps: forward speed and turn rate that jump every second or so",
    "dynamics.command_delay": "command steps: forward speed and turn rate that jump every second or so",
    "dynamics.speed_scale": "drive straight for some metres at different speeds",
    "dynamics.turn_scale": "turn both ways for some seconds at different rates",
    "dynamics.turn_slip": "drive arcs: the same forward speed straight and at high turn rates both ways",
    "limits.acceleration": "start and stop at full speed, so that the limit is reached",
    "limits.turn_acceleration": "reverse the turn rate at full speed, so that the limit is reached",
}


@dataclass(frozen=True)
class BootstrapSpread:
    """Resampled parameters."""

    samples: np.ndarray  # (B, P), as fitted
    blocks: int
    fitted: int  # number of free parameters

    def interval(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends (P,) of the 95 % interval about fitted values (P,).

        The fit uses as many degrees of freedom of the blocks as it has parameters: with few blocks the interval is
        wider, also by Student's quantile.
        """
        left = max(self.blocks - self.fitted, 1)
        wider = np.sqrt(self.blocks / left) * stdtrit(left, (1 + LEVEL) / 2) / stdtrit(1e6, (1 + LEVEL) / 2)
        ends = np.quantile(self.samples - values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return values + wider * ends[0], values + wider * ends[1]


def bootstrap(
    curvature: Curvature, robot: np.ndarray, weight: np.ndarray, values: np.ndarray, free: np.ndarray, seed: int = 0
) -> BootstrapSpread:
    """Return resampled parameters.

    ``curvature`` is that of the C stretches at the fit, in order of time for each robot; ``robot`` (C,) int: blocks are
    of one robot; a ``weight`` (C,) of zero leaves a stretch out; ``values`` (P,) of the fit; ``free`` (P,) bool: the
    others are fixed.
    """
    used = np.flatnonzero(weight > 0)
    if not len(used):
        return BootstrapSpread(np.broadcast_to(values, (RESAMPLES, len(values))).copy(), 0, int(free.sum()))
    pair = 2 if len(used) >= _PAIRED_FROM else 1
    _, block = np.unique(np.stack([robot[used], _running_number(robot[used]) // pair]), axis=1, return_inverse=True)
    block = block.ravel()
    blocks = int(block.max()) + 1
    gradient, hessian = np.zeros((blocks, len(values))), np.zeros((blocks, len(values), len(values)))
    np.add.at(gradient, block, curvature.gradient[used])
    np.add.at(hessian, block, curvature.hessian[used])
    samples = np.broadcast_to(values, (RESAMPLES, len(values))).copy()
    if blocks < FEWEST_BLOCKS or not free.any():
        return BootstrapSpread(samples, blocks, int(free.sum()))
    counts = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES).astype(float)
    moved = np.flatnonzero(free)
    inner = np.tensordot(counts, hessian[:, moved[:, None], moved], axes=1)
    # stretches of standing robots have a matrix of zeros: no parameter moves
    small = 1e-9 * np.trace(inner, axis1=1, axis2=2) + np.finfo(float).tiny
    inner += np.eye(len(moved)) * small[:, None, None]
    # at a bound the whole gradient is not zero; resamples may leave the bound
    samples[:, moved] -= np.linalg.solve(inner, (counts @ gradient[:, moved])[..., None])[..., 0]
    return BootstrapSpread(samples, blocks, int(free.sum()))


def prior(spec: RobotSpec, key: str) -> tuple[float, float]:
    """Return the prior interval of a parameter: that of the robot file, or the valid range of a file."""
    quantity, rule = spec.quantities.get(key), QUANTITIES[key]
    if quantity is None or quantity.high <= quantity.low:
        return rule.low, rule.high
    return quantity.low, quantity.high


def flat(curvature: Curvature, weight: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return which parameters (P,) have no effect on the errors within their prior interval.

    ``weight`` (C,) is that of the stretches, ``width`` (P,) that of the prior intervals.
    """
    total = np.tensordot(weight, curvature.hessian, axes=1)
    windows = max(float(np.sum(weight * curvature.loss)), 1.0)
    return np.diag(total) * width**2 < 1e-3 * windows


def _running_number(robot: np.ndarray) -> np.ndarray:
    """Return the index of each stretch among those of its robot."""
    number = np.zeros(len(robot), int)
    for k in np.unique(robot):
        number[robot == k] = np.arange(np.count_nonzero(robot == k))
    return number
