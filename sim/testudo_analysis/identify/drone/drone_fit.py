"""Robust multi-step fit of the rotor model to flights; lag and delay first, intervals by a jackknife of segments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.optimize import least_squares
from scipy.special import stdtrit

from testudo_analysis.identify.drone.fitted_model import DISTURBANCE, NAMES, DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightRecord, FlightSamples, PredictionWindows
from testudo_analysis.identify.drone.open_loop import errors, predict
from testudo_analysis.identify.drone.rotor_lag import FastResponse, fast_responses
from testudo_analysis.identify.estimation.robust_fit import LEVEL, BootstrapSpread
from testudo_runs.progress_bar import Tell, part, quiet

_SCALES = ((0.1, 2e-3, 5e-3, 3e-2), (0.3, 8e-3, 2e-2, 0.12), (0.5, 2e-2, 5e-2, 0.3))
"""Horizon [s], and its scales of the errors of position [m], attitude [rad] and rates [rad/s]."""
_SETTLED = ("thrust_lag", "thrust_delay")
"""Fitted first, to the fast response; refined later only if the motors explain that response."""
_BALANCE = ("balance_share", "balance_memory")
_LIFT = ("lift_share", "lift_memory")
_STEADY = ("thrust_scale", "drag_across", "drag_along")  # fitted without a lift balance, which would hide them
_GAINS = ("roll_gain", "pitch_gain", "yaw_gain")
_RIGID = ("roll_damping", "pitch_damping", "yaw_damping", "tilt_stiffness", "balance_share", "lift_share")
"""Zero of a rigid body in still air."""
EXPLAINED = 0.9
"""Share of the power of the fast rates that the motors must explain."""
_PARTS = 2
"""Steps in a sample when lag and delay are refined: one step of 10 ms lengthens the delay by 0.1 ms."""
_DENSER = 4  # factor on the number of starts then: each begins with the noise of one logged state
_DIFFERENCE = 1e-4
_SEARCHED = 0.3  # approximate share of the time of the search for delay and lag


@dataclass(frozen=True)
class FitSettings:
    """Settings of the fit."""

    windows: PredictionWindows = field(default_factory=lambda: PredictionWindows(spacing_s=0.4))
    """Of the fitted starts."""
    segment_s: float = 2.0  # length [s] of the segments that the jackknife leaves out in turn
    bootstrap: int = 200  # draws of pieces of the fast response for intervals
    evaluations: int = 20  # largest number of solver steps in a stage


@dataclass(frozen=True)
class DroneFit:
    """A fitted model with its intervals."""

    model: DroneModel
    vector: np.ndarray  # (P,): in the order of `NAMES`
    low: np.ndarray  # (P,): 95 % interval
    high: np.ndarray
    fast: list[FastResponse] = field(repr=False)  # of all flights, then of draws of their pieces
    starts: int = 0

    def value(self, name: str) -> float:
        """Return one parameter."""
        return float(self.vector[NAMES.index(name)])

    def interval(self, name: str) -> tuple[float, float]:
        """Return low and high of one parameter."""
        k = NAMES.index(name)
        return float(self.low[k]), float(self.high[k])


def fit_drone(
    model: DroneModel, flights: Sequence[FlightRecord], settings: FitSettings | None = None, tell: Tell = quiet
) -> DroneFit:
    """Return the best model of these flights.

    The fit begins at the start vector of ``model``; each start in a flight has the same weight in the robust loss;
    ``tell`` gets the current step and the completed fraction.

    Raises:
        RecordingError: there is no usable start.
    """
    settings = settings or FitSettings()
    samples = FlightSamples.create(flights, settings.windows)
    vector = model.start_vector()
    tell("delay and lag", 0.0)
    fast = fast_responses(flights, [model.clipped(flight, vector) for flight in flights], settings.bootstrap)
    if fast[0].inside:
        vector[[NAMES.index(name) for name in _SETTLED]] = fast[0].lag_s, fast[0].delay_s
    # motors that explain everything leave nothing to balance; a balance would only bias the lag
    rigid = min(fast[0].explained[:2]) >= EXPLAINED
    if rigid:
        known = dict(zip(_GAINS, fast[0].gains, strict=True)) | dict.fromkeys(_RIGID, 0.0)
        vector[[NAMES.index(name) for name in known]] = list(known.values())
        model = replace(model, parts=_PARTS)
        denser = replace(settings.windows, spacing_s=settings.windows.spacing_s / _DENSER)
        samples = FlightSamples.create(flights, denser)
    vector[NAMES.index("lift_share")] = 0.0
    low, high = _settled_intervals(vector, fast)
    stages = [_without(_LIFT + _BALANCE + _RIGID if rigid else _SETTLED + _LIFT)]
    stages += [] if rigid else [_without(_SETTLED + _STEADY)]
    stages += [DISTURBANCE] if model.causal else []
    for number, names in enumerate(stages):
        begin, end = (_SEARCHED + (1 - _SEARCHED) * k / len(stages) for k in (number, number + 1))
        tick = _ticking(part(tell, begin, end), f"fit {number + 1} of {len(stages)}", settings.evaluations)
        free = [NAMES.index(name) for name in names]
        if "lift_share" in names:
            vector[NAMES.index("lift_share")] = 0.5
        problem = _Problem(replace(model, causal=names is DISTURBANCE), samples, vector, free, rigid)
        values = vector[free]
        # the robust loss alone stops early at errors above its scale, where it is concave
        for loss in ("linear", "cauchy") if rigid else ("cauchy",):
            values = _solved(problem, values, loss, settings.evaluations, tick)
        vector = vector.copy()
        vector[free] = values
        low[free], high[free] = _intervals(problem, values, samples, settings)
    return DroneFit(model, vector, low, high, fast, len(samples.start))


def _solved(
    problem: "_Problem", values: np.ndarray, loss: str, evaluations: int, tick: Callable[[], None]
) -> np.ndarray:
    """Return the free parameters (F,) of least loss from initial values (F,)."""
    lower, upper = (bound[problem.free] for bound in problem.model.bounds())
    inside = np.clip(values, lower + 1e-9 * (upper - lower), upper - 1e-9 * (upper - lower))
    return least_squares(
        problem.residuals,
        inside,
        jac=partial(problem.jacobian, tick=tick),  # pyright: ignore[reportArgumentType] -- scipy's stub lacks callables
        bounds=(lower, upper),
        x_scale=problem.scale,
        loss=loss,
        max_nfev=evaluations,
        xtol=1e-4,
        ftol=1e-4,
    ).x


def _settled_intervals(vector: np.ndarray, fast: Sequence[FastResponse]) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high (P,) of lag and delay from draws; for all others the vector."""
    low, high = vector.copy(), vector.copy()
    if len(fast) > 1:
        settled = [NAMES.index(name) for name in _SETTLED]
        draws = np.array([(each.lag_s, each.delay_s) for each in fast[1:]])
        low[settled], high[settled] = BootstrapSpread(draws, fast[0].pieces, 1).interval(vector[settled])
    return np.maximum(low, 0.0), high


