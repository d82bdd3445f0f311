"""Errors of fits on held-out stretches, the other half of the run or a held-out robot, also with a residual model.

The residual model of a differential drive is a ridge regression of the unexplained velocities in the body frame on few
features of the model's own motion, so that it stays a prediction: no recorded motion enters. All features are zero at
rest.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testudo_analysis.identify.estimation.differentiable_rollout import BatchedRollout
from testudo_analysis.identify.estimation.identification_result import HALF, HeldOut
from testudo_analysis.identify.estimation.robust_fit import Fit
from testudo_analysis.replay.batched_rollout import dead_reckoning
from testudo_hardware.schema import DIFFERENTIAL_DRIVE

Solve = Callable[[np.ndarray, np.ndarray, np.ndarray], Fit]
"""A fit from parameters (P,), for groups (C,) of stretches with weights (C,)."""


@dataclass(frozen=True)
class HeldOutErrors:
    """References of the validation, on all stretches."""

    roller: BatchedRollout
    scale: np.ndarray  # (H, E): scale of large errors
    reckoned: np.ndarray  # (C, E, S): errors of dead reckoning with the commands
    nominal: np.ndarray  # (C, E, S): errors of the original robot file
    residual: bool  # also validate a residual model

    @classmethod
    def create(cls, roller: BatchedRollout, scale: np.ndarray, *, residual: bool = False) -> "HeldOutErrors":
        """Return the references for the stretches of a rollout."""
        count = len(roller.stretches)
        nominal = np.broadcast_to(roller.nominal(), (count, len(roller.keys)))
        simple = BatchedRollout(dead_reckoning(roller.spec), (), roller.stretches, roller.cutting)
        return cls(roller, scale, simple.errors(np.zeros((count, 0))), roller.errors(nominal), residual)

    def rows(self, errors: dict[str, np.ndarray], test: np.ndarray, name: str, split: str) -> list[HeldOut]:
        """Return the errors of one robot by horizon and channel.

        ``errors`` (C, E, S) are by ending of the channel; ``test`` (C,) bool; ``name`` is that of the robot, ``split``
        the held-out data.
        """
        stretches, wheeled = self.roller.stretches, self.roller.spec.kind == DIFFERENTIAL_DRIVE
        rows = []
        for ending, found in errors.items():
            for k, horizon in enumerate(self.roller.cutting.horizons_s):
                at = stretches.valid & (stretches.horizon == k) & test[:, None]
                if not at.any():
                    continue
                kinds = (self.reckoned, self.nominal, found)
                place = [np.sqrt(np.sum(each[:, :-1] ** 2, axis=1))[at] for each in kinds]
                turn = [np.abs(each[:, -1])[at] for each in kinds]
                rows.append(HeldOut.of(name, horizon, f"position{ending}", "m", place, split))
                if wheeled:
                    rows.append(HeldOut.of(name, horizon, f"yaw{ending}", "rad", turn, split))
        return rows

    def with_residual(self, values: np.ndarray, train: np.ndarray) -> dict[str, np.ndarray]:
        """Return the errors at parameters (C, P) with a residual model of stretches (C,); empty without one."""
        if not self.residual:
            return {}
        return {ENDING: residual_errors(self.roller, values, fit_residual(self.roller, values, self.scale, train))}


@dataclass(frozen=True)
class HalfFit:
    """Fits of single robots to their first halves."""

    fit: Fit  # one for each robot
    train: np.ndarray  # (C,) bool: stretches of the first halves
    test: np.ndarray  # (C,) bool: of the second halves


def hold_half(
    measure: HeldOutErrors, solve: Solve, start: np.ndarray, names: list[str]
) -> tuple[list[HeldOut], HalfFit]:
    """Return errors on the second half of each robot after a fit to its first from parameters (P,), and the fit."""
    stretches = measure.roller.stretches
    mine = [stretches.robot == k for k in range(len(names))]
    middle = np.array([0.5 * (stretches.begin_s[own].min() + stretches.end_s[own].max()) for own in mine])
    middle = middle[stretches.robot]
    train, test = stretches.end_s <= middle, stretches.begin_s >= middle
    fit = solve(start, stretches.robot, train.astype(float))
    values = fit.values[stretches.robot]
    errors = {"": measure.roller.errors(values)}
    rows = [
        row
        for k, name in enumerate(names)
        for row in measure.rows(errors | measure.with_residual(values, train & mine[k]), test & mine[k], name, HALF)
    ]
    return rows, HalfFit(fit, train, test)


@dataclass(frozen=True)
class Fold:
    """Robots, or robots of one run, that are held out together."""

    name: str
    split: str  # `ROBOTS` or `RUNS`
    left_out: tuple[int, ...]  # numbers of the robots


def hold_fold(measure: HeldOutErrors, solve: Solve, start: np.ndarray, fold: Fold) -> tuple[list[HeldOut], np.ndarray]:
    """Return the errors on the held-out robots after a fit to the others, from parameters (P,), and the fitted ones."""
    stretches = measure.roller.stretches
    mine = np.isin(stretches.robot, fold.left_out)
    found = solve(start, np.zeros(len(stretches), int), (~mine).astype(float)).values
    values = np.broadcast_to(found[0], (len(stretches), found.shape[1]))
    errors = {"": measure.roller.errors(values)} | measure.with_residual(values, ~mine)
    return measure.rows(errors, mine, fold.name, fold.split), found[0]


ENDING = " with the residual model"
"""Ending of the channel of its held-out errors."""
WORTH = 0.2
"""Required reduction of the held-out error."""
FEATURES = (
    "speed",
    "turn rate",
    "speed squared",
    "turn rate squared",
    "speed by size of turn rate",
    "speed by turn rate",
    "change of speed in a lag",
    "change of turn rate in a lag",
)
_RIDGE = 1e-3  # of the mean square of the features


@dataclass(frozen=True)
class ResidualModel:
    """Added velocities (forward, left, turn rate): weights (3, F) of the features."""

    weights: np.ndarray


@dataclass(frozen=True)
class ResidualBenefit:
    """Benefit of a residual model on held-out data."""

    shares: dict[str, tuple[float, float]]
    """By split: relative reduction of median and p90 of the last horizon's position error, median over robots."""

    @property
    def helps(self) -> bool:
        """Return whether median and p90 are reduced by `WORTH` in every split."""
        return bool(self.shares) and all(share >= WORTH for both in self.shares.values() for share in both)


