"""Fits the rotor model to flights: lag and delay first, multi-step, robust, intervals by bootstrap over segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import least_squares

from testudo_sim.identify.drone_flights import Flight, Samples, Windows
from testudo_sim.identify.drone_lag import FastResponse, fast_responses
from testudo_sim.identify.drone_model import DISTURBANCE, NAMES, DroneModel, errors, predict

_SCALES = ((0.1, 2e-3, 5e-3), (0.3, 8e-3, 2e-2), (0.5, 2e-2, 5e-2))
"""Horizon [s], and the position [m] and attitude error [rad] that count as one there."""
_SETTLED = ("thrust_lag", "thrust_delay")
"""Fitted first, to the fast response; later only refined where the motors explain that response."""
_BALANCE = ("balance_share", "balance_memory")
_LIFT = ("lift_share", "lift_memory")
_STEADY = ("thrust_scale", "drag_across", "drag_along")
"""Fitted while all lift counts: a balanced lift would hide them."""
_GAINS = ("roll_gain", "pitch_gain", "yaw_gain")
_RIGID = ("roll_damping", "pitch_damping", "yaw_damping", "tilt_stiffness", "balance_share", "lift_share")
"""Zero of a rigid body in still air."""
EXPLAINED = 0.9
"""Share of the power of the fast rates from which the motors count as explaining them."""
_DIFFERENCE = 1e-4


@dataclass(frozen=True)
class FitSettings:
    """How a fit is made."""

    windows: Windows = field(default_factory=lambda: Windows(spacing_s=0.4))
    """Of the starts that are fitted."""
    segment_s: float = 2.0
    """Length of the pieces that the bootstrap draws."""
    bootstrap: int = 200
    evaluations: int = 20
    """At most so many steps of the solver in a stage."""


@dataclass(frozen=True)
class DroneFit:
    """A fitted model with its intervals."""

    model: DroneModel
    vector: np.ndarray
    """(P,): in the order of `NAMES`."""
    low: np.ndarray
    """(P,): 95 % interval, bootstrap over segments in the linearised fit."""
    high: np.ndarray
    deviation: np.ndarray = field(repr=False)
    """(P,): standard deviation of each parameter; infinite where it was not fitted."""
    fast: list[FastResponse] = field(repr=False)
    """Of all flights, then of draws of their pieces."""
    starts: int = 0

    def value(self, name: str) -> float:
        """Return one parameter."""
        return float(self.vector[NAMES.index(name)])

    def interval(self, name: str) -> tuple[float, float]:
        """Return low and high of one parameter."""
        k = NAMES.index(name)
        return float(self.low[k]), float(self.high[k])


def fit_drone(model: DroneModel, flights: Sequence[Flight], settings: FitSettings | None = None,
              tick: Callable[[], None] = lambda: None) -> DroneFit:
    """Return the model that predicts these flights best.

    Args:
        model: which model; its start vector is where the fit begins.
        flights: all are fitted together, each start counts alike but for the robust loss.
        settings: of the fit.
        tick: called after every step of the solver.

    Raises:
        RecordingError: no start can be used.
    """
    settings = settings or FitSettings()
    samples = Samples.create(flights, settings.windows)
    vector = model.start_vector()
    fast = fast_responses(flights, [model.clipped(flight, vector) for flight in flights], settings.bootstrap)
    if fast[0].inside:
        vector[[NAMES.index(name) for name in _SETTLED]] = fast[0].lag_s, fast[0].delay_s
    low, high, spread = _settled_intervals(vector, fast)
    # motors that explain all leave nothing to balance, and a balance would only blur the lag
    rigid = min(fast[0].explained[:2]) >= EXPLAINED
    if rigid:
        known = dict(zip(_GAINS, fast[0].gains, strict=True)) | dict.fromkeys(_RIGID, 0.0)
        vector[[NAMES.index(name) for name in known]] = list(known.values())
    vector[NAMES.index("lift_share")] = 0.0
    stages = [_without(_BALANCE + _LIFT if rigid else _SETTLED + _LIFT)]
    stages += [] if rigid else [_without(_SETTLED + _STEADY)]
    stages += [DISTURBANCE] if model.causal else []
    for names in stages:
        free = [NAMES.index(name) for name in names]
        if "lift_share" in names:
            vector[NAMES.index("lift_share")] = 0.5
        problem = _Problem(replace(model, causal=names is DISTURBANCE), samples, vector, free)
        lower, upper = (bound[free] for bound in model.bounds())
        inside = np.clip(vector[free], lower + 1e-9 * (upper - lower), upper - 1e-9 * (upper - lower))
        solution = least_squares(problem.residuals, inside, jac=lambda x, p=problem: p.jacobian(x, tick),
                                 bounds=(lower, upper), x_scale=problem.scale, loss="cauchy",
                                 max_nfev=settings.evaluations, xtol=1e-4, ftol=1e-4)
        vector = vector.copy()
        vector[free] = solution.x
        low[free], high[free], spread[free] = _intervals(problem, solution.x, samples, settings)
    return DroneFit(model, vector, low, high, spread, fast, len(samples.start))


def _settled_intervals(vector: np.ndarray, fast: Sequence[FastResponse]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return low, high and deviation (P,) of lag and delay from draws; the vector itself of all others."""
    low, high, spread = vector.copy(), vector.copy(), np.full(len(NAMES), np.inf)
    for name, values in zip(_SETTLED, ([each.lag_s for each in fast[1:]], [each.delay_s for each in fast[1:]]),
                            strict=True):
        k = NAMES.index(name)
        spread[k] = np.std(values)
        low[k], high[k] = (min(vector[k], np.percentile(values, 2.5)), max(vector[k], np.percentile(values, 97.5)))
    return low, high, spread


