"""`testudo bench platoon`: what learning adds to greedy driving under a shield, and what two shields admit."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from testudo_bench.platoon.study import (
    QUICK,
    Budget,
    DrivingFigures,
    Findings,
    LearningFigures,
    compare_shields,
    drive_by_rules,
    find_optima,
    learn_all,
)
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

SHIELD_COLUMNS = ("shield", "states", "pairs admitted", "of the exact ones", "forbidden ones", "build", "decision")
DRIVING_COLUMNS = ("driving", "shield", "lag", "sees", "unsafe episodes", "nothing admitted", "cost", "over random")
OPTIMUM_COLUMNS = ("followers", "gaps at first", "fastest", "best", "greedy", "safe states in which greedy is best")
LEARNING_COLUMNS = (
    "learned",
    "episodes of a car",
    "unsafe in learning",
    "cost",
    "over random",
    "over greedy",
    "unsafe",
    "unsafe without the shield",
)


def bench_platoon(
    *,
    robot: str = "gritsbot_x",
    repeats: int | None = None,
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Drive ten cars in a line behind a random leader: at random, greedily and by learners, under two shields.

    Ctrl-C stops the study; finished results are in the tables.

    Args:
        robot: registered robot whose lag the cars have in some rows.
        repeats: seeds of each kind of learning.
        quick: few episodes and one seed, only to test that all works.
        say: called with progress messages.

    Raises:
        TestudoError: the robot is unknown, or ``repeats`` is below 1.
    """
    budget = QUICK if quick else Budget()
    budget = replace(budget, seeds=budget.seeds if repeats is None else repeats)
    if budget.seeds < 1:
        raise TestudoError(f"--repeats: found {budget.seeds}, expected at least 1")
    lag_s, found = load_robot(robot).velocity_lag_s, Findings(budget)
    interrupted, began = False, time.perf_counter()
    try:
        exact, braking = compare_shields(found, say)
        find_optima(found, braking, say)
        drive_by_rules(found, (exact, braking), lag_s, say)
        learn_all(found, braking, say)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - began
    values = found.to_dict() | {"quick": quick, "interrupted": interrupted, "seconds": seconds}
    more = (
        BenchResult("best driving, computed exactly; cost in m over 100 s", OPTIMUM_COLUMNS, _optimum_rows(found), {}),
        BenchResult("driving by rules, and without what makes it safe", DRIVING_COLUMNS, driving_rows(found), {}),
        BenchResult("learning; range of the seeds", LEARNING_COLUMNS, learning_rows(found), {}),
    )
    title = (
        f"{budget.cars} cars, {budget.episodes:,} episodes of 100 s in each row, {budget.controls:,} where nothing "
        f"keeps cars safe; cost: sum of gaps in m over all seconds; {seconds:.0f} s"
    )
    return BenchResult(title, SHIELD_COLUMNS, _shield_rows(found), values, more)


def _shield_rows(found: Findings) -> list[tuple[str, ...]]:
    return [
        (
            one.shield,
            f"{one.states:,}",
            f"{one.admitted:,}",
            f"{one.share_of_exact:.1%}",
            f"{one.forbidden}",
            f"{one.build_s:.2f} s",
            f"{one.decision_us:.2f} µs",
        )
        for one in found.shields
    ]


def _optimum_rows(found: Findings) -> list[tuple[str, ...]]:
    return [
        (
            f"{one.followers}",
            f"{one.gap_m:g} m",
            f"{one.fastest_m_s:g} m/s",
            f"{one.best_m:,.2f}",
            f"{one.greedy_m:,.2f}",
            f"{one.greedy_is_best:.1%}",
        )
        for one in found.optima
    ]


def driving_rows(found: Findings) -> list[tuple[str, ...]]:
    """Return a row for each driver, shield and lag; costs over those of random driving in the same place."""
    rows, random_m = [], None
    for one in found.driving:
        random_m = one.cost_m if one.driver == "random" else random_m
        rows.append(
            (
                one.driver,
                one.shield,
                f"{one.lag_s:g} s",
                one.sees,
                f"{one.unsafe:,} of {one.episodes:,}",
                f"{one.blocked:,}",
                _cost(one.cost_m),
                f"{one.cost_m / random_m:.3f}" if one.cost_m and random_m and not one.unsafe else "-",
            )
        )
    return rows


def learning_rows(found: Findings) -> list[tuple[str, ...]]:
    """Return a row for each kind and budget of learning: medians and ranges of the seeds."""
    kinds = list(dict.fromkeys((one.arm, one.learned_episodes) for one in found.learning))
    random, greedy = (_reference(found.driving, driver) for driver in ("random", "greedy"))
    return [
        _learning_row([one for one in found.learning if (one.arm, one.learned_episodes) == kind], random, greedy)
        for kind in kinds
    ]


def _reference(driving: Sequence[DrivingFigures], driver: str) -> float:
    return next(one.cost_m for one in driving if one.driver == driver and one.cost_m)


def _learning_row(seeds: Sequence[LearningFigures], random_m: float, greedy_m: float) -> tuple[str, ...]:
    costs = [one.cost_m for one in seeds]
    return (
        seeds[0].arm,
        f"{seeds[0].learned_episodes:,}",
        _range([one.unsafe_in_learning for one in seeds], "{:,.0f}"),
        _range(costs, "{:,.0f}"),
        _range([cost / random_m for cost in costs], "{:.3f}"),
        _range([cost / greedy_m for cost in costs], "{:.3f}"),
        _range([one.unsafe for one in seeds], "{:,.0f}"),
        _range([one.unsafe_without for one in seeds], "{:,.0f}"),
    )


def _range(values: Sequence[float], form: str) -> str:
    middle, low, high = (form.format(x) for x in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _cost(value_m: float | None) -> str:
    return "-" if value_m is None else f"{value_m:,.0f}"
