"""Identification of robots with velocity commands: scales, turn slip, delay, lag, acceleration limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from testudo_analysis.identify.estimation.differentiable_rollout import DELAY, SLIP, BatchedRollout, to_inner
from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, RUNS, Coverage, HeldOut
from testudo_analysis.identify.estimation.robust_fit import (
    FEWEST_BLOCKS,
    BootstrapSpread,
    Fit,
    bootstrap,
    fit,
    flat,
    prior,
)
from testudo_analysis.identify.estimation.rollout_windows import SegmentSet, SegmentSettings, cut
from testudo_analysis.identify.held_out_errors import Fold, HalfFit, HeldOutErrors, hold_fold, hold_half
from testudo_analysis.identify.residual_motion.ground_noise import NoiseStudy, enough
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.motion_noise import MotionNoise
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, QUANTITIES
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot
from testudo_runs.progress_bar import Steps, Tell, quiet

HoldOut = Literal["half", "robots", "runs", "none"]
LIMITS = ("limits.acceleration", "limits.turn_acceleration")
_LAG = "dynamics.velocity_lag"
_FIRST_SCALE = (0.01, 0.03)  # scale of large errors [m] and [rad] until the residuals are known
_LIMIT_SHARES = (0.5, 0.25, 0.1)  # shares of the robot file's acceleration limits from which the search starts
_LIMIT_GAIN = 0.01
_CUT, _FIRST, _LIMITS, _ALL, _EACH, _BASELINE, _HALVES, _NOISE, _COVERED = (
    "cutting the run, and its first delay",
    "all robots, first pass",
    "acceleration limits",
    "all robots, without undetermined parameters",
    "each robot",
    "dead reckoning",
    "held out: second half",
    "residual motion",
    "coverage of held-out motions",
)
_STEPS = {_CUT: 1.0, _FIRST: 3.0, _LIMITS: 2.0, _ALL: 2.0, _EACH: 2.0, _BASELINE: 1.0}


@dataclass(frozen=True)
class GroundFit:
    """Parameters fitted to a run."""

    keys: tuple[str, ...]  # P parameters of the robot file
    values: np.ndarray  # (P,): all robots together, as fitted (turn slip squared)
    free: np.ndarray  # (P,) bool: the others keep the values of the robot file
    flat: np.ndarray  # (P,) bool: without effect on the errors
    spread: BootstrapSpread
    by_robot: np.ndarray  # (R, P)
    robot_spread: tuple[BootstrapSpread, ...]
    robot_tells: np.ndarray  # (R, P) bool: determined by the robot's own stretches; none for a robot that stood
    held_out: tuple[HeldOut, ...]
    noise: MotionNoise | None  # None where the run has too few stretches for it
    coverage: tuple[Coverage, ...]
    stretches: SegmentSet = field(repr=False)
    scale: np.ndarray = field(repr=False)  # (H, E): robust deviation of the residuals by horizon and channel
    baseline_loss: float
    loss: float
    cutting: SegmentSettings
    start_delay_s: float
    """Initial delay: the latency of the cross-correlation less the file's lag, or the file's delay."""


@dataclass(frozen=True)
class _Problem:
    """Common settings of all fits of a run."""

    roller: BatchedRollout
    start: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    free: np.ndarray
    scale: np.ndarray

    def solve(self, start: np.ndarray, group: np.ndarray, weight: np.ndarray, free: np.ndarray | None = None) -> Fit:
        return fit(self.roller, start, self.free if free is None else free, self.bounds, self.scale, group, weight)


def fit_ground(
    robots: Sequence[AlignedRobot],
    spec: RobotSpec,
    *,
    hold_out: Sequence[HoldOut] = (HALF, ROBOTS),
    runs: Sequence[str] = (),
    residual: bool = False,
    cutting: SegmentSettings | None = None,
    tell: Tell = quiet,
) -> GroundFit:
    """Fit the parameters of one robot type.

    All ``robots`` are of the type; ``spec`` has the initial values; ``hold_out`` is the held-out data for the
    validation: half of the run, single robots, single runs, which ``runs`` names for each robot; ``residual`` also
    validates a residual model, of differential drives only; ``tell`` gets the current step and the completed fraction.

    Raises:
        TestudoError: the run has too few windows.
    """
    chosen = cutting or SegmentSettings.create(spec, sum(float(np.ptp(robot.trajectory.stamp_s)) for robot in robots))
    names = [robot.name for robot in robots]
    halved, folds = HALF in hold_out, _folds(names, runs, hold_out)
    more = {_HALVES: 2.0} if halved else {}
    held_steps = {f"held out: {fold.name}": 1.5 for fold in folds}
    steps = Steps(tell, _STEPS | more | held_steps | {_NOISE: 1.0, _COVERED: 0.5 + 1.0 * (len(more) + len(folds))})
    steps.begin(_CUT)
    stretches = cut(robots, spec, chosen)
    keys, all_weights = _keys(spec), np.ones(len(stretches))
    roller = BatchedRollout(spec, keys, stretches, chosen)
    start, limited = _start(roller, robots, spec, chosen), _limit_mask(keys)
    problem = _Problem(roller, start, _bounds(keys, chosen), ~limited, _first_scale(spec, chosen))
    problem, whole, spread = _fit_of_all(problem, spec, stretches, len(chosen.horizons_s), steps)
    steps.begin(_EACH)
    single = problem.solve(whole.values[0], stretches.robot, all_weights)
    width = _widths(spec, keys)
    robot_spread, robot_tells = _each_robot(problem, single, stretches.robot, len(robots), width)
    steps.begin(_BASELINE)
    measure = HeldOutErrors.create(problem.roller, problem.scale, residual=residual)
    held = _held_out(measure, problem, whole.values[0], names, folds, steps, halved=halved)
    ends = [spread.interval(whole.values[0]), *map(BootstrapSpread.interval, robot_spread, single.values)]
    noise, coverage = _residual_motion(problem, whole.values[0], ends, single.values, held, robots, steps)
    return GroundFit(
        keys,
        whole.values[0],
        problem.free,
        flat(whole.curvature, all_weights, width),
        spread,
        single.values,
        robot_spread,
        robot_tells,
        held.rows,
        noise,
        coverage,
        stretches,
        problem.scale,
        _loss(measure.reckoned, problem.scale, stretches),
        float(whole.loss[0]),
        chosen,
        float(start[keys.index(DELAY)]),
    )


def _fit_of_all(
    problem: _Problem, spec: RobotSpec, stretches: SegmentSet, horizons: int, steps: Steps
) -> tuple[_Problem, Fit, BootstrapSpread]:
    """Return the fit of all robots in three passes: scale of residuals, limits, determined parameters."""
    keys, start = _keys(spec), problem.start
    all_weights, all_one = np.ones(len(stretches)), np.zeros(len(stretches), int)
    steps.begin(_FIRST)
    first = problem.solve(start, all_one, all_weights).values[0]
    # robust deviation (H, E) of the residuals at parameters (P,)
    errors = problem.roller.errors(np.broadcast_to(first, (len(stretches), len(first))))
    rows = [
        np.median(np.abs(np.moveaxis(errors, 1, 0)[:, stretches.fitted & (stretches.horizon == k)]), axis=1)
        for k in range(horizons)
    ]
    problem = replace(problem, scale=np.maximum(1.4826 * np.array(rows), 1e-5))
    steps.begin(_LIMITS)
    problem = _with_limits(problem, first, all_weights)
    steps.begin(_ALL)
    begin = np.where(problem.free & ~_limit_mask(keys), first, problem.start)
    whole = problem.solve(begin, all_one, all_weights)
    return _without_undetermined(problem, whole, spec, all_weights)


@dataclass(frozen=True)
class _Held:
    """Validation on held-out data."""

    rows: tuple[HeldOut, ...]
    half: HalfFit | None
    others: tuple[tuple[Fold, np.ndarray], ...]  # with the parameters (P,) fitted to the others


def _held_out(
    measure: HeldOutErrors,
    problem: _Problem,
    values: np.ndarray,
    names: list[str],
    folds: Sequence[Fold],
    steps: Steps,
    *,
    halved: bool,
) -> _Held:
    """Return the errors on the held-out half of the run, and on the held-out robots of each fold."""
    held: list[HeldOut] = []
    half, others = None, []
    if halved:
        steps.begin(_HALVES)
        held, half = hold_half(measure, problem.solve, values, names)
    for fold in folds:
        steps.begin(f"held out: {fold.name}")
        rows, found = hold_fold(measure, problem.solve, values, fold)
        held += rows
        others.append((fold, found))
    return _Held(tuple(held), half, tuple(others))


def _folds(names: Sequence[str], runs: Sequence[str], hold_out: Sequence[HoldOut]) -> list[Fold]:
    """Return what is held out in turn: each of several robots, each of several runs."""
    found = [Fold(name, ROBOTS, (k,)) for k, name in enumerate(names) if ROBOTS in hold_out and len(names) > 1]
    several = dict.fromkeys(runs) if RUNS in hold_out and len(set(runs)) > 1 else ()
    return found + [Fold(name, RUNS, tuple(k for k, run in enumerate(runs) if run == name)) for name in several]


def _half_widths(problem: _Problem, ends: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return half of the width (P,) of the interval that covers those (P,), (P,) of all fits; zero if not free."""
    low, high = np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)
    inner = np.clip(high, *problem.bounds) - np.clip(low, *problem.bounds)
    return np.where(problem.free, inner / 2, 0.0)


