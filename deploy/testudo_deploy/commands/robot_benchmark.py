"""`testudo bench robot`: the time of one control tick on a robot's processor."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.commands.report import BenchResult
from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.control_tick import Tick
from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import parse_robot

_TICKS = 2000
_WARM_UP = 100


def bench_robot(*, policy: Path, team_size: int = 9, repeats: int = 3) -> BenchResult:
    """Time control ticks in which the policy runs: policy and shield, and the whole tick around them.

    One process on one core; the clock is stepped, so that nothing waits.

    Nine robots in ``team_size`` mean eight neighbours; the median of the quantiles of ``repeats`` runs is given.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    runs = [_run(policy, team_size) for _ in range(repeats)]
    values: dict[str, object] = {}
    rows: list[tuple[str, ...]] = []
    for key, name, bars in (
        ("policy_and_shield", "policy and shield", ("≤ 250 µs", "≤ 1,000 µs")),
        ("tick", "the whole tick: with estimate and record", ("", "")),
    ):
        for quantile, bar in zip((50, 99), bars, strict=True):
            figure = float(np.median([np.percentile(run[key], quantile) for run in runs]))
            values[f"{key}_p{quantile}_us"] = figure
            rows.append((f"{name}, p{quantile}", f"{figure:.0f} µs", bar))
    contract = PolicyArtefact.load(policy).contract
    values |= {
        "neighbours": team_size - 1,
        "memory": contract.hidden_size,
        "robot": contract.robot,
        "repeats": repeats,
        "ticks": _TICKS,
    }
    title = f"one control tick, {contract.robot}, memory {contract.hidden_size}, {team_size - 1} neighbours"
    return BenchResult(title, ("what", "time", "bar"), rows, values)


class _TimedLoop(ControlLoop):
    """Measures how long policy and shield take."""

    spent_s = 0.0

    def _decide(self, tick: Tick, own: Any, table: PeerTable) -> None:
        begin = time.perf_counter()
        super()._decide(tick, own, table)
        self.spent_s = time.perf_counter() - begin

    def _check_command(self, tick: Tick, inputs: ShieldInputs, space: ReservedSpace, shield: Shield) -> None:
        begin = time.perf_counter()
        super()._check_command(tick, inputs, space, shield)
        self.spent_s += time.perf_counter() - begin


def _ring(team_size: int, radius_m: float, dimension: int) -> np.ndarray:
    """Return places (N, D): the first robot's is the middle, the others stand around it, clear of each other."""
    radius_m = max(radius_m, radius_m * team_size / 15)
    angle = 2 * math.pi * np.arange(team_size - 1) / max(team_size - 1, 1)
    ring = radius_m * np.stack([np.cos(angle), np.sin(angle)] + [0 * angle] * (dimension - 2), axis=-1)
    return np.concatenate([np.zeros((1, dimension)), ring])


def _run(policy: Path, team_size: int) -> dict[str, list[float]]:
    """Return the durations [µs] of policy and shield, and of whole ticks, each with a decision."""
    artefact = PolicyArtefact.load(policy)
    artefact = replace(artefact, contract=artefact.contract.replace(decision_ticks=1))
    spec = parse_robot(artefact.contract.robot_spec, str(policy))
    names = tuple(f"r{i}" for i in range(team_size))
    goal, zero = (0.5,) * spec.dimension, (0.0,) * spec.dimension
    loop = _TimedLoop(artefact, spec, robot=names[0], peers=names[1:], goal_world=goal, epoch="bench")
    loop.on_guard(passes=False, received_s=0.0)  # the robot is where the benchmark says, whatever it is sent
    places = _ring(team_size, 3 * artefact.contract.shield.separation_m, spec.dimension)
    contract_hash = artefact.contract.contract_hash
    times: dict[str, list[float]] = {"policy_and_shield": [], "tick": []}
    for tick in range(_TICKS + _WARM_UP):
        now = 1.0 + tick * spec.control_period_s
        position = tuple(places[0] + 0.1 * math.sin(now))
        loop.on_odometry(now - 0.04, now, position, 0.1 * now, zero)
        for index, name in enumerate(names[1:], start=1):
            place = tuple(map(float, places[index]))
            loop.on_peer(
                PeerMessage(
                    robot=name,
                    epoch="bench",
                    sequence=tick,
                    stamp_s=now,
                    sample_age_s=0.04,
                    control_point_world=place,
                    control_velocity_world=zero,
                    position_world=place,
                    yaw=0.0,
                    contract=contract_hash,
                    reserved_segment_world=(place, place),
                    requested_segment_world=(place, place),
                    echoes={names[0]: ("bench", now - 0.04, tick - 1)},
                ),
                now,
            )
        begin = time.perf_counter()
        record = loop.tick(now)
        whole_s = time.perf_counter() - begin
        if record.reason:
            raise TestudoError(f"bench robot: the loop braked: {record.reason}")
        if tick >= _WARM_UP:
            times["tick"].append(whole_s * 1e6)
            times["policy_and_shield"].append(loop.spent_s * 1e6)
    return times
