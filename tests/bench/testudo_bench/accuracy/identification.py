"""`testudo bench identify`: recovery of known parameters, and remaining errors on a real run."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from testudo_analysis.identify.drone.identify_drone import DroneSettings, identify_drone
from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, Identification
from testudo_analysis.identify.identify_run import identify_run
from testudo_bench.accuracy.parameter_recovery import COLUMNS, Found, recoveries, recovery_table, saved_values
from testudo_bench.performance.recorded_runs import DATA_VARIABLE
from testudo_bench.synthetic_data.synthetic_flights import DroneTruth, synthetic_flight
from testudo_bench.synthetic_data.synthetic_runs import Truth, synthetic_run
from testudo_deploy.commands.report import BenchResult, machine
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_runs.alignment import prepare
from testudo_runs.alignment.sample_cleaning import LATEST_S
from testudo_runs.importing.run_import import ImportRequest, import_run
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording

_SHOWN = {
    "velocity_lag_s": "dynamics.velocity_lag",
    "command_delay_s": "dynamics.command_delay",
    "speed_scale": "dynamics.speed_scale",
    "turn_scale": "dynamics.turn_scale",
    "turn_slip_s_rad": "dynamics.turn_slip",
}
_ROTORS = {
    "thrust_scale": "rotors.thrust_scale",
    "lag_s": "rotors.thrust_lag",
    "delay_s": "rotors.thrust_delay",
    "drag_kg_s": "rotors.drag_across",
}
_ROBOTS, _DURATION_S, _FLIGHT_S = 3, 60.0, 10.0
_REAL = "mrclam6"


def bench_identify(
    *,
    robot: str = "irobot_create",
    repeats: int = 50,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Identify synthetic runs with known parameters, and real ground robots if their logs are available.

    Runs of three robots for a minute have lost poses, noise, clock offset and clock drift. Robots with rotors fly for
    10 s with noise, and are identified from motor signals. Real logs are in the folder of the environment variable
    TESTUDO_REAL_DATA.

    Args:
        robot: registered robot.
        repeats: number of synthetic runs.
        saved: JSON file with the result of each run, so that the same command resumes.
        say: called with progress messages.
    """
    spec = load_robot(robot)
    flies = bool(spec.rotors)
    length = _FLIGHT_S if flies else _DURATION_S
    settings = {"robot": spec.name, "robot_sha256": spec.sha256, "robots": _ROBOTS, "duration_s": length}
    found = recoveries(repeats, lambda k: (recover_flight if flies else recover_drawn)(spec, k), settings, saved, say)
    rows, numbers = recovery_table(found, _ROTORS if flies else _SHOWN)
    values: dict[str, Any] = {**saved_values(settings, found), "synthetic": numbers, "machine": machine()}
    more = []
    folder = Path(os.environ.get(DATA_VARIABLE, "")) / _REAL
    if spec.kind == DIFFERENTIAL_DRIVE and os.environ.get(DATA_VARIABLE) and folder.is_dir():
        more = [_real(folder, say)]
        values |= more[0].values
    title = f"{repeats} synthetic runs of {_ROBOTS} {spec.name}, {length:g} s each"
    return BenchResult(title, COLUMNS, rows, values, tuple(more))


def recover_drawn(spec: RobotSpec, number: int) -> Found:
    """Return the recovery of random parameters of robots with velocity commands."""
    truth = draw_truth(spec, np.random.default_rng([number, 1]))
    return recover(spec, truth, robots=_ROBOTS, duration_s=_DURATION_S, seed=number)


def recover_flight(spec: RobotSpec, number: int) -> Found:
    """Return the recovery of random parameters of quadrotors, from motor signals."""
    truth = draw_drone_truth(np.random.default_rng([number, 1]))
    recording = synthetic_flight(spec, truth, drones=_ROBOTS, duration_s=_FLIGHT_S, seed=number)
    identified = identify_drone([recording], spec, settings=DroneSettings(hold_out=()))
    rows = {name: identified.find(key) for name, key in _ROTORS.items()}
    return {name: (getattr(truth, name), row.value, row.low, row.high) for name, row in rows.items()}


def draw_truth(spec: RobotSpec, rng: np.random.Generator) -> Truth:
    """Return random parameters around the robot file, with a clock offset larger than any transport delay."""
    wheeled = np.isfinite(spec.turn_scale)
    return Truth(
        spec.velocity_lag_s * rng.uniform(0.7, 1.8),
        spec.command_delay_s * rng.uniform(0.7, 1.8),
        rng.uniform(0.85, 1.1),
        rng.uniform(0.85, 1.1) if wheeled else 1.0,
        rng.uniform(0.5, 2.0) / spec.turn_rate_limit_rad_s if wheeled else 0.0,
        clock_offset_s=LATEST_S + rng.uniform(0.1, 10),
        clock_drift=rng.uniform(-5e-5, 5e-5),
    )


def draw_drone_truth(rng: np.random.Generator) -> DroneTruth:
    """Return random quadrotor parameters; with these lags the controller of synthetic flights is stable."""
    return DroneTruth(
        rng.uniform(0.9, 1.05), rng.uniform(0.03, 0.08), rng.uniform(0.005, 0.035), rng.uniform(0.01, 0.06)
    )


def recover(spec: RobotSpec, truth: Truth, *, robots: int, duration_s: float, seed: int) -> Found:
    """Return truth, value, low and high of each parameter of a synthetic run."""
    recording = synthetic_run(spec, truth, robots=robots, duration_s=duration_s, seed=seed)
    identified = identify_run(prepare(recording), hold_out=())[0]
    keys = {row.key for row in identified.estimates}
    rows = {name: identified.find(key) for name, key in _SHOWN.items() if key in keys}
    return {name: (getattr(truth, name), row.value, row.low, row.high) for name, row in rows.items()}


def _real(folder: Path, say: Callable[[str], None]) -> BenchResult:
    with tempfile.TemporaryDirectory() as scratch:
        say("importing the real run")
        import_run(ImportRequest((folder,)), Path(scratch) / "run")
        recording: Recording = load_recording(Path(scratch) / "run")
        begin, worked = time.perf_counter(), time.process_time()
        found, _ = identify_run(prepare(recording), tell=lambda text, _: say(text))
        return _real_result(found, time.perf_counter() - begin, time.process_time() - worked)


def _real_result(found: Identification, seconds: float, worked: float) -> BenchResult:
    rows, values = [], {"real_seconds": seconds, "real_processor_seconds": worked, "real": {}}
    bars = {"median": 0.35, "p90": 0.5}
    for split in (HALF, ROBOTS):
        for name, share in zip(bars, found.reductions("position", 2.0, split), strict=True):
            rows.append((f"position after 2 s, {split} held out, {name}", f"{-share:+.1%}", f"{-bars[name]:+.0%}"))
            values["real"][f"{split}_{name}"] = share
    rows.append(
        (
            f"time for {found.facts['duration_s']:.0f} s and {len(found.robots)} robots",
            f"{seconds:.0f} s ({worked:.0f} s of processor time)",
            "180 s",
        )
    )
    result: dict[str, Any] = values | {"identification": {k: v for k, v in found.to_dict().items() if k != "facts"}}
    return BenchResult(
        "A real run, against dead reckoning with the logged velocities", ("what", "found", "bar"), rows, result
    )