def _residual_motion(
    problem: _Problem,
    values: np.ndarray,
    ends: Sequence[tuple[np.ndarray, np.ndarray]],
    singles: np.ndarray,
    held: _Held,
    robots: Sequence[AlignedRobot],
    steps: Steps,
) -> tuple[MotionNoise | None, tuple[Coverage, ...]]:
    """Return the process beside parameters (P,) and its held-out coverage; none for too few stretches.

    ``ends`` are the intervals of all robots together and of single robots, ``singles`` (R, P) the fits of these.
    """
    steps.begin(_NOISE)
    if not enough(problem.roller):
        return None, ()
    tracks = [robot.trajectory for robot in robots]
    study = NoiseStudy.create(problem.roller, values, _half_widths(problem, ends), tracks)
    noise = study.fitted(study.windows(study.of_others(singles)), study.half_widths)
    steps.begin(_COVERED)
    names = [robot.name for robot in robots]
    return noise, _coverage(study, problem, held, singles, ends[1:], names)


def _coverage(
    study: NoiseStudy,
    problem: _Problem,
    held: _Held,
    singles: np.ndarray,
    ends: Sequence[tuple[np.ndarray, np.ndarray]],
    names: list[str],
) -> tuple[Coverage, ...]:
    """Return the coverage of held-out motions, with a process that is fitted to the other data only.

    ``singles`` (R, P) are the fits of single robots, ``ends`` their intervals.
    """
    robot = problem.roller.stretches.robot
    mine, found = robot[study.chosen], []
    if held.half is not None:
        fit, train, test = held.half.fit, held.half.train[study.chosen], held.half.test[study.chosen]
        windows = study.windows(fit.values[mine])
        own = [
            bootstrap(fit.curvature, robot, (held.half.train & (robot == k)).astype(float), values, problem.free)
            for k, values in enumerate(fit.values)
        ]
        each = [_half_widths(problem, [spread.interval(fit.values[k])]) for k, spread in enumerate(own)]
        widths = np.mean(each, axis=0)
        noise = study.fitted(study.windows(study.of_others(fit.values)).of_stretches(train), widths)
        found += study.coverage(noise, windows.of_stretches(test), widths, names, HALF)
    for fold, values in held.others:
        mask = np.isin(mine, fold.left_out)
        widths = _half_widths(problem, [end for k, end in enumerate(ends) if k not in fold.left_out])
        noise = study.fitted(study.windows(study.of_others(singles, fold.left_out)).of_stretches(~mask), widths)
        windows = study.windows(np.broadcast_to(values, (len(mine), len(values))))
        found += study.coverage(noise, windows.of_stretches(mask), widths, names, fold.split)
    return tuple(found)