def fit_residual(roller: BatchedRollout, values: np.ndarray, scale: np.ndarray, train: np.ndarray) -> ResidualModel:
    """Return the residual model of some stretches, with the robust weights of the fit.

    ``roller`` is that of the fitted model with ``values`` (C, P); ``scale`` (H, E) is that of large errors; ``train``
    (C,) bool.
    """
    motion = _Motion.create(roller, values)
    errors, stretches = roller.errors(values), roller.stretches
    over = np.moveaxis(scale[stretches.horizon], -1, 1)  # (C, E, S)
    use = (stretches.fitted & train[:, None]) / np.sqrt(1 + np.sum((errors / over) ** 2, axis=1))
    turned = motion.between(motion.summed(motion.features), stretches.start, stretches.end)
    turn = _ridge([(turned, -errors[:, -1], use / over[:, -1] ** 2)])
    yaw, _ = motion.path(ResidualModel(np.stack([0 * turn, 0 * turn, turn])))
    errors = _errors(roller, motion, ResidualModel(np.stack([0 * turn, 0 * turn, turn])))
    ahead, left = motion.ways(yaw, stretches.start, stretches.end)
    size = len(FEATURES)
    found = _ridge(
        [
            (np.concatenate([ahead, -left], axis=1), -errors[:, 0], use / over[:, 0] ** 2),
            (np.concatenate([left, ahead], axis=1), -errors[:, 1], use / over[:, 1] ** 2),
        ]
    )
    return ResidualModel(np.stack([found[:size], found[size:], turn]))


def residual_errors(roller: BatchedRollout, values: np.ndarray, residual: ResidualModel) -> np.ndarray:
    """Return predicted less recorded (C, E, S) with a residual model; parameters (C, P)."""
    return _errors(roller, _Motion.create(roller, values), residual)


def worth(held_out: tuple[HeldOut, ...]) -> ResidualBenefit:
    """Return the benefit of the residual model from rows with and without it."""
    horizon = max((row.horizon_s for row in held_out), default=0.0)
    rows = {(row.split, row.robot, row.channel): row.identified for row in held_out if row.horizon_s == horizon}
    shares: dict[str, list[tuple[float, float]]] = {}
    for (split, robot, channel), with_it in rows.items():
        if channel == f"position{ENDING}":
            without = rows[split, robot, "position"]
            shares.setdefault(split, []).append((1 - with_it.median / without.median, 1 - with_it.p90 / without.p90))
    medians = {split: np.median(both, axis=0) for split, both in shares.items()}
    return ResidualBenefit({split: (float(median), float(p90)) for split, (median, p90) in medians.items()})


