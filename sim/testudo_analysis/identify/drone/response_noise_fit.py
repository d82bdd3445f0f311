"""Fit of what the response of a drone leaves, so that 95 % bands hold at every horizon, and their held-out coverage.

The same match as for robots with velocity commands (`residual_motion.noise_fit`): a high percentile of held-out errors
over their predicted deviation, at every horizon and in classes of what the motors do. The predicted deviation is that
of the process through the response, linear in the small tilt; coverage is measured on futures of the response itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from testudo_analysis.identify.drone.drone_fit import DroneFit
from testudo_analysis.identify.drone.fitted_model import NAMES, RESPONSE_NAMES, DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightRecord, FlightSamples, PredictionWindows
from testudo_analysis.identify.drone.open_loop import errors, predict
from testudo_analysis.identify.drone.response_noise import (
    AXES,
    CHANNELS,
    HEADING,
    HORIZONTAL,
    TILT,
    VERTICAL,
    NoisyPush,
    ResponseNoise,
    motor_rates,
)
from testudo_analysis.identify.estimation.identification_result import RECORDED, Coverage
from testudo_analysis.identify.residual_motion.noise_fit import best_channel
from testudo_analysis.identify.residual_motion.rate_windows import STEP_S
from testudo_hardware.motion.motion_noise import NoiseChannel
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_hardware.spec import RobotSpec

HORIZONS_S = (0.5, 1.0, 2.0)
FITTED, CHECKED = (PredictionWindows(HORIZONS_S[-1], spacing_s) for spacing_s in (0.1, 0.25))
"""Starts of the fit, and of the coverage."""
FEWEST = 60
"""Starts that a process needs."""
FUTURES = 100
_CORRELATIONS_S = (0.05, 0.12, 0.25, 0.5)
_RETURNS = (0.0, 5.0, 12.0, 25.0, 50.0)  # [1/s²]
_TAIL = 0.025
_LEAST = 1e-4  # [m], [rad]: deviation of an error that nothing else explains


@dataclass(frozen=True)
class FlightErrors:
    """Errors of S predictions, and what the motors did during them."""

    error: np.ndarray  # (6, H, S): position [m], rotation vector [rad]
    rate: np.ndarray  # (2, C, S, T): see `motor_rates`, at multiples of the step
    step_s: float

    @classmethod
    def create(cls, model: DroneModel, vector: np.ndarray, flights: Sequence[FlightRecord]) -> Self | None:
        """Return those of flights with parameters (P,); None without a start."""
        kept = [flight for flight in flights if len(FITTED.starts(flight))]
        if not kept:
            return None
        samples = FlightSamples.create(kept, FITTED)
        marks = tuple(samples.mark(horizon) for horizon in HORIZONS_S)
        found = predict(model, samples, vector[:, None], marks)
        error = np.stack([np.concatenate([each[:, 0] for each in errors(samples, k, found[k])]) for k in marks], axis=1)
        every = max(1, round(STEP_S / kept[0].period_s))
        rates = [motor_rates(model, flight, vector) for flight in kept]
        rate = np.stack([samples.gather(rates, shift) for shift in range(0, samples.steps, every)], axis=-1)
        return cls(error, rate, every * kept[0].period_s)

    @classmethod
    def joined(cls, parts: Sequence["FlightErrors"]) -> Self:
        """Return those of several."""
        rate = np.concatenate([part.rate for part in parts], axis=2)
        return cls(np.concatenate([part.error for part in parts], axis=-1), rate, parts[0].step_s)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the steps of each horizon."""
        return tuple(round(horizon / self.step_s) for horizon in HORIZONS_S)


