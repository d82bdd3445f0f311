"""`testudo bench robot`: the time of one control tick on a robot's processor."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import numpy as np

from testudo_deploy.artefact import Artefact
from testudo_deploy.benchmarking import BenchResult
from testudo_deploy.control_loop import ControlLoop
from testudo_deploy.messages import PeerMessage
from testudo_hardware.spec import parse_robot

_TICKS = 2000
_WARM_UP = 100


def bench_robot(*, policy: Path, team_size: int = 9, repeats: int = 3) -> BenchResult:
    """Time whole control ticks: estimate, neighbour table, policy where it is due, shield, record.

    One process on one core; the clock is stepped, so that nothing waits.

    Args:
        policy: the artefact.
        team_size: robots of the fleet; nine means eight neighbours.
        repeats: runs; the median of their quantiles is given.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    runs = [_run(policy, team_size) for _ in range(repeats)]
    values: dict[str, object] = {}
    rows = []
    for kind, bars in (("decision", ("≤ 250 µs", "≤ 1,000 µs")), ("hold", ("", ""))):
        for quantile, bar in zip((50, 99), bars, strict=True):
            figure = float(np.median([np.percentile(run[kind], quantile) for run in runs]))
            values[f"{kind}_tick_p{quantile}_us"] = figure
            rows.append((f"tick with {kind}, p{quantile}", f"{figure:.0f} µs", bar))
    contract = Artefact.load(policy).contract
    values |= {"neighbours": team_size - 1, "memory": contract.hidden_size, "robot": contract.robot,
               "repeats": repeats, "ticks": _TICKS}
    title = f"one control tick, {contract.robot}, memory {contract.hidden_size}, {team_size - 1} neighbours"
    return BenchResult(title, ("what", "time", "bar"), rows, values)


def _run(policy: Path, team_size: int) -> dict[str, list[float]]:
    """Return the durations [µs] of ticks with and without a decision."""
    artefact = Artefact.load(policy)
    spec = parse_robot(artefact.contract.robot_spec, str(policy))
    names = tuple(f"r{i}" for i in range(team_size))
    goal = (0.5,) * spec.dimension
    loop = ControlLoop(artefact, spec, robot=names[0], peers=names[1:], goal_world=goal, epoch="bench")
    rng = np.random.default_rng(0)
    places = rng.uniform(-0.8, 0.8, (team_size, spec.dimension))
    times: dict[str, list[float]] = {"decision": [], "hold": []}
    zero, contract_hash = (0.0,) * spec.dimension, artefact.contract.contract_hash
    for tick in range(_TICKS + _WARM_UP):
        now = 1.0 + tick * spec.control_period_s
        position = tuple(places[0] + 0.1 * math.sin(now))
        loop.on_odometry(now - 0.04, now, position, 0.1 * now, zero)
        for index, name in enumerate(names[1:], start=1):
            loop.on_peer(PeerMessage(
                robot=name, epoch="bench", sequence=tick, stamp_s=now, sample_age_s=0.04,
                control_point_world=tuple(places[index]), control_velocity_world=zero,
                position_world=tuple(places[index]), yaw=0.0, contract=contract_hash,
                echoes={names[0]: ("bench", now - 0.04)}), now)
        begin = time.perf_counter()
        record = loop.tick(now)
        duration = (time.perf_counter() - begin) * 1e6
        if tick >= _WARM_UP:
            times["decision" if record.decided else "hold"].append(duration)
    return times
