"""Makes the gap report of a recording: replay, errors with intervals, places, causes, latency, margins, score."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from testudo_analysis.gap.gap_report import (
    ALL,
    DEAD_RECKONING,
    IDENTIFIED,
    NOMINAL,
    Difference,
    ErrorRow,
    GapReport,
    TypeGap,
)
from testudo_analysis.gap.prediction.batch_rollout import RollOut, roll_out_all
from testudo_analysis.gap.prediction.drone_predictions import FlightRecord, predict_flights
from testudo_analysis.gap.prediction.prediction_errors import (
    UNITS,
    StartFeatures,
    error_channels,
    predicted_change,
    start_features,
    travelled,
)
from testudo_analysis.gap.prediction.replayed_robots import robots_by_type
from testudo_analysis.gap.statistics.block_bootstrap import Interval, TimeBlocks, quantiles
from testudo_analysis.gap.statistics.command_latency import CommandLatency, latencies
from testudo_analysis.gap.statistics.drone_error_causes import flight_causes, horizon_of
from testudo_analysis.gap.statistics.error_causes import ErrorCause, Predicted, causes
from testudo_analysis.gap.statistics.error_map import axes_of, state_errors
from testudo_analysis.gap.statistics.margin_checks import MarginCheck, flight_checks, margin_checks
from testudo_analysis.gap.statistics.predicted_score import score
from testudo_analysis.gap.statistics.rotor_latency import flight_latencies
from testudo_analysis.replay.batched_rollout import dead_reckoning
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.progress_bar import Tell, part, quiet
from testudo_runs.recording.write import IMPORTED

HORIZONS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_STATE_HORIZON_S = 1.0
_SHARES = (0.5, 0.9)
_IDENTIFIABLE = ("layer", "guarantee: velocity", "rotors")
_PARAMETERS = (
    "velocity_lag_s",
    "command_delay_s",
    "speed_scale",
    "turn_scale",
    "turn_slip_s_rad",
    "acceleration_limit_m_s2",
    "turn_acceleration_limit_rad_s2",
)


@dataclass(frozen=True)
class TypeReplay:
    """The robots of one type and what every parameter set predicts of them."""

    spec: RobotSpec
    models: Mapping[str, RobotSpec]
    outs: tuple[RollOut, ...]
    errors: Mapping[str, tuple[Mapping[str, np.ndarray], ...]] = field(repr=False)
    """By parameter set and robot: (H, S) by channel."""
    blocks: TimeBlocks = field(repr=False)
    found: dict[tuple[str, str, str, float], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)
    """By parameter set, robot, channel and horizon: quantiles (Q,) and bootstrap samples (Q, R), filled on the way."""

    @property
    def flown(self) -> bool:
        """Return whether motor signals were replayed, rather than velocity commands."""
        return isinstance(self.outs[0].robot, FlightRecord)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the robots."""
        return tuple(out.robot.name for out in self.outs)


def analyse(
    recording: TeamRecording,
    *,
    identified: RobotSpec | None = None,
    horizons_s: Sequence[float] = HORIZONS_S,
    seed: int = 0,
    tell: Tell = quiet,
) -> tuple[GapReport, tuple[TypeReplay, ...]]:
    """Return the gap report of a recording, and the replays that it is made of.

    Args:
        recording: of any kind.
        identified: the robot as identified, for robots of its kind.
        horizons_s: how far ahead, rising [s].
        seed: of the bootstrap: the same for what is to be compared on one run, another one for another run.
        tell: is told what is being done, and the share that is done.

    Raises:
        TestudoError: no robot can be replayed.
    """
    groups, left_out = robots_by_type(recording)
    if not groups:
        raise TestudoError(
            f"{recording.folder}: no robot can be replayed: "
            + "; ".join(f"{name}: {why}" for name, why in left_out.items())
        )
    replays, types = [], []
    for k, (spec, robots) in enumerate(groups):
        own = part(tell, 0.2 + 0.8 * k / len(groups), 0.2 + 0.8 * (k + 1) / len(groups))
        own(f"replaying {len(robots)} {spec.name}", 0.0)
        replays.append(replay_type(spec, robots, identified, horizons_s, seed))
        own(f"errors of {spec.name}", 0.4)
        types.append(type_gap(replays[-1], horizons_s))
    starts = [out.windows.start_s for replay in replays for out in replay.outs]
    source = recording.source
    versions = source.info.get("versions", {})
    report = GapReport(
        run=str(source.folder or ""),
        source="imported" if source.info.get("kind") == IMPORTED else "testudo up",
        duration_s=source.duration_s,
        replayed_s=float(max(s.max() for s in starts) - min(s.min() for s in starts)),
        starts=sum(map(len, starts)),
        horizons_s=tuple(horizons_s),
        types=tuple(types),
        score=score(source),
        left_out=left_out,
        notes=(*source.warnings, *_choices(replays)),
        versions=versions,
    )
    return report, tuple(replays)


