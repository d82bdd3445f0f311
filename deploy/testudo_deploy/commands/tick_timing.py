"""`testudo bench robot`: the time of a control tick, as machine code and in NumPy in turn, and whether both agree."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from testudo_deploy.commands.report import BenchResult
from testudo_deploy.compiling.shared_library import NotCompiledError
from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.control_tick import Tick
from testudo_deploy.control.tick_bodies import AGREEMENT, CompiledTickBodies
from testudo_deploy.shield.reservations import ReservedSpace, ShieldInputs
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, StoppingPoint
from testudo_hardware.spec import RobotSpec, parse_robot

_TICKS = 2000
_WARM_UP = 100
_DRAWN = 500
_POSE_AGE_S = 0.04


def bench_robot(*, policy: Path, team_size: int = 9, repeats: int = 3, worlds: int = _DRAWN) -> BenchResult:
    """Time control ticks in which the policy runs: policy and shield, and the whole tick around them.

    One process on one core; the clock is stepped, so that nothing waits. Two robots with the same inputs tick in turn:
    one with its arrays as machine code, as robots run, one in NumPy; each of their records must be equal. Then
    ``worlds`` drawn situations go through both.

    Nine robots in ``team_size`` mean eight neighbours; the median of the quantiles of ``repeats`` runs is given.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    artefact = PolicyArtefact.load(policy)
    artefact = replace(artefact, contract=artefact.contract.replace(decision_ticks=1))
    pairs = [_Pair(artefact, team_size) for _ in range(repeats)]
    for pair in pairs:
        pair.run()
    refused, contract = pairs[0].refused, artefact.contract
    values: dict[str, object] = {"compiled": not refused, "not_compiled": refused}
    rows: list[tuple[str, ...]] = []
    for key, name, bars in (
        ("policy_and_shield", "policy and shield", ("≤ 250 µs", "≤ 1,000 µs")),
        ("tick", "the whole tick: with estimate and record", ("", "")),
    ):
        for quantile, bar in zip((50, 99), bars, strict=True):
            figure, numpy = (_median([one[key] for one in runs], quantile) for runs in zip(*_timed(pairs), strict=True))
            values |= {f"{key}_p{quantile}_us": figure, f"numpy_{key}_p{quantile}_us": numpy}
            rows.append((f"{name}, p{quantile}", f"{figure:.0f} µs", f"{numpy:.0f} µs", f"{figure / numpy:.2f}", bar))
    figure, numpy = (float(np.mean([pair.robots[k].processor_us for pair in pairs])) for k in (0, 1))
    values |= {"processor_us": figure, "numpy_processor_us": numpy}
    name = "processor time of a tick with its odometry and messages, mean"
    rows.append((name, f"{figure:.0f} µs", f"{numpy:.0f} µs", f"{figure / numpy:.2f}", ""))
    if pairs[0].bodies is not None:
        equal = pairs[0].bodies.difference(worlds, seed=1)
        values |= {"drawn": worlds, "largest_difference": equal[0], "where": equal[1]}
        rows.append(
            (f"{worlds:,} drawn situations: largest difference", f"{equal[0]:.1e}", "", "", f"≤ {AGREEMENT:.0e}")
        )
    values |= {
        "neighbours": team_size - 1,
        "memory": contract.hidden_size,
        "robot": contract.robot,
        "repeats": repeats,
        "ticks": _TICKS,
    }
    title = f"one control tick, {contract.robot}, memory {contract.hidden_size}, {team_size - 1} neighbours"
    if refused:
        title += f"; not compiled: {refused}"
    return BenchResult(title, ("what", "compiled", "NumPy", "ratio", "bar"), rows, values)


def _timed(pairs: list["_Pair"]) -> list[tuple[dict[str, list[float]], dict[str, list[float]]]]:
    return [(pair.robots[0].times_us, pair.robots[1].times_us) for pair in pairs]


def _median(runs: list[list[float]], quantile: int) -> float:
    return float(np.median([np.percentile(run, quantile) for run in runs]))


class _TimedLoop(ControlLoop):
    """Measures how long policy and shield take."""

    spent_s = 0.0

    def _decide(self, tick: Tick, estimate: MotionState, stop: StoppingPoint, table: PeerTable) -> None:
        begin = time.perf_counter()
        super()._decide(tick, estimate, stop, table)
        self.spent_s = time.perf_counter() - begin

    def _check_command(self, tick: Tick, inputs: ShieldInputs, space: ReservedSpace, shield: Shield) -> None:
        begin = time.perf_counter()
        super()._check_command(tick, inputs, space, shield)
        self.spent_s += time.perf_counter() - begin


