"""`testudo bench identify`: parameters that are known are found again, and on a real run the errors that are left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.benchmarking import BenchResult, machine
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_sim.alignment import align_robot
from testudo_sim.identify.ground import fit_ground
from testudo_sim.identify.result import HALF, ROBOTS, Identification
from testudo_sim.identify.roll import to_file
from testudo_sim.identify.run import identify_run
from testudo_sim.identify.synthetic import Truth, synthetic_run
from testudo_sim.recording import load_recording

_SHOWN = {"velocity_lag_s": "dynamics.velocity_lag", "command_delay_s": "dynamics.command_delay",
          "speed_scale": "dynamics.speed_scale", "turn_scale": "dynamics.turn_scale",
          "turn_slip_s_rad": "dynamics.turn_slip"}


def bench_identify(*, robot: str = "irobot_create", runs: int = 50, robots: int = 3, duration: float = 60.0,
                   run: Path | None = None, seed: int = 0) -> BenchResult:
    """Identify synthetic runs of known truth, each another one, and a real run if there is one.

    Synthetic runs have lost poses, noise, and a clock of the robots that is off and drifts.

    Args:
        robot: registered robot.
        runs: synthetic runs.
        robots: robots in each.
        duration: length of each [s].
        run: an imported run of ground robots, to measure held-out errors and time on.
        seed: of truths and runs.
    """
    spec = load_robot(robot)
    rng = np.random.default_rng(seed)
    found = [recover(spec, draw_truth(spec, rng), robots=robots, duration_s=duration, seed=seed + k)
             for k in range(runs)]
    rows, values = _synthetic(found)
    more = []
    if run is not None:
        begin = time.perf_counter()
        identification, _ = identify_run(load_recording(run))
        more = [_real(identification, time.perf_counter() - begin)]
        values |= more[0].values
    title = f"{runs} synthetic runs of {robots} {robot}, {duration:g} s each"
    return BenchResult(title, ("parameter", "error, median", "error, largest", "95 % interval holds the truth",
                               "width, median"), rows, values | {"machine": machine()}, tuple(more))


def draw_truth(spec: RobotSpec, rng: np.random.Generator) -> Truth:
    """Return how a robot may be, around its file, with a clock that may be anything."""
    wheeled = np.isfinite(spec.turn_scale)
    return Truth(
        spec.velocity_lag_s * rng.uniform(0.7, 1.8), spec.command_delay_s * rng.uniform(0.7, 1.8),
        rng.uniform(0.85, 1.1), rng.uniform(0.85, 1.1) if wheeled else 1.0,
        rng.uniform(0.5, 2.0) / spec.turn_rate_limit_rad_s if wheeled else 0.0,
        clock_offset_s=rng.uniform(0.1, 10), clock_drift=rng.uniform(-5e-5, 5e-5))


def recover(spec: RobotSpec, truth: Truth, *, robots: int, duration_s: float, seed: int
            ) -> dict[str, tuple[float, float, float, float]]:
    """Return truth, value, low and high of each parameter of a synthetic run."""
    recording = synthetic_run(spec, truth, robots=robots, duration_s=duration_s, seed=seed)
    aligned = [align_robot(one, world=not np.isfinite(spec.turn_scale)) for one in recording.robots.values()]
    found = fit_ground(aligned, spec, hold_out=())
    low, high = found.spread.interval(found.values)
    value, low, high = (to_file(found.keys, part) for part in (found.values, low, high))
    index = {key: k for k, key in enumerate(found.keys)}
    return {name: (getattr(truth, name), float(value[index[key]]), float(low[index[key]]), float(high[index[key]]))
            for name, key in _SHOWN.items() if key in index}


def _synthetic(found: list[dict[str, tuple[float, float, float, float]]]) -> tuple[list[tuple[str, ...]], dict]:
    rows, values = [], {}
    for name in found[0] if found else ():
        true, value, low, high = np.array([one[name] for one in found]).T
        error, covered, width = np.abs(value / true - 1), (low <= true) & (true <= high), (high - low) / true
        values[name] = {"error_median": float(np.median(error)), "error_largest": float(error.max()),
                        "coverage": float(covered.mean()), "width_median": float(np.median(width))}
        rows.append((_SHOWN[name], f"{np.median(error):.2%}", f"{error.max():.2%} (bar 5 %)",
                     f"{covered.sum()} of {len(covered)} (bar 90 %)", f"{np.median(width):.2%}"))
    return rows, {"synthetic": values, "runs": len(found)}


def _real(found: Identification, seconds: float) -> BenchResult:
    rows, values = [], {"real_seconds": seconds, "real": {}}
    bars = {"median": 0.35, "p90": 0.5}
    for split in (HALF, ROBOTS):
        for name, share in zip(bars, found.reductions("position", 2.0, split), strict=True):
            rows.append((f"position after 2 s, {split} held out, {name}", f"{-share:+.1%}", f"{-bars[name]:+.0%}"))
            values["real"][f"{split}_{name}"] = share
    rows.append((f"time for {found.facts['duration_s']:.0f} s and {len(found.robots)} robots", f"{seconds:.0f} s",
                 "180 s"))
    result: dict[str, Any] = values | {"identification": {k: v for k, v in found.to_dict().items() if k != "facts"}}
    return BenchResult("A real run, against dead reckoning with the logged velocities", ("what", "found", "bar"), rows,
                       result)
