"""The gap report of a recording: replay, errors with intervals, places, causes, latency, margins, score."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from testudo_analysis.gap.batch_rollout import (
    UNITS,
    RollOut,
    StartFeatures,
    error_channels,
    predicted_change,
    roll_out_all,
    start_features,
    travelled,
)
from testudo_analysis.gap.block_bootstrap import Interval, TimeBlocks, quantiles
from testudo_analysis.gap.command_latency import CommandLatency, flight_latencies, latencies
from testudo_analysis.gap.drone_error_causes import flight_causes, horizon_of
from testudo_analysis.gap.drone_predictions import AlignedFlight, FlightRollOut, predict_flights
from testudo_analysis.gap.error_causes import ErrorCause, Predicted, causes
from testudo_analysis.gap.error_map import axes_of, state_errors
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
from testudo_analysis.gap.margin_checks import MarginCheck, flight_checks, margin_checks
from testudo_analysis.gap.predicted_score import score
from testudo_analysis.gap.replayed_robots import robots_by_type
from testudo_analysis.identify.drone.response_noise_fit import recorded_coverage as flight_coverage
from testudo_analysis.identify.estimation.identification_result import Coverage
from testudo_analysis.identify.residual_motion.ground_noise import recorded_coverage
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

_Samples = tuple[np.ndarray, np.ndarray]  # quantiles (Q,) and bootstrap samples (Q, R)


@dataclass(frozen=True)
class TypeReplay:
    """The robots of one type and the predictions of every parameter set."""

    spec: RobotSpec
    models: Mapping[str, RobotSpec]
    outs: tuple[RollOut, ...]
    errors: Mapping[str, tuple[Mapping[str, np.ndarray], ...]] = field(repr=False)
    """By parameter set and robot: (H, S) by channel."""
    blocks: TimeBlocks = field(repr=False)
    found: dict[tuple[str, str, str, float], _Samples] = field(default_factory=dict, repr=False)
    """Errors by parameter set, robot, channel and horizon; filled by `type_gap`."""

    @property
    def flown(self) -> bool:
        """Return whether motor signals were replayed, rather than velocity commands."""
        return isinstance(self.outs[0], FlightRollOut)

    @property
    def flights(self) -> list[FlightRollOut]:
        """Return the predictions of flights; empty for other robots."""
        return [out for out in self.outs if isinstance(out, FlightRollOut)]

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
    """Return the gap report of a recording, and its replays.

    ``identified`` is the identified robot file for robots of its kind; ``horizons_s`` rise [s]; ``seed`` of the
    bootstrap is equal for comparisons on one run, different for another run; ``tell`` gets the current step and the
    completed fraction.

    Raises:
        TestudoError: no robot can be replayed.
    """
    groups, left_out = robots_by_type(recording)
    replays, types = [], []
    for k, (spec, robots) in enumerate(groups):
        own = part(tell, 0.2 + 0.8 * k / len(groups), 0.2 + 0.8 * (k + 1) / len(groups))
        own(f"replaying {len(robots)} {spec.name}", 0.0)
        replays.append(replay_type(spec, robots, identified, horizons_s, seed))
        own(f"errors of {spec.name}", 0.4)
        types.append(replace(type_gap(replays[-1], horizons_s), coverage=covered(replays[-1])))
    starts = [out.windows.start_s for replay in replays for out in replay.outs]
    source = recording.source
    notes = [
        f"{out.robot.name}, {note}" for replay in replays for out in replay.outs for note in out.robot.report.notes()
    ]
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
        notes=(*source.warnings, *notes),
        versions=source.info.get("versions", {}),
    )
    return report, tuple(replays)


def replay_type(
    spec: RobotSpec,
    robots: Sequence[AlignedRobot],
    identified: RobotSpec | None,
    horizons_s: Sequence[float],
    seed: int = 0,
) -> TypeReplay:
    """Return the predictions of dead reckoning, the robot file and the identified file for robots of one type.

    Raises:
        TestudoError: no window is as long as the shortest horizon.
    """
    flights = [robot for robot in robots if isinstance(robot, AlignedFlight)]
    models = {DEAD_RECKONING: spec if flights else dead_reckoning(spec), NOMINAL: spec}
    if identified is not None and identified.kind == spec.kind:
        models[IDENTIFIED] = identified
    specs = list(models.values())
    made = predict_flights(flights, specs, horizons_s) if flights else roll_out_all(robots, specs, horizons_s)
    outs = [out for out in made if out.windows.valid.any()]
    if not outs:
        names = ", ".join(robot.name for robot in robots)
        raise TestudoError(
            f"{names}: found no stretch of poses with known commands of {min(horizons_s)} s, the shortest horizon, in "
            "which no body is pushed"
        )
    errors = {name: tuple(error_channels(spec, out, k) for out in outs) for k, name in enumerate(models)}
    return TypeReplay(spec, models, tuple(outs), errors, TimeBlocks.create([out.windows.start_s for out in outs], seed))


def type_gap(replay: TypeReplay, horizons_s: Sequence[float]) -> TypeGap:
    """Return the gap of the robots of one type."""
    features = [vars(start_features(replay.spec, out)) for out in replay.outs]
    whole = StartFeatures(**{name: np.concatenate([each[name] for each in features]) for name in features[0]})
    there = [
        h
        for h, horizon in enumerate(horizons_s)
        if horizon <= _STATE_HORIZON_S + 1e-9 and any(out.windows.valid[h].any() for out in replay.outs)
    ]
    at = max(there, default=0)
    owner = np.repeat(np.arange(len(replay.outs)), [len(out.windows.start) for out in replay.outs])
    axes = axes_of(whole)
    errors = {model: own for model, own in replay.errors.items() if model != DEAD_RECKONING}
    state = {}
    for model, own in errors.items():
        position = np.concatenate([np.abs(each["position"][at]) for each in own])
        state[model] = state_errors(replay.blocks, owner, replay.names, whole, axes, position)
    found = [each for out in replay.flights for each in flight_latencies(out.robot, replay.spec)]
    if not replay.flown:
        found = [each for out in replay.outs for each in latencies(out.robot, replay.spec)]
    horizons = {
        model: horizon_of([each["attitude"] for each in own]) if replay.flown else at for model, own in errors.items()
    }
    after = {model: horizon for model, horizon in horizons.items() if horizon is not None}
    why = {model: _causes(replay, model, horizon, horizons_s[horizon]) for model, horizon in after.items()}
    rows = tuple(_rows(replay, horizons_s))  # fills `replay.found`
    names = list(replay.models)
    pairs = list(itertools.pairwise(names)) + ([(names[0], names[-1])] if len(names) > 2 else [])
    keys = itertools.product(pairs, (*replay.names, ALL), replay.errors[names[0]][0], horizons_s)
    differences = []
    for pair, robot, channel, horizon in keys:
        first, second = (replay.found.get((name, robot, channel, horizon)) for name in pair)
        if first is not None and second is not None:
            differences.append(_difference(pair, robot, channel, horizon, first, second))
    return TypeGap(
        replay.spec.name,
        replay.names,
        tuple(replay.models),
        {name: _parameters(replay, spec) for name, spec in replay.models.items()},
        rows,
        tuple(differences),
        state,
        horizons_s[at],
        why,
        {model: horizons_s[horizon] for model, horizon in after.items()},
        tuple(found),
        tuple(_margins(replay, horizons_s, found)),
    )


def covered(replay: TypeReplay) -> dict[str, tuple[Coverage, ...]]:
    """Return the coverage by the bands of each robot file with a residual motion, or what a response leaves."""
    models = {name: spec for name, spec in replay.models.items() if name != DEAD_RECKONING}
    if replay.flown:
        flights = [out.robot.logged for out in replay.flights]
        found = {name: flight_coverage(flights, spec) for name, spec in models.items()}
    else:
        robots = [out.robot for out in replay.outs]
        found = {name: recorded_coverage(robots, spec) for name, spec in models.items()}
    return {name: rows for name, rows in found.items() if rows}


def compare(
    first: Sequence[TypeReplay], second: Sequence[TypeReplay], names: tuple[str, str], horizons_s: Sequence[float]
) -> tuple[Difference, ...]:
    """Return the differences of two runs, or of two robot files on one run, by type, robot, channel and horizon.

    Each run counts with its best parameter sets; ``names`` and ``horizons_s`` are those of both.
    """
    found = []
    for one in first:
        other = next((replay for replay in second if replay.spec.kind == one.spec.kind), None)
        if other is None:
            continue
        best, rival = list(one.models)[-1], list(other.models)[-1]
        robots = [*(name for name in one.names if name in other.names), ALL]
        for robot, channel, horizon in itertools.product(robots, one.errors[best][0], horizons_s):
            own = one.found.get((best, robot, channel, horizon))
            others = other.found.get((rival, robot, channel, horizon))
            if own is not None and others is not None:
                found.append(_difference(names, robot, channel, horizon, own, others))
    return tuple(found)


def _margins(replay: TypeReplay, horizons_s: Sequence[float], found: Sequence[CommandLatency]) -> list[MarginCheck]:
    """Return the checks of the nominal file, and those of the identified file that depend on identified parameters."""
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


def _rows(replay: TypeReplay, horizons_s: Sequence[float]) -> list[ErrorRow]:
    edges = np.cumsum([0, *(len(out.windows.start) for out in replay.outs)])
    parts = {name: replay.blocks.part(*edges[k : k + 2]) for k, name in enumerate(replay.names)}
    ways = [travelled(out) for out in replay.outs]
    rows = []
    for (model, own), robot in itertools.product(replay.errors.items(), (*replay.names, ALL)):
        chosen = range(len(own)) if robot == ALL else [replay.names.index(robot)]
        way = np.concatenate([ways[k] for k in chosen], axis=1)
        for channel in own[0]:
            values = np.concatenate([own[k][channel] for k in chosen], axis=1)
            for h, horizon in enumerate(horizons_s):
                count = int(np.isfinite(values[h]).sum())
                if not count:
                    continue
                exact, samples = quantiles(parts.get(robot, replay.blocks), np.abs(values[h]), _SHARES)
                replay.found[model, robot, channel, horizon] = exact, samples
                median, p90 = (Interval.of_samples(*pair) for pair in zip(exact, samples, strict=True))
                bias, travel_m = float(np.nanmedian(values[h])), float(np.nanmedian(way[h]))
                unit = UNITS[channel]
                rows.append(ErrorRow(robot, channel, unit, horizon, model, median, p90, bias, count, travel_m))
    return rows


def _difference(
    names: tuple[str, str], robot: str, channel: str, horizon_s: float, first: _Samples, second: _Samples
) -> Difference:
    """Return the second less the first; both have the same blocks if they are of one run."""
    change, spread = second[0] - first[0], second[1] - first[1]
    median, p90 = (Interval.of_samples(change[k], spread[k]) for k in (0, 1))
    relative = float(change[0] / max(first[0][0], 1e-12))
    return Difference(*names, robot, channel, UNITS[channel], horizon_s, median, p90, relative)


def _causes(replay: TypeReplay, model: str, at: int, horizon_s: float) -> tuple[ErrorCause, ...]:
    if replay.flown:
        return flight_causes(replay.blocks, replay.models[model], replay.flights, at)
    index = list(replay.models).index(model)
    errors = {
        channel: np.concatenate([own[channel][at] for own in replay.errors[model]])
        for channel in ("along", "across", "yaw")
    }
    made = [_predicted(replay, out, index, at, horizon_s) for out in replay.outs]
    turns = [own.turn for own in made if own.turn is not None]
    predicted = Predicted(
        np.concatenate([own.along for own in made], axis=1), np.concatenate(turns, axis=1) if turns else None
    )
    return causes(replay.blocks, errors, predicted, horizon_s)


def _predicted(replay: TypeReplay, out: RollOut, index: int, at: int, horizon_s: float) -> Predicted:
    change, start = predicted_change(out, index), out.windows.state
    lag = list(replay.models.values())[index].velocity_lag_s
    left_s = -lag * np.expm1(-horizon_s / lag)
    moved = change.position_world[:, at]
    if replay.spec.kind == DIFFERENTIAL_DRIVE:
        yaw = start.yaw + 0.5 * change.yaw[at]
        way, turned = moved[0] * np.cos(yaw) + moved[1] * np.sin(yaw), change.yaw[at]
        return Predicted(
            np.stack([way, way - left_s * start.velocity[0], change.velocity[0, at]]),
            np.stack([turned, turned - left_s * start.velocity[1], change.velocity[1, at]]),
        )
    way = np.linalg.norm(moved[:2], axis=0)
    direction = moved[:2] / np.maximum(way, 1e-6)
    along = [np.sum(direction * values[:2], axis=0) for values in (start.velocity, change.velocity[:, at])]
    return Predicted(np.stack([way, way - left_s * along[0], along[1]]))