@dataclass
class _Timed:
    """A robot and its times."""

    loop: _TimedLoop
    times_us: dict[str, list[float]] = field(default_factory=lambda: {"policy_and_shield": [], "tick": []})
    processor_us: float = 0.0  # mean of a tick with its odometry and messages

    def tick(self, now_s: float, hear: Callable[[ControlLoop], None], *, counts: bool) -> bytes:
        """Run a tick and return its record without the times that differ."""
        began_s = time.thread_time()
        hear(self.loop)
        begin = time.perf_counter()
        record = self.loop.tick(now_s)
        whole_s = time.perf_counter() - begin
        if record.reason:
            raise TestudoError(f"bench robot: the loop braked: {record.reason}")
        if counts:
            self.times_us["tick"].append(whole_s * 1e6)
            self.times_us["policy_and_shield"].append(self.loop.spent_s * 1e6)
            self.processor_us += (time.thread_time() - began_s) * 1e6 / _TICKS
        return replace(record, duration_s=0.0).encode()


class _Pair:
    """Two robots with the same inputs: the first with compiled bodies, where there is a compiler."""

    def __init__(self, artefact: PolicyArtefact, team_size: int) -> None:
        self._contract, names = artefact.contract, tuple(f"r{i}" for i in range(team_size))
        self._spec: RobotSpec = parse_robot(self._contract.robot_spec, str(artefact.path))
        size = self._spec.dimension
        goal, self._still, self._names = (0.5,) * size, (0.0,) * size, names
        self._places = _ring(team_size, 3 * self._contract.shield.separation_m, size)

        def robot() -> _Timed:
            loop = _TimedLoop(
                artefact, self._spec, robot=names[0], peers=names[1:], goal_world=goal, epoch="bench",
            )  # fmt: skip
            loop.on_guard(passes=False, received_s=0.0)  # the robot is where the benchmark says, whatever it is sent
            return _Timed(loop)

        self.robots = (robot(), robot())
        self.bodies: CompiledTickBodies | None = None
        self.refused = ""
        try:
            self.bodies = self.robots[0].loop.use_compiled_bodies()
        except NotCompiledError as error:
            self.refused = str(error)

    def run(self) -> None:
        """Tick both in turn, in an order that changes."""
        for tick in range(_TICKS + _WARM_UP):
            now_s = 1.0 + tick * self._spec.control_period_s
            messages = self._messages(tick, now_s)

            def hear(loop: ControlLoop, tick_s: float = now_s, heard: list[PeerMessage] = messages) -> None:
                position = tuple(self._places[0] + 0.1 * math.sin(tick_s))
                loop.on_odometry(tick_s - _POSE_AGE_S, tick_s, position, 0.1 * tick_s, self._still)
                for message in heard:
                    loop.on_peer(message, tick_s)

            order = self.robots if tick % 2 else self.robots[::-1]
            first, second = (one.tick(now_s, hear, counts=tick >= _WARM_UP) for one in order)
            if first != second:
                raise TestudoError(f"bench robot: tick {tick}: the compiled record differs from NumPy's")

    def _messages(self, tick: int, now_s: float) -> list[PeerMessage]:
        places = [tuple(map(float, place)) for place in self._places]
        return [
            PeerMessage(
                robot=name,
                epoch="bench",
                sequence=tick,
                stamp_s=now_s,
                sample_age_s=_POSE_AGE_S,
                control_point_world=place,
                control_velocity_world=self._still,
                position_world=place,
                yaw=0.0,
                contract=self._contract.contract_hash,
                reserved_segment_world=(place, place),
                requested_segment_world=(place, place),
                echoes={self._names[0]: ("bench", now_s - _POSE_AGE_S, tick - 1)},
                message=(0.0,) * self._contract.command.message_size,
            )
            for name, place in zip(self._names[1:], places[1:], strict=True)
        ]


def _ring(team_size: int, radius_m: float, dimension: int) -> np.ndarray:
    """Return places (N, D): the first robot's is the middle, the others stand around it, clear of each other."""
    radius_m = max(radius_m, radius_m * team_size / 15)
    angle = 2 * math.pi * np.arange(team_size - 1) / max(team_size - 1, 1)
    ring = radius_m * np.stack([np.cos(angle), np.sin(angle)] + [0 * angle] * (dimension - 2), axis=-1)
    return np.concatenate([np.zeros((1, dimension)), ring])
