"""`testudo bench projection`: batched projections per second, and time of one robot's whole shield."""

import os
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.performance.world_stepping import compiled, seconds
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.shield.geometry import project_onto_halfspaces
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.reservations import PeerReservations, ShieldInputs, reserved_at_rest
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import Arena, PeerTable
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices

_SIZES = ((2, 2, 10.0), (2, 4, 4.0), (2, 8, 1.3), (2, 16, 0.4), (3, 8, 0.15))
"""Axes, rows, and required rate [million/s] on two cores."""
_BATCH = 2**14
_REFERENCE_SOLVES = 4000
_ROBOTS = (("gritsbot_x", (500, 2000)), ("robomaster_s1", (500, 2000)), ("crazyflie_2x", None))
"""Robots, and required p50 and p99 [µs]."""
_NEIGHBOURS = 8
_TICKS = 1500
_WARM_UP = 100


def bench_projection(*, repeats: int = 9) -> BenchResult:
    """Time batched projections, a general solver for comparison, and all shield layers of one robot on one core.

    The problems have random unit normals, and rows are active in most of them. The robot drives in circles among eight
    neighbours at rest, within walls, with the commands of its shield.

    Args:
        repeats: timed runs; medians are reported. The robot's ticks are run a third as often.
    """
    batch_rows, batch_values = _throughput(repeats)
    latency_rows, latency_values = _latency(max(1, repeats // 3))
    values = {
        "projection": batch_values,
        "latency": latency_values,
        "batch": _BATCH,
        "repeats": repeats,
        "neighbours": _NEIGHBOURS,
        "ticks": _TICKS,
        "device": devices().to_dict(),
    }
    title = f"projections, batches of {_BATCH:,}, single precision; {devices().text}"
    below = f"all layers of one robot, NumPy, one core, {_NEIGHBOURS} neighbours and walls, one tick"
    columns = ("problem", "million/s", "bar", "compiled in", "rows bind")
    return BenchResult(
        title,
        columns,
        batch_rows,
        values,
        (BenchResult(below, ("robot", "p50", "bar", "p99", "bar of p99"), latency_rows, {}),),
    )


def _throughput(repeats: int) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
    rows, values = [], []
    for dimension, count, bar in _SIZES:
        problem = _problems(dimension, count)
        solve, compile_s = compiled(project_onto_halfspaces, *problem)
        rate = _BATCH / statistics.median(seconds(solve, *problem) for _ in range(repeats))
        moved = jnp.any(solve(*problem)[0] != problem[0], axis=0)
        bound = float(jnp.mean(moved))
        values.append(
            {
                "dimension": dimension,
                "rows": count,
                "solves_per_s": rate,
                "compile_s": compile_s,
                "share_bound": bound,
                "bar_solves_per_s": 1e6 * bar,
            }
        )
        rows.append(
            (
                f"{count} rows, {dimension}-D",
                f"{rate / 1e6:.2f}",
                f"≥ {bar}",
                f"{compile_s:.1f} s",
                f"{100 * bound:.0f} %",
            )
        )
    for dimension in (2, 3):
        rate = _reference(dimension, 8, repeats)
        values.append({"solver": "quadprog", "dimension": dimension, "rows": 8, "solves_per_s": rate})
        shown = f"{rate / 1e6:.3f}" if rate is not None else "not installed"
        rows.append((f"8 rows, {dimension}-D, quadprog, one at a time", shown, "", "", ""))
    return rows, values


def _problems(dimension: int, count: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return targets (D, N), unit normals (D, K, N) and bounds (K, N), for which zero is feasible."""
    random = np.random.default_rng(0)
    normals = random.standard_normal((dimension, count, _BATCH))
    normals /= np.linalg.norm(normals, axis=0)
    targets, bounds = random.uniform(-2, 2, (dimension, _BATCH)), random.uniform(0, 1, (count, _BATCH))
    return (jnp.asarray(targets, jnp.float32), jnp.asarray(normals, jnp.float32), jnp.asarray(bounds, jnp.float32))


def _reference(dimension: int, count: int, repeats: int) -> float | None:
    """Return the problems per second that quadprog solves; None if it is not installed."""
    try:
        import quadprog
    except ImportError:
        return None
    targets, normals, bounds = (np.asarray(values, float) for values in _problems(dimension, count))
    square = np.eye(dimension)
    problems = [(square, np.array(targets[:, i]), -normals[:, :, i], -bounds[:, i]) for i in range(_REFERENCE_SOLVES)]

    def solve_all() -> None:
        for problem in problems:
            quadprog.solve_qp(*problem)

    return _REFERENCE_SOLVES / statistics.median(seconds(solve_all) for _ in range(repeats))


def _latency(repeats: int) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
    rows, values = [], []
    pinned = hasattr(os, "sched_setaffinity")
    cores = os.sched_getaffinity(0) if pinned else set()
    if pinned:
        os.sched_setaffinity(0, {min(cores)})
    try:
        for robot, bars in _ROBOTS:
            runs = [_one_robot(robot) for _ in range(repeats)]
            middle, slow = (float(np.median([np.percentile(run, share) for run in runs])) for share in (50, 99))
            values.append({"robot": robot, "p50_us": middle, "p99_us": slow})
            shown = [f"≤ {bar} µs" for bar in bars] if bars else ["", ""]
            rows.append((robot, f"{middle:.0f} µs", shown[0], f"{slow:.0f} µs", shown[1]))
    finally:
        if pinned:
            os.sched_setaffinity(0, cores)
    return rows, values


def _one_robot(robot: str) -> list[float]:
    """Return the durations [µs] of `Shield.step`."""
    spec = load_robot(robot)
    model, parameters, dimension = motion_model(spec), projection_parameters(spec), spec.dimension
    half = 8 * parameters.separation_m
    shield = Shield(model, parameters, stop_tube_parameters(spec), Arena((-half,) * dimension, (half,) * dimension))
    random = np.random.default_rng(0)
    directions = random.standard_normal((dimension, _NEIGHBOURS))
    directions /= np.linalg.norm(directions, axis=0)
    places = directions * parameters.separation_m * random.uniform(1.3, 3, _NEIGHBOURS)
    valid, segments = np.ones(_NEIGHBOURS, bool), np.stack([places, places])
    table = PeerTable(places, np.zeros_like(places), np.full(_NEIGHBOURS, 0.05), valid, ~valid)
    response = LagResponse.create(np.array(spec.control_period_s), spec.velocity_lag_s)
    state, own = (
        MotionState(np.zeros(dimension), np.array(0.0), np.zeros(dimension)),
        reserved_at_rest(np.zeros(dimension)),
    )
    durations_us = []
    for tick in range(_WARM_UP + _TICKS):
        peers = PeerReservations(
            segments, segments, np.full(_NEIGHBOURS, tick - 1.0), ~valid, np.arange(_NEIGHBOURS) % 2 == 0, valid
        )
        nominal = np.zeros(dimension)
        nominal[:2] = spec.control_point_speed_m_s * np.array([np.cos(0.02 * tick), np.sin(0.02 * tick)])
        inputs = ShieldInputs(state.position_world, state, model.stopping_point(state), table, peers)
        begin = time.perf_counter()
        result, own = shield.step(inputs, own, nominal, np.array(float(tick)))
        durations_us.append(1e6 * (time.perf_counter() - begin))
        state = model.step(state, effective_command(model, result.command), response)
    return durations_us[_WARM_UP:]