def replay_type(
    spec: RobotSpec,
    robots: Sequence[AlignedRobot],
    identified: RobotSpec | None,
    horizons_s: Sequence[float],
    seed: int = 0,
) -> TypeReplay:
    """Return what dead reckoning, the robot file and the identified one predict of robots of one type.

    Raises:
        TestudoError: no window is as long as the shortest horizon.
    """
    flown = isinstance(robots[0], FlightRecord)
    models = {DEAD_RECKONING: spec if flown else dead_reckoning(spec), NOMINAL: spec}
    if identified is not None and identified.kind == spec.kind:
        models[IDENTIFIED] = identified
    made = (predict_flights if flown else roll_out_all)(robots, list(models.values()), horizons_s)
    outs = [out for out in made if out.windows.valid.any()]
    if not outs:
        names = ", ".join(robot.name for robot in robots)
        raise TestudoError(
            f"{names}: no stretch of poses with known commands is as long as the shortest horizon, {min(horizons_s)} s"
        )
    errors = {name: tuple(error_channels(spec, out, k) for out in outs) for k, name in enumerate(models)}
    return TypeReplay(spec, models, tuple(outs), errors, TimeBlocks.create([out.windows.start_s for out in outs], seed))


def type_gap(replay: TypeReplay, horizons_s: Sequence[float]) -> TypeGap:
    """Return the gap of the robots of one type."""
    features = [start_features(replay.spec, out) for out in replay.outs]
    whole = StartFeatures(
        *(
            np.concatenate(column)
            for column in zip(*((f.speed_m_s, f.turn_rad_s, f.acceleration_m_s2) for f in features), strict=True)
        )
    )
    there = [
        h
        for h, horizon in enumerate(horizons_s)
        if horizon <= _STATE_HORIZON_S + 1e-9 and any(out.windows.valid[h].any() for out in replay.outs)
    ]
    at = max(there, default=0)
    owner = np.repeat(np.arange(len(replay.outs)), [len(out.windows.start) for out in replay.outs])
    axes = axes_of(whole)
    state = {
        model: state_errors(replay.blocks, owner, replay.names, whole, axes, _pooled(own, "position")[at])
        for model, own in replay.errors.items()
        if model != DEAD_RECKONING
    }
    measure = flight_latencies if replay.flown else latencies
    found = [each for out in replay.outs for each in measure(out.robot, replay.spec)]
    after = {model: _cause_horizon(replay, model, at) for model in replay.models if model != DEAD_RECKONING}
    why = {model: _causes(replay, model, h, horizons_s[h]) for model, h in after.items() if h is not None}
    return TypeGap(
        replay.spec.name,
        replay.names,
        tuple(replay.models),
        {name: _parameters(replay, spec) for name, spec in replay.models.items()},
        tuple(_rows(replay, horizons_s)),
        tuple(_model_differences(replay, horizons_s)),
        state,
        horizons_s[at],
        why,
        {model: horizons_s[after[model]] for model in why},
        tuple(found),
        tuple(_margins(replay, horizons_s, found)),
    )


def compare(
    first: Sequence[TypeReplay], second: Sequence[TypeReplay], names: tuple[str, str], horizons_s: Sequence[float]
) -> tuple[Difference, ...]:
    """Return the differences of two runs, or of two robot files on one run, by type, robot, channel and horizon.

    Args:
        first: replays of the one; their best parameter sets count.
        second: replays of the other.
        names: of both.
        horizons_s: as replayed.
    """
    found = []
    for one in first:
        other = next((replay for replay in second if replay.spec.kind == one.spec.kind), None)
        if other is None:
            continue
        best, rival = list(one.models)[-1], list(other.models)[-1]
        shared = [name for name in one.names if name in other.names]
        for robot in (*shared, ALL):
            for channel in one.errors[best][0]:
                for horizon in horizons_s:
                    pair = [
                        one.found.get((best, robot, channel, horizon)),
                        other.found.get((rival, robot, channel, horizon)),
                    ]
                    if None not in pair:
                        found.append(_difference(names, robot, channel, horizon, pair))
    return tuple(found)


def _margins(replay: TypeReplay, horizons_s: Sequence[float], found: Sequence[CommandLatency]) -> list[MarginCheck]:
    """Return the checks of the nominal file, and of the identified one those that depend on what was identified."""
    robots = [out.robot for out in replay.outs]

    def checks_of(model: str) -> list[MarginCheck]:
        spec = replay.models[model]
        return (
            flight_checks(spec, robots, found)
            if replay.flown
            else margin_checks(spec, robots, replay.errors[model], horizons_s, found)
        )

    checks = checks_of(NOMINAL)
    if IDENTIFIED in replay.models:
        checks += [
            replace(check, model=IDENTIFIED) for check in checks_of(IDENTIFIED) if check.term.startswith(_IDENTIFIABLE)
        ]
    return checks


def _parameters(replay: TypeReplay, spec: RobotSpec) -> dict[str, float]:
    if replay.flown:
        return {"mass_kg": spec.mass_kg} | {key: quantity.value for key, quantity in spec.rotors.items()}
    return {key: float(getattr(spec, key)) for key in _PARAMETERS if np.isfinite(getattr(spec, key, np.nan))}


