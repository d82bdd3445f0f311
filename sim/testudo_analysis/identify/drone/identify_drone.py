"""Identifies quadrotors from their motor signals: parameters with intervals, and errors on what was held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from testudo_analysis.identify.drone.drone_estimates import drone_estimates
from testudo_analysis.identify.drone.drone_fit import DroneFit, FitSettings, fit_drone
from testudo_analysis.identify.drone.fitted_model import DroneModel, errors, predict
from testudo_analysis.identify.drone.flight_segments import (
    FlightRecord,
    FlightSamples,
    PredictionWindows,
    flight_of,
    piece_of,
)
from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, HeldOut, Identification, Quantiles
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import body_up, conjugate, from_rotation_vector, multiply, rotation_vector
from testudo_hardware.spec import RobotSpec
from testudo_runs.progress_bar import Tell, part, quiet
from testudo_runs.recording.recording import Recording, RobotRecording

RUNS = "runs"
"""What was held out: each run in turn, all its robots."""
HORIZONS_S = (0.1, 0.5)
CHANNELS = (("position", "m"), ("attitude", "rad"))
HELD = "with the force before the start"
"""Ending of a channel whose prediction also holds the force that was seen before the start."""
Fold = tuple[str, list[FlightRecord], list[FlightRecord]]
"""What is held out, what is fitted, and what is measured."""
_GRAVITY = np.array([[0.0], [0.0], [9.81]])


@dataclass(frozen=True)
class DroneSettings:
    """How drones are identified."""

    hold_out: tuple[str, ...] = (HALF, ROBOTS)
    """Of `HALF`, `ROBOTS`, `RUNS`."""
    causal: bool = False
    """Also measure predictions that hold the force which was seen before the start."""
    fit: FitSettings | None = None
    windows: PredictionWindows | None = None
    """Of the starts that errors are measured on."""


def can_identify(robot: RobotRecording) -> bool:
    """Return whether motors and odometry of a robot were recorded."""
    return all(role in robot.series and len(robot.series[role]) for role in ("motors", "odometry"))


def identify_drone(
    recordings: Sequence[Recording],
    spec: RobotSpec,
    *,
    robots: Sequence[str] = (),
    settings: DroneSettings | None = None,
    tell: Tell = quiet,
) -> Identification:
    """Return what flights say about one type of quadrotor.

    Args:
        recordings: runs; all robots of one type.
        spec: the robot, with `[rotors]`.
        robots: names; all with motors and odometry if none.
        settings: what to hold out.
        tell: is told what is being done, and the share that is done.

    Raises:
        TestudoError: no flight can be used, or the robot file has no `[rotors]`.
    """
    settings = settings or DroneSettings()
    if not spec.rotors:
        raise TestudoError(f"{spec.name}: the robot file has no [rotors]; to identify from motor signals it needs them")
    flights = [
        replace(flight_of(robot), name=f"{k}/{robot.name}")
        for k, recording in enumerate(recordings)
        for robot in recording.robots.values()
        if (not robots or robot.name in robots) and can_identify(robot)
    ]
    if not flights:
        raise TestudoError("identify: no robot of the run has both motors and odometry recorded")
    model = DroneModel(spec, settings.causal)
    splits = {split: folds(flights, split) for split in settings.hold_out}
    fits = 1 + sum(map(len, splits.values()))
    fit = fit_drone(model, flights, settings.fit, part(tell, 0.0, 1 / fits))
    rows, done = [], 1
    for split, folded in splits.items():
        rows += held_out(model, split, folded, settings, part(tell, done / fits, (done + len(folded)) / fits))
        done += len(folded)
    names = tuple(dict.fromkeys(flight.robot for flight in flights))
    facts = {
        "fitted": ", ".join(names),
        "windows": f"{fit.starts} starts, 0.1, 0.3, 0.5 s",
        "flights": len(flights),
        "explained": dict(zip(("roll", "pitch", "yaw"), fit.fast[0].explained, strict=True)),
        "loss": "Cauchy of position and attitude errors over 2, 8, 20 mm and 5, 20, 50 mrad",
    }
    return Identification(spec.name, names, drone_estimates(fit, flights, spec), tuple(rows), facts)


def held_out(
    model: DroneModel, split: str, folded: Sequence[Fold], settings: DroneSettings, tell: Tell = quiet
) -> list[HeldOut]:
    """Return the errors by robot on what a fit has not seen.

    A split that leaves nothing to fit or to measure on has no rows.
    """
    windows = settings.windows or PredictionWindows()
    errors_of: dict[str, list[dict[str, np.ndarray]]] = {}
    for k, (what, train, test) in enumerate(folded):
        own = part(tell, k / len(folded), (k + 1) / len(folded))
        fit = fit_drone(model, train, settings.fit, _named(own, f"held out: {what}"))
        for flight in test:
            if len(windows.starts(flight)):
                errors_of.setdefault(flight.robot, []).append(measure(fit, flight, windows))
    rows = []
    for robot, parts in errors_of.items():
        joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        endings = ("", f" {HELD}") if model.causal else ("",)
        rows += [
            HeldOut(
                robot,
                horizon,
                channel + ending,
                unit,
                *(
                    Quantiles.create(joined[f"{who} {channel} {horizon:g}"])
                    for who in ("baseline", "nominal", "identified" + ending)
                ),
                split,
            )
            for horizon in HORIZONS_S
            for channel, unit in CHANNELS
            for ending in endings
        ]
    return rows


def _named(tell: Tell, name: str) -> Tell:
    return lambda text, share: tell(f"{name}, {text}", share)


def folds(flights: Sequence[FlightRecord], split: str) -> list[Fold]:
    """Return what is held out, what is fitted and what is measured; runs are the first part of a flight's name."""
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
    """Return the errors (S,) of a flight by who predicts, channel and horizon."""
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
    """Return position errors (3, S) [m] and rotation vectors (3, S) [rad] of the simplest prediction.

    The logged collective thrust acts along the body's axis, and the body's rates are held.
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
            found[k + 1] = (
                position - samples.at("position_world", k + 1),
                rotation_vector(multiply(conjugate(quaternion), logged)),
            )
    return found