@dataclass(frozen=True)
class _Kernels:
    """Error after a time [s] (T,) of an acceleration that acted for a moment, of the linear response."""

    tilt: np.ndarray
    sideways: np.ndarray  # horizontal place, of a horizontal acceleration
    falling: np.ndarray  # vertical place, of a vertical acceleration
    drifting: np.ndarray  # horizontal place, of a tilt
    yaw_damping: float
    time_s: np.ndarray

    @classmethod
    def create(cls, model: DroneModel, vector: np.ndarray, step_s: float) -> Self:
        value = dict(zip(NAMES, vector, strict=True))
        time_s = (np.arange(round(HORIZONS_S[-1] / step_s)) + 0.5) * step_s
        across, along = (value[f"drag_{name}"] / model.spec.mass_kg for name in ("across", "along"))
        damping = (value["roll_damping"] + value["pitch_damping"]) / 2
        tilt = _oscillator(time_s, damping, value["tilt_stiffness"])
        sideways, falling = (_oscillator(time_s, drag, 0.0) for drag in (across, along))
        drifting = GRAVITY_M_S2 * np.convolve(tilt, sideways)[: len(time_s)] * step_s
        return cls(tilt, sideways, falling, drifting, value["yaw_damping"], time_s)

    def heading(self, back: float) -> np.ndarray:
        """Return that of the heading with a return [1/s²]."""
        return _oscillator(self.time_s, self.yaw_damping, back)


def fit_response_noise(model: DroneModel, vector: np.ndarray, found: FlightErrors) -> ResponseNoise:
    """Return the process of some errors, best held-out ones, with kernels of the parameters (P,)."""
    kernels = _Kernels.create(model, vector, found.step_s)
    none = np.zeros(found.error.shape[1:])
    _, tilt = _fitted(found, TILT, none, kernels.tilt)
    drifted = _variance(found, TILT, tilt, kernels.drifting)
    _, horizontal = _fitted(found, HORIZONTAL, drifted, kernels.sideways)
    _, vertical = _fitted(found, VERTICAL, none, kernels.falling)
    returning = [(*_fitted(found, HEADING, none, kernels.heading(back)), back) for back in _RETURNS]
    _, heading, back = min(returning, key=lambda each: each[0])
    return ResponseNoise((horizontal, vertical, tilt, heading), back)


def _oscillator(time_s: np.ndarray, damping: float, stiffness: float) -> np.ndarray:
    """Return the response (T,) [s] of x'' = -damping x' - stiffness x to an impulse."""
    half = np.sqrt(complex(damping**2 / 4 - stiffness))
    if abs(half) < 1e-6:  # critically damped
        return time_s * np.exp(-damping / 2 * time_s)
    return (np.exp(-damping / 2 * time_s) * np.sinh(half * time_s) / half).real


def _fitted(found: FlightErrors, channel: int, base: np.ndarray, kernel: np.ndarray) -> tuple[float, NoiseChannel]:
    """Return the miss and the channel, beside a known variance (H, S)."""
    axes = len(AXES[channel])
    parts = _parts(found, channel)
    activity = np.concatenate([parts[1:, :, :steps].mean(axis=-1) for steps in found.steps], axis=1)
    horizon = np.repeat(np.arange(len(HORIZONS_S)), base.shape[1])

    def products(tau_s: float) -> np.ndarray:
        rows = [_products(parts, kernel, steps, found.step_s, tau_s) for steps in found.steps]
        return np.tile(np.concatenate(rows, axis=-1), axes)

    miss, fitted, _ = best_channel(
        found.error[list(AXES[channel])].reshape(-1),
        np.tile(base.reshape(-1), axes) + _LEAST**2,
        np.tile(activity, axes),
        np.tile(horizon, axes),
        products,
        _CORRELATIONS_S,
    )
    return miss, fitted


def _variance(found: FlightErrors, channel: int, noise: NoiseChannel, kernel: np.ndarray) -> np.ndarray:
    """Return the variance (H, S) of an error by a channel through a kernel."""
    number = np.array([noise.deviation, noise.share, noise.timing_s])
    parts = _parts(found, channel)
    rows = [_products(parts, kernel, steps, found.step_s, noise.correlation_s) for steps in found.steps]
    return np.stack([np.einsum("p,q,pqs->s", number, number, row) for row in rows])


def _parts(found: FlightErrors, channel: int) -> np.ndarray:
    """Return the parts (PARTS, S, T) of a channel's deviation."""
    rate, change = found.rate[:, channel]
    return np.stack([np.ones_like(rate), rate, change])


def _products(parts: np.ndarray, kernel: np.ndarray, steps: int, step_s: float, tau_s: float) -> np.ndarray:
    """Return the variance (PARTS, PARTS, S) after some steps for one product of two numbers of a channel."""
    weight = parts[..., :steps] * kernel[:steps][::-1] * step_s
    index = np.arange(steps)
    alike = np.exp(-np.abs(index[:, None] - index) * step_s / tau_s)
    return np.einsum("pst,qst->pqs", weight @ alike, weight)


