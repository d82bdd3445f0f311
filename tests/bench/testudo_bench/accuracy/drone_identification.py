"""`testudo bench drone_identify`: predicts quadrotors from motor signals, on held-out flights."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from testudo_analysis.identify.drone.drone_fit import fit_drone
from testudo_analysis.identify.drone.fitted_model import DroneModel
from testudo_analysis.identify.drone.flight_segments import FlightRecord, FlightSamples, PredictionWindows, flight_of
from testudo_analysis.identify.drone.identify_drone import (
    CHANNELS,
    HELD,
    HORIZONS_S,
    can_identify,
    drone_estimates,
    folds,
    measure,
)
from testudo_analysis.identify.drone.open_loop import errors, predict
from testudo_analysis.identify.estimation.identification_result import ROBOTS, RUNS
from testudo_bench.performance.recorded_runs import DATA_VARIABLE
from testudo_deploy.commands.report import BenchResult, machine
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import Quantity, RobotSpec, load_robot
from testudo_runs.importing.logs.log_discovery import files_of, runs_of
from testudo_runs.importing.run_import import ImportRequest, read_sources

FOLDER = "crazyflie_swarm"
_SHOWN = {"position": ("mm", 1e3), "attitude": ("deg", 180 / math.pi)}
_BARS = {("position", 0.1): 0.10, ("attitude", 0.1): 0.10, ("position", 0.5): 0.35, ("attitude", 0.5): 0.45}

_SHIPPED_MASS_KG = 0.0319
_SHIPPED = {
    "rotors.arm": 0.03253,
    "rotors.roll_inertia": 16.8e-6,
    "rotors.pitch_inertia": 16.8e-6,
    "rotors.yaw_inertia": 29.8e-6,
    "rotors.torque_per_thrust": 0.00735,
    "rotors.thrust_scale": 1.0,
    "rotors.thrust_lag": 1 / 6.8932,
    "rotors.thrust_delay": 0.0,
    "rotors.drag_across": 0.01471782,
    "rotors.drag_along": 0.01277641,
    "rotors.thrust_most": 0.12,
    "rotors.thrust_most_per_volt": 0.0,
}
"""Parameters in crazyflow 0.4.0 and drone_models 0.1.0 for the Crazyflie with brushed motors (cf2x_L250); the lag is
that of their first-order thrust model."""


def bench_drone_identify(
    *,
    data: Path | None = None,
    robot: str = "crazyflie_2x",
    runs: str = "swap",
    leave_out: tuple[str, ...] = (RUNS, ROBOTS),
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Fit flights, and predict held-out flights open loop; compare with ballistic prediction and crazyflow.

    All flights of a run, or of a vehicle, are held out together, so that no log of the same flight is in the fit.

    Args:
        data: folder of Crazyflie logs; default: that in the environment variable TESTUDO_REAL_DATA.
        robot: registered robot or robot file.
        runs: use runs whose name contains this text.
        leave_out: runs, robots, or both.
        say: called with progress messages.
    """
    spec = load_robot(robot)
    flights = read_flights(data or Path(os.environ.get(DATA_VARIABLE, "")) / FOLDER, runs, say)
    model = DroneModel(spec, causal=True)
    begin = time.perf_counter()
    whole = fit_drone(model, flights)
    values: dict[str, Any] = {
        "fit_s": time.perf_counter() - begin,
        "flights": len(flights),
        "machine": machine(),
        "estimates": {
            each.key: [each.value, each.low, each.high, each.unit, each.determined]
            for each in drone_estimates(whole, flights, spec)
        },
    }
    tables = []
    for split in leave_out:
        sizes: dict[str, dict[str, list[np.ndarray]]] = {}
        for what, train, test in folds(flights, split):
            say(f"fitting without {what}")
            fit = fit_drone(model, train)
            for flight in test:
                found = measure(fit, flight, PredictionWindows()) | _shipped(spec, flight)
                for key, size in found.items():
                    sizes.setdefault(flight.robot, {}).setdefault(key, []).append(size)
        rows, values[split] = _rows(sizes)
        tables.append(BenchResult(f"held out: {split}", _COLUMNS, rows, {}))
    duration = sum(flight.stamp_s[-1] - flight.stamp_s[0] for flight in flights)
    title = (
        f"{len(flights)} flights of {spec.name}, {duration:.0f} s, fitted in {values['fit_s']:.0f} s; "
        f"held out: {leave_out[0]}"
    )
    return BenchResult(title, _COLUMNS, tables[0].rows, values, tuple(tables[1:]))


