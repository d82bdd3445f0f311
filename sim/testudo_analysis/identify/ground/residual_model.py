"""What the fitted model of a differential drive leaves unexplained, as velocities in the body: a ridge regression.

The residual velocity is linear in few features of the model's own motion, so that it stays a prediction: nothing of
what was seen enters. All features are zero at rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testudo_analysis.identify.estimation.differentiable_rollout import BatchedRollout
from testudo_analysis.identify.estimation.identification_result import HeldOut
from testudo_hardware.spec import RobotSpec

ENDING = " with the residual model"
"""Of the channel of held-out errors that are predicted with it."""
WORTH = 0.2
"""It has to lower the held-out error by this share."""
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
_RIDGE = 1e-3
"""Of the mean square of the features."""
_LAG = "dynamics.velocity_lag"


@dataclass(frozen=True)
class ResidualModel:
    """Velocities (forward, left, turn rate) that are added: weights (3, F) on the features."""

    weights: np.ndarray


@dataclass(frozen=True)
class ResidualBenefit:
    """What a residual model is worth on what was held out: by split, the share by which median and p90 are lower."""

    shares: dict[str, tuple[float, float]]
    """Medians over robots of the position error at the longest horizon, against the identified model without it."""

    @property
    def helps(self) -> bool:
        """Return whether median and p90 are lower by enough in every split."""
        return bool(self.shares) and all(share >= WORTH for both in self.shares.values() for share in both)


def fit_residual(roller: BatchedRollout, values: np.ndarray, scale: np.ndarray, train: np.ndarray) -> ResidualModel:
    """Return the residual model of some stretches, robust as the fit is.

    Args:
        roller: of the fitted model.
        values: (C, P) parameters.
        scale: (H, E): what counts as a large error.
        train: (C,) bool.
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
    """Return predicted minus seen (C, E, S) with a residual model; parameters (C, P)."""
    return _errors(roller, _Motion.create(roller, values), residual)


def worth(held_out: tuple[HeldOut, ...]) -> ResidualBenefit:
    """Return what the residual model is worth by rows with and without it."""
    horizon = max((row.horizon_s for row in held_out), default=0.0)
    rows = {(row.split, row.robot, row.channel): row.identified for row in held_out if row.horizon_s == horizon}
    shares: dict[str, list[tuple[float, float]]] = {}
    for (split, robot, channel), with_it in rows.items():
        if channel == f"position{ENDING}":
            without = rows[split, robot, "position"]
            shares.setdefault(split, []).append((1 - with_it.median / without.median, 1 - with_it.p90 / without.p90))
    return ResidualBenefit({split: tuple(map(float, np.median(both, axis=0))) for split, both in shares.items()})


@dataclass(frozen=True)
class _Motion:
    """The model's own motion on all stretches."""

    step_s: float
    velocity: np.ndarray
    """(C, 2, T): mean forward speed and turn rate of each step."""
    features: np.ndarray
    """(C, F, T)."""

    @classmethod
    def create(cls, roller: BatchedRollout, values: np.ndarray) -> _Motion:
        ends = roller.velocities(values)
        step = roller.cutting.step_s
        lag = _lag(roller, values)
        mean, change = (ends[..., 1:] + ends[..., :-1]) / 2, np.diff(ends, axis=2) * lag[:, None, None] / step
        speed, turn = mean[:, 0] / _top(roller.spec), mean[:, 1] / roller.spec.turn_rate_limit_rad_s
        return cls(
            step,
            mean,
            np.stack(
                [
                    speed,
                    turn,
                    speed * np.abs(speed),
                    turn * np.abs(turn),
                    speed * np.abs(turn),
                    speed * turn,
                    change[:, 0] / _top(roller.spec),
                    change[:, 1] / roller.spec.turn_rate_limit_rad_s,
                ],
                axis=1,
            ),
        )

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
        """Return by how much paths (C, K, T) change in windows: (C, K, S)."""
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
        """Return the ways ahead and left (C, F, S), in the heading at the start, that a forward weight of one adds."""
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


def _top(spec: RobotSpec) -> float:
    return float(spec.speed_limit_m_s)


def _lag(roller: BatchedRollout, values: np.ndarray) -> np.ndarray:
    return values[:, roller.keys.index(_LAG)]