def _each_robot(
    problem: _Problem, single: Fit, robot: np.ndarray, count: int, width: np.ndarray
) -> tuple[tuple[BootstrapSpread, ...], np.ndarray]:
    """Return the uncertainty of each robot's own fit, and which parameters its stretches determine (R, P)."""
    mine = [(robot == k).astype(float) for k in range(count)]
    determined = np.array([problem.free & ~flat(single.curvature, weight, width) for weight in mine])
    spreads = tuple(
        bootstrap(single.curvature, robot, weight, single.values[k], problem.free) for k, weight in enumerate(mine)
    )
    return spreads, determined & np.array([[spread.blocks >= FEWEST_BLOCKS] for spread in spreads])


def _bounds(keys: tuple[str, ...], cutting: SegmentSettings) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds (P,), (P,) of the fitted parameters."""
    low, high = (np.array([getattr(QUANTITIES[key], end) for key in keys]) for end in ("low", "high"))
    return to_inner(keys, low), to_inner(keys, np.where(np.array(keys) == DELAY, cutting.longest_delay_s, high))


def _keys(spec: RobotSpec) -> tuple[str, ...]:
    if spec.kind == DIFFERENTIAL_DRIVE:
        return (DELAY, _LAG, "dynamics.speed_scale", "dynamics.turn_scale", SLIP, *LIMITS)
    return (DELAY, _LAG, "dynamics.speed_scale", LIMITS[0])


def _limit_mask(keys: tuple[str, ...]) -> np.ndarray:
    return np.array([key in LIMITS for key in keys])


def _widths(spec: RobotSpec, keys: tuple[str, ...]) -> np.ndarray:
    """Return the widths of the prior intervals (P,), as fitted."""
    ends = np.array([prior(spec, key) for key in keys])
    inner = np.stack([to_inner(keys, ends[:, 0]), to_inner(keys, ends[:, 1])])
    return inner[1] - inner[0]


def _start(
    roller: BatchedRollout, robots: Sequence[AlignedRobot], spec: RobotSpec, cutting: SegmentSettings
) -> np.ndarray:
    """Return the initial values (P,): of the robot file, except the delay, which is from the cross-correlation."""
    start = roller.nominal()
    found = [robot.latency.delay_s for robot in robots if robot.latency is not None and robot.latency.determined]
    if found:
        start[roller.keys.index(DELAY)] = np.clip(
            np.median(found) - spec.velocity_lag_s, 0.0, cutting.longest_delay_s - cutting.step_s
        )
    return start


def _first_scale(spec: RobotSpec, cutting: SegmentSettings) -> np.ndarray:
    """Return the initial scale of large errors (H, E), proportional to the horizon."""
    row = np.array([_FIRST_SCALE[0]] * spec.dimension + [_FIRST_SCALE[1]])
    return np.array(cutting.horizons_s)[:, None] / cutting.horizons_s[-1] * row


def _with_limits(problem: _Problem, values: np.ndarray, weight: np.ndarray) -> _Problem:
    """Return the problem with the acceleration limits free that affect the run, from their best initial values."""
    keys, start, free = problem.roller.keys, problem.start.copy(), problem.free.copy()
    count = len(weight)

    def loss(at: np.ndarray) -> float:
        return float(problem.roller.curvature(np.broadcast_to(at, (count, len(at))), problem.scale).loss @ weight)

    best = values.copy()
    least = loss(best)
    for key in LIMITS:
        if key not in keys:
            continue
        k = keys.index(key)
        for share in _LIMIT_SHARES:
            tried = best.copy()
            tried[k] = max(share * values[k], problem.bounds[0][k])
            if (found := loss(tried)) < least * (1 - _LIMIT_GAIN):
                best, least, free[k] = tried, found, True
        start[k] = best[k]
    curved = ~flat(
        problem.roller.curvature(np.broadcast_to(best, (count, len(best))), problem.scale),
        weight,
        np.maximum(best, 1e-3),
    )
    return replace(problem, start=start, free=free | (_limit_mask(keys) & curved))


def _without_undetermined(
    problem: _Problem, whole: Fit, spec: RobotSpec, weight: np.ndarray
) -> tuple[_Problem, Fit, BootstrapSpread]:
    """Return problem, fit and resamples with undetermined parameters fixed at the robot file, one by one."""
    keys, stretches = problem.roller.keys, problem.roller.stretches
    width, file = _widths(spec, keys), problem.roller.nominal()
    while True:
        spread = bootstrap(whole.curvature, stretches.robot, weight, whole.values[0], problem.free)
        if spread.blocks < FEWEST_BLOCKS:
            raise TestudoError(
                f"found {spread.blocks} stretches of driving, expected at least {FEWEST_BLOCKS} for an interval; "
                "record a minute or more of driving"
            )
        low, high = spread.interval(whole.values[0])
        ratio = np.where(problem.free, (high - low) / width, 0.0)
        ratio[problem.free & flat(whole.curvature, weight, width)] = np.inf
        slip = keys.index(SLIP) if SLIP in keys else -1
        if slip >= 0 and problem.free[slip] and low[slip] <= 0:
            ratio[slip] = max(ratio[slip], 1.0)  # zero is within the interval: not determined
        worst = int(np.argmax(ratio))
        if ratio[worst] < 1:
            return problem, whole, spread
        free = problem.free.copy()
        free[worst] = False
        start = whole.values[0].copy()
        start[worst] = file[worst]
        problem = replace(problem, free=free)
        whole = problem.solve(start, np.zeros(len(weight), int), weight)


def _loss(errors: np.ndarray, scale: np.ndarray, stretches: SegmentSet) -> float:
    z = np.sum((errors / np.moveaxis(scale[stretches.horizon], -1, 1)) ** 2, axis=1)
    return float(np.sum(stretches.fitted * 2 * (np.sqrt(1 + z) - 1)))