def _without(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name not in DISTURBANCE + names)


@dataclass(frozen=True)
class _Problem:
    """Residuals of the free parameters, the rest as in ``vector``."""

    model: DroneModel
    samples: Samples
    vector: np.ndarray
    free: list[int]

    @property
    def scale(self) -> np.ndarray:
        """Return the size (F,) of a change that matters."""
        lower, upper = (bound[self.free] for bound in self.model.bounds())
        return np.maximum(np.abs(self.vector[self.free]), (upper - lower) / 50)

    def residuals(self, values: np.ndarray) -> np.ndarray:
        """Return the errors over their scales (R,), those of a start side by side for each mark and axis."""
        return self._all(values[:, None])[:, 0]

    def jacobian(self, values: np.ndarray, tick: Callable[[], None]) -> np.ndarray:
        """Return the derivative (R, F), by differences of one batched roll-out."""
        step = _DIFFERENCE * self.scale
        upper = self.model.bounds()[1][self.free]
        step = np.where(values + step > upper, -step, step)
        moved = np.concatenate([values[:, None], values[:, None] + np.diag(step)], axis=1)
        found = self._all(moved)
        tick()
        return (found[:, 1:] - found[:, :1]) / step

    def _all(self, values: np.ndarray) -> np.ndarray:
        vectors = np.repeat(self.vector[:, None], values.shape[1], axis=1)
        vectors[self.free] = values
        scales = {self.samples.mark(horizon): (p, a) for horizon, p, a in _SCALES}
        rows = []
        for mark, state in predict(self.model, self.samples, vectors, tuple(scales)).items():
            for error, size in zip(errors(self.samples, mark, state), scales[mark], strict=True):
                rows.append(np.moveaxis(error, 1, -1) / size)  # (3, S, K)
        return np.concatenate([row.reshape(-1, row.shape[-1]) for row in rows])


def _intervals(problem: _Problem, values: np.ndarray, samples: Samples, settings: FitSettings
               ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return low, high and the standard deviation (F,) of the parameters.

    Each draw takes as many segments as there are, with replacement, and moves the parameters by one Gauss-Newton
    step of the robust loss; no roll-out is repeated.
    """
    residuals = problem.residuals(values)
    jacobian = problem.jacobian(values, lambda: None) * problem.scale
    weight = 1 / (1 + residuals**2)  # cauchy
    count = len(samples.start)
    shape = (-1, count)
    segment = samples.flight * 10_000 + (samples.start * samples.flights[0].period_s / settings.segment_s).astype(int)
    names, label = np.unique(segment, return_inverse=True)
    weighted = (jacobian * weight[:, None]).reshape(*shape, len(values))
    curved = jacobian.reshape(*shape, len(values))
    rest = residuals.reshape(shape)
    normal = np.zeros((len(names), len(values), len(values)))
    slope = np.zeros((len(names), len(values)))
    for k in range(len(names)):
        inside = label == k
        normal[k] = np.einsum("rsf,rsg->fg", weighted[:, inside], curved[:, inside])
        slope[k] = np.einsum("rsf,rs->f", weighted[:, inside], rest[:, inside])
    ridge = 1e-9 * np.trace(normal.sum(axis=0)) * np.eye(len(values)) / len(values)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(settings.bootstrap):
        times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)))
        draws.append(-np.linalg.solve(np.tensordot(times, normal, 1) + ridge, times @ slope))
    moved = values + np.array(draws) * problem.scale
    lower, upper = (bound[problem.free] for bound in problem.model.bounds())
    ends = np.clip(np.percentile(moved, [2.5, 97.5], axis=0), lower, upper)
    return np.minimum(ends[0], values), np.maximum(ends[1], values), moved.std(axis=0)