def _choices(replays: Sequence[TypeReplay]) -> list[str]:
    return [
        f"{out.robot.name}, {note}" for replay in replays for out in replay.outs for note in out.robot.report.notes()
    ]


def _pooled(errors: Sequence[Mapping[str, np.ndarray]], channel: str) -> np.ndarray:
    return np.concatenate([np.abs(own[channel]) for own in errors], axis=1)


def _rows(replay: TypeReplay, horizons_s: Sequence[float]) -> list[ErrorRow]:
    edges = np.cumsum([0, *(len(out.windows.start) for out in replay.outs)])
    parts = {name: replay.blocks.part(*edges[k : k + 2]) for k, name in enumerate(replay.names)}
    ways = [travelled(out) for out in replay.outs]
    rows = []
    for model, own in replay.errors.items():
        for robot in (*replay.names, ALL):
            signed = own if robot == ALL else [own[replay.names.index(robot)]]
            way = np.concatenate(ways, axis=1) if robot == ALL else ways[replay.names.index(robot)]
            for channel in own[0]:
                values = np.concatenate([each[channel] for each in signed], axis=1)
                for h, horizon in enumerate(horizons_s):
                    count = int(np.isfinite(values[h]).sum())
                    if not count:
                        continue
                    exact, samples = quantiles(parts.get(robot, replay.blocks), np.abs(values[h]), _SHARES)
                    replay.found[model, robot, channel, horizon] = exact, samples
                    median, p90 = (Interval.of_samples(*pair) for pair in zip(exact, samples, strict=True))
                    rows.append(
                        ErrorRow(
                            robot,
                            channel,
                            UNITS[channel],
                            horizon,
                            model,
                            median,
                            p90,
                            float(np.nanmedian(values[h])),
                            count,
                            float(np.nanmedian(way[h])),
                        )
                    )
    return rows


def _model_differences(replay: TypeReplay, horizons_s: Sequence[float]) -> list[Difference]:
    names = list(replay.models)
    pairs = list(itertools.pairwise(names)) + ([(names[0], names[-1])] if len(names) > 2 else [])
    found = []
    for first, second in pairs:
        for robot in (*replay.names, ALL):
            for channel in replay.errors[first][0]:
                for horizon in horizons_s:
                    if (first, robot, channel, horizon) in replay.found:
                        pair = [replay.found[model, robot, channel, horizon] for model in (first, second)]
                        found.append(_difference((first, second), robot, channel, horizon, pair))
    return found


def _difference(
    names: tuple[str, str], robot: str, channel: str, horizon_s: float, pair: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Difference:
    """Return the second less the first; both drew the same blocks, if they are of one run, and others, if not."""
    (first, first_samples), (second, second_samples) = pair
    change, spread = second - first, second_samples - first_samples
    return Difference(
        *names,
        robot,
        channel,
        UNITS[channel],
        horizon_s,
        Interval.of_samples(change[0], spread[0]),
        Interval.of_samples(change[1], spread[1]),
        float(change[0] / max(first[0], 1e-12)),
    )


def _cause_horizon(replay: TypeReplay, model: str, at: int) -> int | None:
    """Return the index of the horizon at which kinds of error are told; None if all are too long for it."""
    return horizon_of([own["attitude"] for own in replay.errors[model]]) if replay.flown else at


def _causes(replay: TypeReplay, model: str, at: int, horizon_s: float) -> tuple[ErrorCause, ...]:
    if replay.flown:
        return flight_causes(replay.blocks, replay.models[model], replay.outs, at)
    index = list(replay.models).index(model)
    errors = {
        channel: np.concatenate([own[channel][at] for own in replay.errors[model]])
        for channel in ("along", "across", "yaw")
    }
    made = [_predicted(replay, out, index, at, horizon_s) for out in replay.outs]
    columns = [None if made[0][k] is None else np.concatenate([own[k] for own in made]) for k in range(len(made[0]))]
    return causes(replay.blocks, errors, Predicted(*columns), horizon_s)


def _predicted(
    replay: TypeReplay, out: RollOut, index: int, at: int, horizon_s: float
) -> tuple[np.ndarray | None, ...]:
    """Return the fields of `Predicted` for one robot."""
    change, start = predicted_change(out, index), out.windows.state
    lag = list(replay.models.values())[index].velocity_lag_s
    left_s = -lag * np.expm1(-horizon_s / lag)
    moved = change.position_world[:, at]
    if replay.spec.kind == DIFFERENTIAL_DRIVE:
        yaw = start.yaw + 0.5 * change.yaw[at]
        way = moved[0] * np.cos(yaw) + moved[1] * np.sin(yaw)
        return (
            way,
            way - left_s * start.velocity[0],
            change.velocity[0, at],
            change.yaw[at],
            change.yaw[at] - left_s * start.velocity[1],
            change.velocity[1, at],
        )
    way = np.linalg.norm(moved[:2], axis=0)
    direction = moved[:2] / np.maximum(way, 1e-6)
    along = [np.sum(direction * values[:2], axis=0) for values in (start.velocity, change.velocity[:, at])]
    return way, way - left_s * along[0], along[1], None, None, None