def read_flights(folder: Path, runs: str, say: Callable[[str], None] = lambda _: None) -> list[FlightRecord]:
    """Return the flights of a folder of logs, named run/robot.

    Raises:
        TestudoError: there are none.
    """
    if not folder.is_dir():
        raise TestudoError(
            f"drone_identify: found no folder {folder}, expected Crazyflie logs; set "
            f"{DATA_VARIABLE} to the parent folder of {FOLDER}"
        )
    found = []
    for run in sorted(runs_of(files_of([folder]), None)):
        if runs not in run:
            continue
        say(f"reading {run}")
        recording = read_sources(ImportRequest((folder,), pick=run))[0].recording
        found += [
            replace(flight_of(robot), name=f"{run}/{robot.name}")
            for robot in recording.robots.values()
            if can_identify(robot)
        ]
    if not found:
        raise TestudoError(
            f"drone_identify: {folder}: found no run with {runs!r} in its name and with motor signals and odometry"
        )
    return found


def shipped_spec(spec: RobotSpec, mass_kg: float) -> RobotSpec:
    """Return the robot with crazyflow's shipped parameters and a mass."""
    rotors = dict(spec.rotors)
    for key, value in _SHIPPED.items():
        rotors[key] = Quantity(value, rotors[key].unit, "drone_models 0.1.0", value, value)
    return replace(spec, mass_kg=mass_kg, rotors=rotors)


def _shipped(spec: RobotSpec, flight: FlightRecord) -> dict[str, np.ndarray]:
    samples = FlightSamples.create([flight], PredictionWindows())
    marks = {horizon: samples.mark(horizon) for horizon in HORIZONS_S}
    sizes = {}
    for name, mass in (("shipped", _SHIPPED_MASS_KG), ("shipped, our mass", spec.mass_kg)):
        model = DroneModel(shipped_spec(spec, mass))
        found = predict(model, samples, model.file_vector()[:, None], tuple(marks.values()))
        for horizon, mark in marks.items():
            for (channel, _), error in zip(CHANNELS, errors(samples, mark, found[mark]), strict=True):
                sizes[f"{name} {channel} {horizon:g}"] = np.linalg.norm(error, axis=0)[0]
    return sizes


_MODELS = ("baseline", "shipped", "shipped, our mass", "nominal", "identified", f"identified {HELD}")
_COLUMNS = (
    "vehicle",
    "after",
    "error, median",
    "ballistic",
    "crazyflow",
    "crazyflow, our mass",
    "robot file",
    "identified",
    "and the force before",
    "identified against ballistic",
    "bar",
)


def _rows(sizes: Mapping[str, Mapping[str, list[np.ndarray]]]) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    rows, values = [], {}
    for robot in sorted(sizes):
        for horizon in HORIZONS_S:
            for channel, _ in CHANNELS:
                unit, factor = _SHOWN[channel]
                medians = {
                    model: factor * float(np.median(np.concatenate(sizes[robot][f"{model} {channel} {horizon:g}"])))
                    for model in _MODELS
                }
                change = medians["identified"] / medians["baseline"] - 1
                held = medians[_MODELS[-1]] / medians["baseline"] - 1
                starts = sum(map(len, sizes[robot][f"baseline {channel} {horizon:g}"]))
                values[f"{robot} {channel} {horizon:g} s"] = medians | {
                    "unit": unit,
                    "change": change,
                    "change_with_force": held,
                    "starts": starts,
                }
                rows.append(
                    (
                        robot,
                        f"{horizon:g} s",
                        f"{channel} ({unit})",
                        *(f"{medians[model]:.2f}" for model in _MODELS),
                        f"{change:+.0%} ({held:+.0%})",
                        f"-{_BARS[channel, horizon]:.0%}",
                    )
                )
    return rows, values
