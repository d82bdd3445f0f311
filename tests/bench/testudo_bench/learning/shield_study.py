"""`testudo bench learning`: effect of the shield on learning, and cost of shields by team size."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from testudo_bench.learning.study_report import (
    COLUMNS,
    COST_COLUMNS,
    COST_LEGEND,
    LEGEND,
    cost_rows,
    rows,
    study_plot,
    summary,
)
from testudo_bench.learning.study_runs import ARMS, QUICK, Budget, SavedResults, open_runs
from testudo_bench.learning.team_cost import SIZES, study_contract, team_cost
from testudo_bench.learning.training_trial import Trials
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices

_QUICK_SIZES = (2, 8)
_BAR = 12


def bench_learning(
    *,
    robot: str = "gritsbot_x",
    team_size: int = 4,
    repeats: int | None = None,
    quick: bool = False,
    plot: Path | None = None,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Train `navigation` with and without the shield, evaluate during training, and time shields by team size.

    Ctrl-C stops the study; finished results are in the table and in the file, from which the same command resumes.

    Args:
        robot: registered robot.
        team_size: robots in a world.
        repeats: seeds of each kind of training.
        quick: few updates of one seed, only to test that all works.
        plot: file for the plot (.png).
        saved: file of the study's results.
        say: called with progress messages.

    Raises:
        TestudoError: the robot is unknown, ``repeats`` is below 1, or a file is of another study or cannot be
            written.
    """
    budget = replace(QUICK if quick else Budget(), robot=robot, team_size=team_size)
    budget = replace(budget, seeds=budget.seeds if repeats is None else repeats)
    if budget.seeds < 1:
        raise TestudoError(f"--repeats: found {budget.seeds}, expected at least 1")
    load_robot(robot)
    for option, file in (("--json", saved), ("--plot", plot)):
        if file is not None and not file.parent.is_dir():
            raise TestudoError(f"{option} {file}: folder {file.parent} does not exist; create it or give another path")
    study = SavedResults.open(budget, saved)
    interrupted, began = False, time.perf_counter()
    try:
        _learn(study, say)
        _measure_costs(study, _QUICK_SIZES if quick else SIZES, say)
    except KeyboardInterrupt:
        interrupted = True
    if plot is not None:
        try:
            plot.write_bytes(study_plot(budget, study.runs, study.costs).png)
        except OSError as error:
            raise TestudoError(f"--plot {plot}: cannot be written: {error.strerror}") from error
    values = study.to_dict() | {
        "arms": [summary(budget, study.runs, arm) for arm in ARMS],
        "quick": quick,
        "interrupted": interrupted,
        "seconds": time.perf_counter() - began,
        "device": devices().to_dict(),
    }
    title = (
        f"navigation, {team_size} {robot}, {budget.decisions(budget.updates):,} decisions a training, "
        f"{budget.episodes} held-out episodes a point; {devices().text}\n{LEGEND}"
    )
    cost = BenchResult(f"cost of a team's shields\n{COST_LEGEND}", COST_COLUMNS, cost_rows(study.costs), {})
    return BenchResult(title, COLUMNS, rows(budget, study.runs), values, (cost,))


def _learn(study: SavedResults, say: Callable[[str], None]) -> None:
    trials, total = Trials(study.budget), 2 * study.budget.seeds
    for shielded, seed in open_runs(study.budget, study.runs):
        number, kind = len(study.runs), "with" if shielded else "without"

        def tell(share: float, number: int = number, text: str = f"{kind} the shield, seed {seed}") -> None:
            say(f"{_bar((number + share) / total)} training {number + 1} of {total}, {text}")

        tell(0.0)
        study.add_run(trials.run(seed, shielded=shielded, say=tell))


def _measure_costs(study: SavedResults, sizes: tuple[int, ...], say: Callable[[str], None]) -> None:
    left = [size for size in sizes if size not in {cost.team_size for cost in study.costs}]
    if not left:
        return
    contract = study_contract(study.budget.robot)
    for size in left:
        say(f"{_bar(sizes.index(size) / len(sizes))} cost of {size} shields")
        study.add_cost(team_cost(study.budget.robot, contract, size))


def _bar(share: float) -> str:
    done = round(_BAR * share)
    return "█" * done + "░" * (_BAR - done)