@dataclass(frozen=True)
class _Motion:
    """Motion of the model on all stretches."""

    step_s: float
    velocity: np.ndarray  # (C, 2, T): mean forward speed and turn rate of each step
    features: np.ndarray  # (C, F, T)

    @classmethod
    def create(cls, roller: BatchedRollout, values: np.ndarray) -> "_Motion":
        ends = roller.velocities(values)
        step = roller.cutting.step_s
        lag = values[:, roller.keys.index("dynamics.velocity_lag")]
        mean, change = (ends[..., 1:] + ends[..., :-1]) / 2, np.diff(ends, axis=2) * lag[:, None, None] / step
        limits = float(roller.spec.speed_limit_m_s), roller.spec.turn_rate_limit_rad_s
        speed, turn = (mean[:, k] / limit for k, limit in enumerate(limits))
        squares = [speed * np.abs(speed), turn * np.abs(turn), speed * np.abs(turn), speed * turn]
        changes = [change[:, k] / limit for k, limit in enumerate(limits)]
        return cls(step, mean, np.stack([speed, turn, *squares, *changes], axis=1))

    def summed(self, rates: np.ndarray) -> np.ndarray:
        """Return the integrals (C, K, T + 1) of rates (C, K, T)."""
        return np.concatenate([np.zeros((*rates.shape[:2], 1)), np.cumsum(rates, axis=2) * self.step_s], axis=2)

    @staticmethod
    def at(path: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """Return values (C, K, S) of paths (C, K, T) at moments (C, S) [steps]."""
        below = np.clip(np.floor(moment), 0, path.shape[2] - 2).astype(int)[:, None]
        first, last = (np.take_along_axis(path, below + k, axis=2) for k in (0, 1))
        return first + (moment[:, None] - below) * (last - first)

    def between(self, path: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return the change of paths (C, K, T) in windows: (C, K, S)."""
        return self.at(path, end) - self.at(path, start)

    def path(self, residual: ResidualModel) -> tuple[np.ndarray, np.ndarray]:
        """Return heading (C, 1, T + 1) and position (C, 2, T + 1) with a residual model."""
        more = np.einsum("kf,cft->ckt", residual.weights, self.features)
        yaw = self.summed(self.velocity[:, 1:] + more[:, 2:])
        middle = (yaw[..., 1:] + yaw[..., :-1])[:, 0] / 2
        ahead, left = self.velocity[:, 0] + more[:, 0], more[:, 1]
        cos, sin = np.cos(middle), np.sin(middle)
        return yaw, self.summed(np.stack([ahead * cos - left * sin, ahead * sin + left * cos], axis=1))

    def ways(self, yaw: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the displacements ahead and left (C, F, S), in the start heading, of a forward weight of one."""
        middle = (yaw[..., 1:] + yaw[..., :-1]) / 2
        along, across = (
            self.between(self.summed(turned * self.features), start, end) for turned in (np.cos(middle), np.sin(middle))
        )
        heading = self.at(yaw, start)
        cos, sin = np.cos(heading), np.sin(heading)
        return along * cos + across * sin, across * cos - along * sin


def _errors(roller: BatchedRollout, motion: _Motion, residual: ResidualModel) -> np.ndarray:
    stretches = roller.stretches
    yaw, position = motion.path(residual)
    way, turned = (motion.between(path, stretches.start, stretches.end) for path in (position, yaw))
    heading = motion.at(yaw, stretches.start)[:, 0]
    cos, sin = np.cos(heading), np.sin(heading)
    way = np.stack([way[:, 0] * cos + way[:, 1] * sin, way[:, 1] * cos - way[:, 0] * sin], axis=1)
    found = np.concatenate([way - stretches.moved, turned - stretches.turned[:, None]], axis=1)
    return found * stretches.valid[:, None]


def _ridge(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return weights (K,) of features (C, K, S), targets (C, S) and weights (C, S) of each part."""
    normal = sum(
        np.tensordot(features * weight[:, None], features, axes=([0, 2], [0, 2])) for features, _, weight in parts
    )
    right = sum(np.einsum("cks,cs->k", features, weight * target) for features, target, weight in parts)
    size = np.diag(normal)
    return np.linalg.solve(normal + np.diag(_RIDGE * size + 1e-12 * max(size.max(), 1e-300)), right)
