"""What past runs showed beyond their sampled fleets: a systematic error and scatter between runs, by kind of quantity.

Sampled fleets vary by the intervals of the robot files, noise of poses and messages. Runs also vary by what no file
says: another delay of the sensors, friction, how a run is measured. That variation is estimated from few runs, and so
is uncertain itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from testudo_analysis.forecast.outcomes import INTERVENTIONS, LATENCY, SEPARATION, TIME_TO_GOAL, base_name
from testudo_analysis.forecast.scoring import LEVELS, interval

FEWEST_RUNS = 3
"""Fewer say almost nothing about their scatter: Student's 80 % quantile of two runs is 3.1, of three 1.9."""
FEWEST_FLEETS = 10
"""Of a past run, for their mean and variance."""
_NUMBERS = (TIME_TO_GOAL, SEPARATION, INTERVENTIONS, LATENCY)
_SAME = 1e-9


@dataclass(frozen=True)
class PastRun:
    """One run that is over: what it showed, and what fleets sampled from its start show."""

    observed: Mapping[str, float]  # by quantity; NaN where the run does not determine it
    sampled: Mapping[str, np.ndarray]  # (S,) by quantity; NaN where a fleet does not determine it


@dataclass(frozen=True)
class PastError:
    """How far past runs were from their sampled fleets in one kind of quantity, in deviations of these fleets.

    A task whose fleets scatter much is also the one that a model says least about: the least separation of robots that
    the shield keeps apart is known to a few millimetres, that of robots that pass by chance to centimetres.
    """

    kind: str
    runs: int  # M
    bias: float  # mean over the runs of the observed value less the mean of the fleets
    deviation: float  # of a new run about fleets moved by the bias, beyond their own scatter, which is 1
    degrees: float  # of freedom of the deviation


@dataclass(frozen=True)
class PastCoverage:
    """How many numbers of past runs were inside of the intervals that the others give, each run left out once."""

    numbers: int = 0  # none with fewer than `FEWEST_RUNS` others
    in_80: int = 0
    in_95: int = 0


def past_errors(runs: Sequence[PastRun], horizon_s: float) -> tuple[PastError, ...]:
    """Return the error of each kind of quantity that at least `FEWEST_RUNS` of the runs determine.

    One-way random effects by the analysis of variance (Searle, Casella and McCulloch, Variance Components, 1992,
    chapter 3): the error of a value against the mean of its fleets, over their deviation, is a bias of all runs, plus
    an effect of the run, plus one of the robot. With M runs of R values, mean squares B between the runs and W within
    them, a value of a new run varies about the mean of the errors by (1 + 1/M) B/R + (1 - 1/R) W, of which 1 is the
    fleets' own; the degrees of freedom of that sum are Satterthwaite's (Biometrics Bulletin, 1946). Runs in which some
    values are missing count with the mean R. Times to goal count by their logarithm.
    """
    found = []
    for kind in _NUMBERS:
        errors = [one for one in (_errors(run, kind, horizon_s) for run in runs) if len(one)]
        if len(errors) >= FEWEST_RUNS:
            found.append(_variation(kind, errors))
    return tuple(found)


def _variation(kind: str, errors: Sequence[np.ndarray]) -> PastError:
    """Return the error of a kind from those of each run (R,)."""
    runs, every = len(errors), sum(map(len, errors))
    of_run = np.array([one.mean() for one in errors])
    between = (1 + 1 / runs) * float(of_run.var(ddof=1))  # B / R is the variance of the means
    inside, within = every - runs, 0.0
    if inside:
        squares = sum(float(np.sum((one - mean) ** 2)) for one, mean in zip(errors, of_run, strict=True))
        within = (1 - runs / every) * squares / inside
    total = between + within
    spread = between**2 / (runs - 1) + (within**2 / inside if inside else 0.0)
    degrees = total**2 / spread if spread > 0 else float(runs - 1)
    return PastError(kind, runs, float(of_run.mean()), float(np.sqrt(max(0.0, total - 1.0))), degrees)


