"""Identification of quadrotors from motor signals: parameters with intervals, and errors on held-out data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from testudo_analysis.identify.drone.drone_fit import EXPLAINED, DroneFit, FitSettings, fit_drone
from testudo_analysis.identify.drone.fitted_model import DISTURBANCE, NAMES, RESPONSE_NAMES, UNITS, DroneModel
from testudo_analysis.identify.drone.flight_segments import (
    FlightRecord,
    FlightSamples,
    PredictionWindows,
    flight_of,
    piece_of,
)
from testudo_analysis.identify.drone.open_loop import errors, predict
from testudo_analysis.identify.drone.response_noise import ResponseNoise
from testudo_analysis.identify.drone.response_noise_fit import (
    FEWEST,
    FlightErrors,
    coverage_of,
    fit_response_noise,
    joined_coverage,
)
from testudo_analysis.identify.drone.rotor_lag import FastResponse
from testudo_analysis.identify.estimation.identification_result import (
    HALF,
    ROBOTS,
    RUNS,
    Coverage,
    Estimate,
    HeldOut,
    Identification,
)
from testudo_analysis.identify.estimation.robust_fit import BootstrapSpread
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import body_up, conjugate, from_rotation_vector, multiply, rotation_vector
from testudo_hardware.schema import RESPONSE_NOISE, ROTORS
from testudo_hardware.spec import RobotSpec
from testudo_runs.progress_bar import Tell, part, quiet
from testudo_runs.recording.recording import Recording, RobotRecording

HORIZONS_S = (0.1, 0.5)
CHANNELS = (("position", "m"), ("attitude", "rad"))
HELD = "with the force before the start"
"""Ending of a channel whose prediction also contains the force estimated before the start."""
Fold = tuple[str, list[FlightRecord], list[FlightRecord]]
"""Name of the held-out data, flights of the fit, flights of the validation."""
_GRAVITY = np.array([[0.0], [0.0], [9.81]])


@dataclass(frozen=True)
class DroneSettings:
    """Settings of the identification."""

    hold_out: tuple[str, ...] = (HALF, ROBOTS)  # of `HALF`, `ROBOTS`, `RUNS`
    causal: bool = False  # also validate predictions with the force estimated before the start
    fit: FitSettings | None = None
    windows: PredictionWindows | None = None  # of the starts of the validation


def can_identify(robot: RobotRecording) -> bool:
    """Return whether motor signals and odometry of a robot are recorded."""
    return all(role in robot.series and len(robot.series[role]) for role in ("motors", "odometry"))


def identify_drone(
    recordings: Sequence[Recording],
    spec: RobotSpec,
    *,
    robots: Sequence[str] = (),
    settings: DroneSettings | None = None,
    tell: Tell = quiet,
) -> Identification:
    """Return the identification of one type of quadrotor from flights.

    ``recordings`` have robots of one type, and ``spec`` has `[rotors]`; ``robots`` are names, by default all with motor
    signals and odometry; ``tell`` gets the current step and the completed fraction.

    Raises:
        TestudoError: no usable flight, or the robot file has no `[rotors]`.
    """
    settings = settings or DroneSettings()
    if not spec.rotors:
        raise TestudoError(f"{spec.name}: found no [rotors] in the robot file, expected them for motor signals")
    flights = [
        replace(flight_of(robot), name=f"{k}/{robot.name}")
        for k, recording in enumerate(recordings)
        for robot in recording.robots.values()
        if (not robots or robot.name in robots) and can_identify(robot)
    ]
    if not flights:
        raise TestudoError("identify: found no robot with both motors and odometry, expected at least one")
    model = DroneModel(spec, settings.causal)
    splits = {split: folds(flights, split) for split in settings.hold_out}
    fits = 1 + sum(map(len, splits.values()))
    fit = fit_drone(model, flights, settings.fit, part(tell, 0.0, 1 / fits))
    rows, done = [], 1
    fitted: dict[str, list[FittedFold]] = {}
    for split, folded in splits.items():
        fitted[split] = fitted_folds(model, folded, settings, part(tell, done / fits, (done + len(folded)) / fits))
        rows += held_out(model, split, fitted[split], settings)
        done += len(folded)
    noise, coverage = None, []
    for split in (RUNS, ROBOTS, HALF):  # the one with the most different data first
        if fitted.get(split):
            noise, coverage = residual_motion(fit, split, fitted[split])
            break
    names = tuple(dict.fromkeys(flight.robot for flight in flights))
    facts = {
        "fitted": ", ".join(names),
        "windows": f"{fit.starts} starts, 0.1, 0.3, 0.5 s",
        "flights": len(flights),
        "explained": dict(zip(("roll", "pitch", "yaw"), fit.fast[0].explained, strict=True)),
        "loss": "Cauchy of position and attitude errors over 2, 8, 20 mm and 5, 20, 50 mrad",
    }
    found = drone_estimates(fit, flights, spec) + noise_estimates(noise)
    return Identification(spec.name, names, found, tuple(rows), facts, tuple(coverage))


@dataclass(frozen=True)
class FittedFold:
    """A fit, and the flights that it has not seen."""

    fit: DroneFit
    flights: tuple[FlightRecord, ...]


def fitted_folds(
    model: DroneModel, folded: Sequence[Fold], settings: DroneSettings, tell: Tell = quiet
) -> list[FittedFold]:
    """Return the fits of the folds of a split."""
    found = []
    for k, (what, train, test) in enumerate(folded):
        own = part(tell, k / len(folded), (k + 1) / len(folded))
        fit = fit_drone(model, train, settings.fit, _named(own, f"held out: {what}"))
        found.append(FittedFold(fit, tuple(test)))
    return found


def held_out(model: DroneModel, split: str, folded: Sequence[FittedFold], settings: DroneSettings) -> list[HeldOut]:
    """Return the errors on held-out data by robot.

    A split without data for fit or validation has no rows.
    """
    windows = settings.windows or PredictionWindows()
    errors_of: dict[str, list[dict[str, np.ndarray]]] = {}
    for fold in folded:
        for flight in fold.flights:
            if len(windows.starts(flight)):
                errors_of.setdefault(flight.robot, []).append(measure(fold.fit, flight, windows))
    rows = []
    for robot, parts in errors_of.items():
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        endings = ("", f" {HELD}") if model.causal else ("",)
        for horizon, (channel, unit), ending in product(HORIZONS_S, CHANNELS, endings):
            models = ("baseline", "nominal", "identified" + ending)
            found = [joined[f"{model} {channel} {horizon:g}"] for model in models]
            rows.append(HeldOut.of(robot, horizon, channel + ending, unit, found, split))
    return rows


def residual_motion(
    fit: DroneFit, split: str, folded: Sequence[FittedFold]
) -> tuple[ResponseNoise | None, list[Coverage]]:
    """Return what the response of a fit leaves on the flights of the folds, and the coverage of each fold in turn.

    The errors are those of flights that their own fold's parameters have not seen. The coverage of a fold is by the
    process of the other folds. No process without enough starts, and no coverage without a second fold.
    """
    model = replace(fit.model, causal=False)
    parts = [FlightErrors.create(model, fold.fit.vector, fold.flights) for fold in folded]

    def process(vector: np.ndarray, others: list[FlightErrors | None]) -> ResponseNoise | None:
        known = [one for one in others if one is not None]
        if sum(one.error.shape[-1] for one in known) < FEWEST:
            return None
        return fit_response_noise(model, vector, FlightErrors.joined(known))

    rows: list[Coverage] = []
    for k, fold in enumerate(folded):
        noise = process(fold.fit.vector, parts[:k] + parts[k + 1 :])
        if noise is not None:
            rows += coverage_of(fold.fit, noise, fold.flights, split)
    return process(fit.vector, parts), joined_coverage(rows)


def _named(tell: Tell, name: str) -> Tell:
    return lambda text, share: tell(f"{name}, {text}", share)


def folds(flights: Sequence[FlightRecord], split: str) -> list[Fold]:
    """Return the folds of a split; the first part of a flight's name is its run."""
    if split == HALF:
        halves = [(piece_of(flight, 0.0, 0.5), piece_of(flight, 0.5, 1.0)) for flight in flights]
        return [("second half", [first for first, _ in halves], [second for _, second in halves])]
    group = {ROBOTS: lambda flight: flight.robot, RUNS: lambda flight: flight.name.partition("/")[0]}[split]
    found = []
    for name in dict.fromkeys(map(group, flights)):
        train = [flight for flight in flights if group(flight) != name]
        if train:
            found.append((str(name), train, [flight for flight in flights if group(flight) == name]))
    return found