def coverage_of(
    fit: DroneFit,
    noise: ResponseNoise,
    flights: Sequence[FlightRecord],
    split: str,
    *,
    futures: int = FUTURES,
    seed: int = 0,
) -> list[Coverage]:
    """Return the coverage of flights by the bands of sampled futures, of each robot and of all together.

    The futures have the parameters of the fit and their own path of the process, which was matched to errors of other
    parameters' flights and so contains what the parameters lack. The control has no process, and parameters drawn in
    their intervals.
    """
    rng = np.random.default_rng(seed)
    model = fit.model
    drawn = fit.vector[:, None] + np.zeros(futures)
    for name in RESPONSE_NAMES:
        k = NAMES.index(name)
        drawn[k] = rng.uniform(fit.low[k], fit.high[k], futures)
    alike = np.repeat(fit.vector[:, None], futures, axis=1)
    rows: dict[tuple[str, int, int], list[tuple[np.ndarray, ...]]] = {}
    for flight in flights:
        if not len(CHECKED.starts(flight)):
            continue
        samples = FlightSamples.create([flight], CHECKED)
        push = NoisyPush.create(noise, model, samples, fit.vector, futures, rng)
        noisy, control = _held(model, samples, alike, push), _held(model, samples, drawn, None)
        for h in range(len(HORIZONS_S)):
            for c, axes in enumerate(AXES):
                cells = tuple(values[list(axes), h].reshape(-1) for values in (*noisy, control[0]))
                for robot in (flight.robot, ""):
                    rows.setdefault((robot, h, c), []).append(cells)
    found = []
    for (robot, h, c), cells in sorted(rows.items(), key=lambda item: (not item[0][0], *item[0])):
        inside, width, without = (np.concatenate(part) for part in zip(*cells, strict=True))
        shares = float(inside.mean()), float(without.mean()), float(np.median(width))
        found.append(Coverage(robot, HORIZONS_S[h], CHANNELS[c], *shares, len(inside), split))
    return found


def recorded_coverage(flights: Sequence[FlightRecord], spec: RobotSpec) -> tuple[Coverage, ...]:
    """Return how many recorded motions of flights are inside the bands that a robot file gives.

    Empty where the file has no `[response_noise]`, or the flights are too short.
    """
    noise = ResponseNoise.from_spec(spec)
    if noise is None:
        return ()
    model = DroneModel(spec)
    vector = model.file_vector()
    low, high = vector.copy(), vector.copy()
    for k, name in enumerate(NAMES):
        quantity = spec.response.get(f"response.{name}")
        if quantity is not None:
            low[k], high[k] = quantity.low, quantity.high
    return tuple(coverage_of(DroneFit(model, vector, low, high, []), noise, flights, RECORDED))


def joined_coverage(rows: Sequence[Coverage]) -> list[Coverage]:
    """Return the coverage of several folds together: shares of all motions, and the mean width."""
    cells: dict[tuple[str, float, str, str], list[Coverage]] = {}
    for row in rows:
        cells.setdefault((row.robot, row.horizon_s, row.channel, row.split), []).append(row)
    found = []
    for (robot, horizon, channel, split), parts in sorted(cells.items(), key=lambda item: (not item[0][0], item[0][0])):
        count = sum(part.count for part in parts)
        inside, without, width = (
            sum(getattr(part, each) * part.count for part in parts) / count
            for each in ("inside", "without_noise", "width")
        )
        found.append(Coverage(robot, horizon, channel, inside, without, width, count, split))
    return found


def _held(
    model: DroneModel, samples: FlightSamples, vectors: np.ndarray, push: NoisyPush | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return which recorded motions are inside the bands of the futures, and the bands' widths: (6, H, S)."""
    marks = tuple(samples.mark(horizon) for horizon in HORIZONS_S)
    found = predict(model, samples, vectors, marks, push)
    inside, width = [], []
    for k in marks:
        error = np.concatenate(errors(samples, k, found[k]))  # (6, K, S): sampled, beside the recorded one
        low, high = np.quantile(error, [_TAIL, 1 - _TAIL], axis=1, method="weibull")
        inside.append((low <= 0) & (high >= 0))
        width.append(high - low)
    return np.stack(inside, axis=1), np.stack(width, axis=1)