def with_past_errors(
    sampled: Mapping[str, np.ndarray], errors: Sequence[PastError], horizon_s: float, seed: int
) -> dict[str, np.ndarray]:
    """Return samples (S,) by quantity, moved by the bias of past runs and spread by their scatter.

    The spread is Student's, as its scale is estimated: with normal effects the result is the predictive distribution of
    a new run. Times of robots that do not arrive, and of those that are at their goals from the beginning, stay.
    """
    by_kind = {one.kind: one for one in errors}
    rng = np.random.default_rng([seed, 31])
    moved = {}
    for name, values in sampled.items():
        error = by_kind.get(base_name(name))
        if error is None:
            moved[name] = values
            continue
        strata = (rng.permutation(len(values)) + 0.5) / len(values)  # evenly over the distribution, in random order
        by = error.bias + error.deviation * stdtrit(error.degrees, strata)
        deviation = _mean_deviation(error.kind, values, horizon_s)[1]
        moved[name] = _moved(error.kind, values, deviation * by, horizon_s)
    return moved


def left_out_coverage(runs: Sequence[PastRun], horizon_s: float) -> PastCoverage:
    """Return the coverage of runs, each by its fleets and what the others showed: what a forecast is worth, before it.

    A value that all fleets have, and the run too, does not count.
    """
    if len(runs) <= FEWEST_RUNS:
        return PastCoverage()
    held = []
    for k, run in enumerate(runs):
        errors = past_errors([*runs[:k], *runs[k + 1 :]], horizon_s)
        for name, values in with_past_errors(run.sampled, errors, horizon_s, k).items():
            known, seen = values[np.isfinite(values)], run.observed.get(name, float("nan"))
            if base_name(name) not in _NUMBERS or len(known) < FEWEST_FLEETS or not np.isfinite(seen):
                continue
            ends = [interval(known, level) for level in LEVELS]
            if ends[-1] != (seen, seen):
                held.append([low <= seen <= high for low, high in ends])
    return PastCoverage(len(held), *(int(count) for count in np.sum(held, axis=0))) if held else PastCoverage()


def _errors(run: PastRun, kind: str, horizon_s: float) -> np.ndarray:
    """Return the error of each robot's quantity of a kind against its fleets, in their deviations (R,)."""
    found = []
    for name, values in run.sampled.items():
        seen = run.observed.get(name, float("nan"))
        if base_name(name) != kind or not np.isfinite(seen):
            continue
        mean, deviation = _mean_deviation(kind, values, horizon_s)
        if deviation > 0 and (kind != TIME_TO_GOAL or 0 < seen < horizon_s):
            found.append(((np.log(seen) if kind == TIME_TO_GOAL else seen) - mean) / deviation)
    return np.array(found)


def _mean_deviation(kind: str, values: np.ndarray, horizon_s: float) -> tuple[float, float]:
    """Return mean and deviation of samples (S,) of a kind; a deviation of zero where too few determine it.

    Of times the logarithm counts, without robots that do not arrive, or are there.
    """
    known = values[np.isfinite(values)]
    if kind == TIME_TO_GOAL:
        known = np.log(known[(known > 0) & (known < horizon_s)])
    if len(known) < FEWEST_FLEETS or np.ptp(known) <= _SAME:
        return 0.0, 0.0
    return float(known.mean()), float(known.std(ddof=1))


def _moved(kind: str, values: np.ndarray, by: np.ndarray, horizon_s: float) -> np.ndarray:
    if kind == TIME_TO_GOAL:
        drives = (values > 0) & (values < horizon_s)
        # Student's ends are far; a robot that needs more than the horizon does not arrive
        return np.where(drives, np.minimum(values * np.exp(np.minimum(by, 10.0)), horizon_s), values)
    return np.clip(values + by, 0.0, 1.0 if kind == INTERVENTIONS else None)