def measure(fit: DroneFit, flight: FlightRecord, windows: PredictionWindows) -> dict[str, np.ndarray]:
    """Return the errors (S,) of a flight by model, channel and horizon."""
    samples = FlightSamples.create([flight], windows)
    marks = {horizon: samples.mark(horizon) for horizon in HORIZONS_S}
    both = np.stack([fit.model.file_vector(), fit.vector], axis=1)
    found = predict(replace(fit.model, causal=False), samples, both, tuple(marks.values()))
    falling = ballistic(samples, fit.model.spec.mass_kg, tuple(marks.values()))
    held = predict(fit.model, samples, fit.vector[:, None], tuple(marks.values())) if fit.model.causal else None
    sizes = {}
    for horizon, mark in marks.items():
        for channel, error in enumerate(errors(samples, mark, found[mark])):
            name = f"{CHANNELS[channel][0]} {horizon:g}"
            sizes[f"nominal {name}"], sizes[f"identified {name}"] = np.linalg.norm(error, axis=0)
            sizes[f"baseline {name}"] = np.linalg.norm(falling[mark][channel], axis=0)
            if held is not None:
                key = f"identified {HELD} {name}"
                sizes[key] = np.linalg.norm(errors(samples, mark, held[mark])[channel], axis=0)[0]
    return sizes


