"""`testudo bench improve`: learning from simulation, real data or both, on a plant that differs from its file."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace

import jax
import numpy as np

from testudo_bench.learning.model_mismatch import ARMS, OLD, MismatchOutcome, Plant, Study, budget_of
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_sim.devices import devices

COLUMNS = ("learnt from", "return", "success", "time to success (s)", "episodes with a contact", "better than old")
_BAR = 12


def bench_improve(
    *,
    robot: str = "gritsbot_x",
    repeats: int | None = None,
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Fine-tune `navigation` policies for a plant with less speed, more lag and more delay than its file.

    Ctrl-C stops the study; finished results are in the table.

    Args:
        robot: registered robot.
        repeats: number of seeds; each has its own old policy and recorded run.
        quick: few updates of two seeds, only to test that all works.
        say: called with progress messages.

    Raises:
        TestudoError: the robot is unknown, or ``repeats`` is below 1.
    """
    budget = budget_of(robot, quick=quick)
    budget = replace(budget, seeds=budget.seeds if repeats is None else repeats)
    if budget.seeds < 1:
        raise TestudoError(f"--repeats: found {budget.seeds}, expected at least 1")
    plant, began = Plant(), time.perf_counter()
    outcomes: dict[str, MismatchOutcome] = {}
    interrupted = False
    try:
        _run_arms(Study(budget, plant), outcomes, say)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - began
    values = {
        "plant": asdict(plant),
        "seeds": budget.seeds,
        "old_updates": budget.old_updates,
        "updates": budget.updates,
        "recorded_minutes": budget.recorded_minutes,
        "episodes": budget.episodes,
        "decisions_an_update": budget.config.worlds * budget.config.rollout,
        "quick": quick,
        "interrupted": interrupted,
        "seconds": seconds,
        "device": devices().to_dict(),
        "arms": {
            name: {field: [float(value) for value in values] for field, values in vars(outcome).items()}
            for name, outcome in outcomes.items()
        },
    }
    title = (
        f"navigation, {budget.config.team_size} {robot}; the plant has {plant.speed_scale:g} of the speed, "
        f"{plant.turn_scale:g} of the turn rate, {plant.velocity_lag:g} times the lag and "
        f"{plant.command_delay_s * 1000:.0f} ms more delay; {budget.recorded_minutes:.1f} min recorded, "
        f"{budget.updates} updates; median (least to most) of {budget.seeds} seeds, {budget.episodes} held-out "
        f"episodes on the plant; {seconds:.0f} s"
    )
    rows = [_row(name, outcome, outcomes[OLD]) for name, outcome in outcomes.items()]
    return BenchResult(title, COLUMNS, rows, values)


def _run_arms(study: Study, outcomes: dict[str, MismatchOutcome], say: Callable[[str], None]) -> None:
    """Train and evaluate the old policies and each way of learning; each outcome is stored when it is known."""
    steps = len(ARMS) + 1

    def reporter(number: int, text: str) -> Callable[[float], None]:
        def report(fraction: float) -> None:
            done = round(_BAR * (number + fraction) / steps)
            say(f"{'█' * done}{'░' * (_BAR - done)} {number + 1} of {steps}: {text}")

        report(0.0)
        return report

    policies = study.old_policies(reporter(0, f"{study.budget.seeds} old policies, in the described world"))
    outcomes[OLD] = jax.device_get(study.outcome(policies))
    recorded = study.recorded(policies)
    for number, arm in enumerate(ARMS, 1):
        tuned = study.tuned(arm, policies, recorded, reporter(number, f"learning from {arm}"))
        outcomes[arm] = jax.device_get(study.outcome(tuned))


def _row(name: str, outcome: MismatchOutcome, old: MismatchOutcome) -> tuple[str, ...]:
    better = int(np.sum(outcome.episode_return > old.episode_return))
    seeds = len(outcome.episode_return)
    return (
        name,
        _spread(outcome.episode_return, 2),
        _spread(outcome.success, 3),
        _spread(outcome.time_s, 1),
        _spread(outcome.contact_episodes, 3),
        "" if name == OLD else f"{better} of {seeds}",
    )


def _spread(values: np.ndarray | jax.Array, digits: int) -> str:
    return f"{np.median(values):.{digits}f} ({np.min(values):.{digits}f} to {np.max(values):.{digits}f})"
