"""`testudo bench improve`: learning from simulation, real data or both, on a plant that differs from its file."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from testudo_bench.learning.candidates import CANDIDATES, Candidate
from testudo_bench.learning.model_mismatch import ARMS, OLD, QUICK, Budget, Study
from testudo_bench.learning.screen import chosen_candidates
from testudo_bench.learning.screened_task import Gain, scores
from testudo_bench.learning.seed_training import HeldOutEpisodes
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_sim.devices import devices

COLUMNS = ("learnt from", "score", "return", "success", "episodes with a contact", "gain over the old policy (95 %)")
_BAR = 12


def bench_improve(
    *,
    scenario: str | None = None,
    repeats: int | None = None,
    worlds: int | None = None,
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Fine-tune policies for a plant that is not as its robot file says, from simulation, a real run or both.

    Ctrl-C stops the study; finished results are in the table.

    Args:
        scenario: a candidate of `bench screen`, by its name or its scenario; default: the first one.
        repeats: number of seeds; each has its own old policy and recorded run.
        worlds: parallel worlds of a training.
        quick: few updates of two seeds, only to test that all works.
        say: called with progress messages.

    Raises:
        TestudoError: no candidate has the name, or an option is below 1.
    """
    base = QUICK if quick else Budget()
    budget = replace(base, seeds=repeats or base.seeds, worlds=worlds or base.worlds)
    for option, found in (("--repeats", repeats), ("--worlds", worlds)):
        if found is not None and found < 1:
            raise TestudoError(f"{option}: found {found}, expected at least 1")
    candidate = CANDIDATES[0] if scenario is None else chosen_candidates(scenario, accelerator=True)[0]
    study, began = Study(budget, candidate), time.perf_counter()
    outcomes: dict[str, HeldOutEpisodes] = {}
    interrupted = False
    try:
        _run_arms(study, outcomes, say)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - began
    values = {
        "candidate": candidate.name,
        **candidate.to_dict(),
        **asdict(budget),
        "recorded_minutes": study.recorded_minutes,
        "decisions_an_update": budget.worlds * study.ppo.components.config.rollout,
        "quick": quick,
        "interrupted": interrupted,
        "seconds": seconds,
        "device": devices().to_dict(),
        "arms": {name: _figures(candidate, outcome) for name, outcome in outcomes.items()},
    }
    title = (
        f"{candidate.name}: {candidate.about}; {study.recorded_minutes:.1f} min recorded, {budget.updates} updates; "
        f"score: {candidate.score}; median (least to most) of {budget.seeds} seeds, {budget.episodes} held-out "
        f"episodes on the plant; {seconds:.0f} s"
    )
    rows = [_row(candidate, name, outcome, outcomes[OLD]) for name, outcome in outcomes.items()]
    return BenchResult(title, COLUMNS, rows, values)


def _run_arms(study: Study, outcomes: dict[str, HeldOutEpisodes], say: Callable[[str], None]) -> None:
    """Train and evaluate the old policies and each way of learning; each outcome is stored when it is known."""
    steps = len(ARMS) + 1

    def reporter(number: int, text: str) -> Callable[[float], None]:
        def report(fraction: float) -> None:
            done = round(_BAR * (number + fraction) / steps)
            say(f"{'█' * done}{'░' * (_BAR - done)} {number + 1} of {steps}: {text}")

        report(0.0)
        return report

    policies = study.old_policies(reporter(0, f"{study.budget.seeds} old policies, in the described world"))
    outcomes[OLD] = study.outcome(policies)
    recorded = study.recorded(policies)
    for number, (name, arm) in enumerate(ARMS.items(), 1):
        tuned = study.tuned(arm, policies, recorded, reporter(number, f"learning from {name}"))
        outcomes[name] = study.outcome(tuned)


def _figures(candidate: Candidate, outcome: HeldOutEpisodes) -> dict[str, Any]:
    """Return the figures of each seed, JSON-ready."""
    named = {"return": outcome.episode_return, "success": outcome.success, "time_s": outcome.time_s}
    named |= {"contact_episodes": outcome.touched}
    means = {name: np.mean(np.asarray(value, float), axis=-1).tolist() for name, value in named.items()}
    return {"score": scores(candidate, outcome).tolist(), **means}


def _row(candidate: Candidate, name: str, outcome: HeldOutEpisodes, old: HeldOutEpisodes) -> tuple[str, ...]:
    figures = _figures(candidate, outcome)
    gain = Gain.of(scores(candidate, outcome), scores(candidate, old), more_is_better=candidate.more_is_better)
    return (
        name,
        _spread(figures["score"], 2),
        _spread(figures["return"], 2),
        _spread(figures["success"], 3),
        _spread(figures["contact_episodes"], 3),
        "" if name == OLD else f"{gain.mean:+.0%} ({gain.low:+.0%} to {gain.high:+.0%})",
    )


def _spread(values: list[float], digits: int) -> str:
    return f"{np.median(values):.{digits}f} ({np.min(values):.{digits}f} to {np.max(values):.{digits}f})"