def ballistic(
    samples: FlightSamples, mass_kg: float, marks: tuple[int, ...]
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return position errors (3, S) [m] and rotation vectors (3, S) [rad] of the baseline prediction.

    The logged collective thrust acts along the body axis, with constant body rates.
    """
    position, velocity = samples.at("position_world"), samples.at("velocity_world")
    quaternion, rates = samples.at("quaternion_xyzw"), samples.at("rates_body")
    found = {}
    for k in range(max(marks)):
        duration = samples.durations(k)
        push = body_up(quaternion) * samples.at("thrust_command", k).sum(axis=0) / mass_kg - _GRAVITY
        position = position + duration * velocity + duration**2 / 2 * push
        velocity = velocity + duration * push
        quaternion = multiply(quaternion, from_rotation_vector(rates * duration))
        if k + 1 in marks:
            logged = samples.at("quaternion_xyzw", k + 1)
            turned = rotation_vector(multiply(conjugate(quaternion), logged))
            found[k + 1] = position - samples.at("position_world", k + 1), turned
    return found


SEEN = 0.3
"""Share of the fast rates that the motors must explain for lag and delay to be determined."""
_SATURATED = 0.002  # share of commands above the largest thrust for it to be determined
_MASS = (
    "motor signals and motion determine only thrust over mass, so the thrust scale is for this mass; to find it: "
    "weigh the drone"
)
_INERTIA = (
    "the logged motor signals explain only {share:.0%} of the fast rates, so arm over inertia is too small; to find "
    "it: log the motors at the rate of the controller, with quick steps of the {axis} rate"
)
_LAG = "the fast rates do not follow the motors; to find it: quick steps of roll and pitch rate, logged at 100 Hz"
_MOST = "the commands rarely exceed it; to find it: a climb at full thrust, or turns at high load"
_TRADED = (
    "it trades off with effects that the logged motors do not explain; to find it: log the PWM, and climb at full "
    "thrust"
)
_EFFECTIVE = "effective: for predictions from logs of this kind, not a property of the drone alone"


def drone_estimates(fit: DroneFit, flights: Sequence[FlightRecord], spec: RobotSpec) -> tuple[Estimate, ...]:
    """Return the estimates of a fit; keys of the robot file, and of its response as logs show it (`response.*`)."""
    mass = spec.quantities["geometry.mass"]
    rows = [
        Estimate("geometry.mass", mass.value, mass.low, mass.high, "kg", False, _MASS),
        _direct(fit, "thrust_scale", note=f"for a mass of {mass.value:g} kg"),
    ]
    moving = bool(min(fit.fast[0].explained[:2]) >= SEEN and fit.fast[0].inside)
    rows += [_direct(fit, name, moving, "" if moving else _LAG) for name in ("thrust_lag", "thrust_delay")]
    rows += [_direct(fit, name) for name in ("drag_across", "drag_along")]
    above = np.mean(np.concatenate([flight.thrust_command.ravel() > fit.value("thrust_most") for flight in flights]))
    seen, explained = bool(above >= _SATURATED), bool(min(fit.fast[0].explained[:2]) >= EXPLAINED)
    note = "" if seen and explained else _TRADED if seen else _MOST
    rows.append(_direct(fit, "thrust_most", seen and explained, note))
    # inertias, and for yaw the torque ratio, from the gains of the fast response
    rotors, scale = spec.rotors, fit.value("thrust_scale")
    gains = np.array([each.gains for each in fit.fast])
    found = []
    for k, axis in enumerate(("roll", "pitch")):
        values = rotors["rotors.arm"].value * scale / np.maximum(gains[:, k], 1e-9)
        found.append(_from_draws(f"rotors.{axis}_inertia", values, fit.fast[0], fit.fast[0].explained[k], axis))
    ratio = np.maximum(gains[:, 2], 0) * rotors["rotors.yaw_inertia"].value / scale
    rows += [*found, _from_draws("rotors.torque_per_thrust", ratio, fit.fast[0], fit.fast[0].explained[2], "yaw")]
    effective = RESPONSE_NAMES + (DISTURBANCE if fit.model.causal else ())
    rows += [
        Estimate(f"response.{name}", fit.value(name), *fit.interval(name), UNITS[NAMES.index(name)], True, _EFFECTIVE)
        for name in effective
    ]
    return tuple(rows)


def noise_estimates(noise: ResponseNoise | None) -> tuple[Estimate, ...]:
    """Return what the response leaves as estimates with the keys of a robot file, without intervals."""
    rows = []
    for name, number in ({} if noise is None else noise.to_dict()).items():
        rule = RESPONSE_NOISE[f"response_noise.{name}"]
        value = float(np.clip(number, rule.low, rule.high))
        rows.append(Estimate(f"response_noise.{name}", value, value, value, rule.unit))
    return tuple(rows)


def _direct(fit: DroneFit, name: str, determined: bool = True, note: str = "") -> Estimate:
    return Estimate(
        f"rotors.{name}", fit.value(name), *fit.interval(name), ROTORS[f"rotors.{name}"].unit, determined, note
    )


def _from_draws(key: str, values: np.ndarray, fast: FastResponse, explained: float, axis: str) -> Estimate:
    value = values[0]
    low = high = value
    if len(values) > 1:
        low, high = (float(end[0]) for end in BootstrapSpread(values[1:, None], fast.pieces, 1).interval(values[:1]))
    note = _INERTIA.format(share=max(explained, 0.0), axis=axis) if explained < EXPLAINED else ""
    ends = float(max(min(low, value), 0.0)), float(max(high, value))
    return Estimate(key, float(value), *ends, ROTORS[key].unit, bool(explained >= EXPLAINED), note)