def _ticking(tell: Tell, name: str, count: int) -> Callable[[], None]:
    """Return a function that reports each of at most ``count`` solver steps."""
    steps = iter(range(1, count + 1))
    tell(name, 0.0)
    return lambda: tell(name, next(steps, count) / (count + 1))


def _without(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name not in DISTURBANCE + names)


@dataclass(frozen=True)
class _Problem:
    """Residuals of the free parameters, the others as in ``vector``."""

    model: DroneModel
    samples: FlightSamples
    vector: np.ndarray
    free: list[int]
    rates: bool
    """Also residuals of the body rates: explained by the motors, they determine lag and delay better."""

    @property
    def scale(self) -> np.ndarray:
        """Return the scale (F,) of the parameters."""
        lower, upper = (bound[self.free] for bound in self.model.bounds())
        return np.maximum(np.abs(self.vector[self.free]), (upper - lower) / 50)

    def residuals(self, values: np.ndarray) -> np.ndarray:
        """Return the errors over their scales (R,), for each mark and axis those of all starts."""
        return self._all(values[:, None])[:, 0]

    def jacobian(self, values: np.ndarray, tick: Callable[[], None]) -> np.ndarray:
        """Return the derivative (R, F) by differences of one batched rollout."""
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
        scales = {self.samples.mark(horizon): sizes for horizon, *sizes in _SCALES}
        rows = []
        for mark, state in predict(self.model, self.samples, vectors, tuple(scales)).items():
            found = errors(self.samples, mark, state)
            if self.rates:
                found += (state.rates_body - self.samples.at("rates_body", mark)[:, None],)
            rows += [
                np.moveaxis(error, 1, -1) / size  # (3, S, K)
                for error, size in zip(found, scales[mark], strict=False)
            ]
        return np.concatenate([row.reshape(-1, row.shape[-1]) for row in rows])


def _intervals(
    problem: _Problem, values: np.ndarray, samples: FlightSamples, settings: FitSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high (F,) of the parameters: 95 %, by leaving out one segment at a time.

    Each time the parameters move by one Newton step of the robust loss; no rollout is repeated. The cluster jackknife
    with Student's quantile for the number of clusters less one is valid also for few clusters, where resampling is too
    narrow (MacKinnon, Nielsen, Webb, "Cluster-robust inference: a guide to empirical practice", 2023).
    """
    residuals = problem.residuals(values)
    jacobian = problem.jacobian(values, lambda: None) * problem.scale
    lower, upper = (bound[problem.free] for bound in problem.model.bounds())
    segment = samples.flight * 10_000 + (samples.start * samples.flights[0].period_s / settings.segment_s).astype(int)
    names, label = np.unique(segment, return_inverse=True)
    count, size = len(names), len(values)
    if count < 2:
        return lower, upper
    shape = (-1, len(samples.start))
    weight = (1 / (1 + residuals**2)).reshape(shape)  # cauchy
    rest, slopes = residuals.reshape(shape), jacobian.reshape(*shape, size)
    bent = weight * (1 - rest**2) * weight  # second derivative of the robust loss
    normal, slope = np.zeros((count, size, size)), np.zeros((count, size))
    for k in range(count):
        inside = label == k
        normal[k] = np.einsum("rsf,rs,rsg->fg", slopes[:, inside], bent[:, inside], slopes[:, inside], optimize=True)
        slope[k] = np.einsum("rsf,rs->f", slopes[:, inside], (weight * rest)[:, inside])
    total, whole = normal.sum(axis=0), slope.sum(axis=0)
    ridge = 1e-9 * np.trace(total) * np.eye(size) / size
    moved = -np.linalg.solve(total - normal + ridge, (whole - slope)[..., None])[..., 0]
    moved += np.linalg.solve(total + ridge, whole)  # at a bound the whole slope is not zero
    deviation = np.sqrt((count - 1) / count * np.sum(moved**2, axis=0)) * problem.scale
    reach = stdtrit(count - 1, (1 + LEVEL) / 2) * deviation
    return np.maximum(values - reach, lower), np.minimum(values + reach, upper)
