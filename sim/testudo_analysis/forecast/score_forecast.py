"""Scores a forecast against a recorded run, if it was made for such a run and before it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testudo_analysis.forecast.forecast import MEASURED, TRUE, Forecast, ForecastError, QuantityForecast
from testudo_analysis.forecast.outcomes import SUCCESS, base_name
from testudo_analysis.forecast.recorded_outcomes import is_measured, observed, robot_files, start_of_run
from testudo_analysis.forecast.scoring import LEVELS, crps
from testudo_runs.alignment import TeamRecording

_START_M, _GOAL_M = 0.1, 1e-3
"""A run begins and ends where the forecast expects: starts are placed by hand, goals are numbers."""


@dataclass(frozen=True)
class ScoredQuantity:
    """One forecast quantity against what was observed."""

    name: str
    unit: str
    observed: float
    in_80: bool
    in_95: bool
    crps: float
    crps_nominal: float  # of the same by the file that the policy was made for, see `QuantityForecast.nominal`
    counts: bool
    """For coverage: not a yes or no, nor the one value that every sample has, if it came true: a robot at its goal."""

    @property
    def is_chance(self) -> bool:
        """See `QuantityForecast.is_chance`."""
        return base_name(self.name) == SUCCESS


@dataclass(frozen=True)
class ForecastScore:
    """All quantities of a forecast that a run shows."""

    forecast_sha256: str
    run: str
    run_start_ns: int
    run_hash: str  # last hash of the run's chain; empty without one
    quantities: tuple[ScoredQuantity, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"summary": summary(self.quantities)}


def scored(quantity: QuantityForecast, value: float) -> ScoredQuantity:
    """Return the score of one quantity."""
    low, high = quantity.interval(LEVELS[-1])
    counts = not quantity.is_chance and (low < high or value != low)
    in_80, in_95 = (least <= value <= most for least, most in map(quantity.interval, LEVELS))
    own, plain = crps(np.array(quantity.samples), value), crps(np.array(quantity.nominal), value)
    return ScoredQuantity(quantity.name, quantity.unit, value, in_80, in_95, own, plain, counts)


def score_forecast(forecast: Forecast, recording: TeamRecording) -> ForecastScore:
    """Return the score of a forecast against a run.

    Raises:
        TestudoError: the run was made with another policy, other robots, starts or goals, or began before the forecast
            was made, or ended too early; or it shows none of the quantities.
    """
    check_same(forecast, recording)
    values = observed(recording, forecast.inputs.horizon_s)
    known = {name: float(value[0]) for name, value in values.items() if np.isfinite(value[0])}
    found = tuple(scored(one, known[one.name]) for one in forecast.quantities if one.name in known)
    if not found:
        raise ForecastError(f"{recording.folder}: shows none of the forecast quantities")
    run = recording.run
    proof = "" if run is None else run.proof.last_hash
    return ForecastScore(forecast.sha256, str(recording.folder), start_ns(recording), proof, found)


def start_ns(recording: TeamRecording) -> int:
    """Return the wall clock [ns] at which a run began, as its recorder wrote it.

    Raises:
        ForecastError: it is not recorded.
    """
    found = recording.source.start_ns
    if not found:
        raise ForecastError(f"{recording.folder}: does not say when it began, so that no forecast can be before it")
    return found


def check_same(forecast: Forecast, recording: TeamRecording) -> None:
    """Refuse a run that the forecast was not made for, or not before.

    Raises:
        ForecastError: with what was found and what is expected.
    """
    where, inputs, run = recording.folder, forecast.inputs, recording.run
    if run is None:
        raise ForecastError(f"{where}: found a run without a policy, expected one of `testudo up`")
    if start_ns(recording) <= forecast.made_ns:
        raise ForecastError(f"{where}: began before the forecast of {forecast.made} was made: it is no forecast of it")
    if run.policy_sha256 != inputs.policy_sha256:
        raise ForecastError(
            f"{where}: policy: found {run.policy_sha256[:12]}, the forecast is for {inputs.policy_sha256[:12]}"
        )
    driven = {name: spec.sha256 for name, spec in robot_files(recording).items()}
    expected = {name: robot.described_sha256 for name, robot in inputs.robots.items()}
    if driven != expected:
        names = sorted(name for name in {*driven, *expected} if driven.get(name) != expected.get(name))
        raise ForecastError(f"{where}: robots: {', '.join(names)}: others than in the forecast, or with other files")
    poses = MEASURED if is_measured(recording) else TRUE
    if poses != inputs.poses:
        raise ForecastError(
            f"{where}: poses: found {poses} ones, the forecast is for {inputs.poses} ones; `testudo forecast --poses "
            f"{poses}` makes one for such a run"
        )
    start = start_of_run(recording)
    goals, starts = (
        min(np.linalg.norm(np.array(rows) - now.T, axis=1).max() for rows in every)
        for every, now in ((inputs.goals_world, start.goal_world), (inputs.starts_world, start.position_world))
    )
    if goals > _GOAL_M or starts > _START_M:
        raise ForecastError(
            f"{where}: found starts up to {starts:.2f} m and goals up to {goals:.2f} m from those of the forecast, "
            f"expected at most {_START_M:g} m and {_GOAL_M:g} m"
        )


def summary(quantities: tuple[ScoredQuantity, ...] | list[ScoredQuantity]) -> dict[str, float | int | None]:
    """Return number, coverage of both intervals, mean CRPS, and its mean ratio to that of the nominal file.

    Quantities have different units, so the ratio is the mean over the kinds of quantities of the ratio of their sums.
    A quantity that does not count for coverage does for the CRPS.
    """
    numbers = [one for one in quantities if one.counts]
    own, plain = _by_kind(quantities, "crps"), _by_kind(quantities, "crps_nominal")
    ratios = [own[kind] / plain[kind] for kind in own if plain[kind] > 0]
    return {
        "quantities": len(quantities),
        "covered_of": len(numbers),
        "coverage_80": float(np.mean([one.in_80 for one in numbers])) if numbers else None,
        "coverage_95": float(np.mean([one.in_95 for one in numbers])) if numbers else None,
        "crps_over_nominal": float(np.mean(ratios)) if ratios else None,
    }


def mean_crps(quantities: tuple[ScoredQuantity, ...] | list[ScoredQuantity]) -> Mapping[str, tuple[float, float]]:
    """Return the mean CRPS of the forecasts and of the nominal file by kind of quantity, in its unit."""
    own, plain = _by_kind(quantities, "crps"), _by_kind(quantities, "crps_nominal")
    return {kind: (own[kind], plain[kind]) for kind in own}


def _by_kind(quantities: tuple[ScoredQuantity, ...] | list[ScoredQuantity], name: str) -> dict[str, float]:
    kinds = dict.fromkeys(base_name(one.name) for one in quantities)
    return {
        kind: float(np.mean([getattr(one, name) for one in quantities if base_name(one.name) == kind]))
        for kind in kinds
    }
