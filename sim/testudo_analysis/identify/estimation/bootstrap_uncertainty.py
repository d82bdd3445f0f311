"""How well the run determines what was fitted: a bootstrap over stretches of the run, and which manoeuvre is missing.

Each resample takes one Gauss-Newton step from the fit with its own stretches (one-step bootstrap; Shao and Tu, The
Jackknife and Bootstrap, 1995), so that thousands cost no roll-out. Stretches are drawn whole and in pairs of
neighbours, as errors of overlapping windows go together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from testudo_analysis.identify.estimation.differentiable_rollout import Curvature
from testudo_hardware.schema import QUANTITIES
from testudo_hardware.spec import RobotSpec

RESAMPLES = 2000
LEVEL = 0.95
FEWEST_BLOCKS = 4
"""Of fewer nothing can be resampled, so that there is no interval."""
_PAIRED_FROM = 30

MANOEUVRES = {
    "dynamics.velocity_lag": "command steps: forward speed and turn rate that jump every second or so",
    "dynamics.command_delay": "command steps: forward speed and turn rate that jump every second or so",
    "dynamics.speed_scale": "drive straight on for some metres at different speeds",
    "dynamics.turn_scale": "turn both ways for some seconds at different rates",
    "dynamics.turn_slip": "drive arcs: the same forward speed straight on and at high turn rates both ways",
    "limits.acceleration": "start and stop at full speed, so that the limit is reached",
    "limits.turn_acceleration": "reverse the turn rate at full speed, so that the limit is reached",
}


@dataclass(frozen=True)
class BootstrapSpread:
    """Resampled parameters."""

    samples: np.ndarray
    """(B, P), as they are fitted."""
    blocks: int
    fitted: int
    """Parameters that were free."""

    def interval(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends (P,) of the 95 % interval about fitted values (P,).

        The fit itself takes as many degrees of freedom from the blocks as it has parameters: with few blocks the
        interval is wider for that, and by Student's quantile.
        """
        left = max(self.blocks - self.fitted, 1)
        wider = np.sqrt(self.blocks / left) * student.ppf((1 + LEVEL) / 2, left) / student.ppf((1 + LEVEL) / 2, 1e6)
        ends = np.quantile(self.samples - values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return values + wider * ends[0], values + wider * ends[1]


def bootstrap(
    curvature: Curvature, robot: np.ndarray, weight: np.ndarray, values: np.ndarray, free: np.ndarray, seed: int = 0
) -> BootstrapSpread:
    """Return resampled parameters.

    Args:
        curvature: of the stretches at the fit, C of them in order of time for each robot.
        robot: (C,) int; blocks are of one robot.
        weight: (C,): zero leaves a stretch out.
        values: (P,) of the fit.
        free: (P,) bool: the others stay.
        seed: of the draws.
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
    # a robot that stood still, or a draw of such stretches, has a matrix of zeros: nothing moves then
    small = 1e-9 * np.trace(inner, axis1=1, axis2=2) + np.finfo(float).tiny
    inner += np.eye(len(moved)) * small[:, None, None]
    # the whole gradient is not quite zero at a bound; what the fit holds there, the resamples may leave
    samples[:, moved] -= np.linalg.solve(inner, (counts @ gradient[:, moved])[..., None])[..., 0]
    return BootstrapSpread(samples, blocks, int(free.sum()))


def prior(spec: RobotSpec, key: str) -> tuple[float, float]:
    """Return what was known of a parameter: the robot file's interval, or all that a file may hold."""
    quantity, rule = spec.quantities.get(key), QUANTITIES[key]
    if quantity is None or quantity.high <= quantity.low:
        return rule.low, rule.high
    return quantity.low, quantity.high


def flat(curvature: Curvature, weight: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return which parameters (P,) change nothing: moved by all that they may be, the errors stay.

    Args:
        curvature: of the stretches.
        weight: (C,).
        width: (P,): of what was known before.
    """
    total = np.tensordot(weight, curvature.hessian, axes=1)
    windows = max(float(np.sum(weight * curvature.loss)), 1.0)
    return np.diag(total) * width**2 < 1e-3 * windows


def _running_number(robot: np.ndarray) -> np.ndarray:
    """Return the number of each stretch among those of its robot."""
    number = np.zeros(len(robot), int)
    for k in np.unique(robot):
        mine = np.flatnonzero(robot == k)
        number[mine] = np.arange(len(mine))
    return number
