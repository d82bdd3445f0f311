"""`testudo evaluate`: held-out episodes with contacts counted at every control tick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from testudo_policies.commands.output import check_output, write_output
from testudo_policies.evaluation import HELD_OUT_SEED, Evaluation, evaluate_policy
from testudo_policies.progress import counted
from testudo_policies.subject import load_subject


def evaluate(policy: Annotated[Path, tyro.conf.Positional], *, episodes: int = 1000,
             team_size: tuple[int, ...] = (), seed: int = HELD_OUT_SEED, no_shield: bool = False,
             json: Path | None = None) -> None:
    """Evaluate a policy on held-out episodes: success, contacts, separation, interventions, deadlocks.

    Example:
        testudo evaluate policy.onnx --episodes 10000
        testudo evaluate runs/mine --team-size 2 4 6 8 --json evaluation.json

    Args:
        policy: an exported policy.onnx, or the folder of a training run.
        episodes: episodes for each team size.
        team_size: team sizes; by default that of the training.
        seed: seed of the first episode; the following ones count on.
        no_shield: negative control: nominal commands pass unchecked.
        json: file for the numbers.
    """
    console = Console()
    check_output(json)
    subject = load_subject(policy)
    results = []
    for size in team_size or (subject.team_size,):
        environment = subject.environment(size, shielded=not no_shield)
        with counted(console, f"{size} robots", episodes) as done:
            results.append(evaluate_policy(environment, subject.policy, subject.memory, episodes, seed, done))
    console.print(evaluation_table(results, environment.scenario.name))
    write_output(json, [result.to_dict() for result in results], console)


def evaluation_table(results: list[Evaluation], title: str) -> Table:
    """Return the table of evaluations."""
    table = Table("robots", "episodes", "success (95 %)", "contacts", "least separation", "shield acts",
                  "deadlocks", "time", "crossing paths", title=title)
    for result in results:
        table.add_row(
            str(result.team_size), f"{result.episodes:,}",
            f"{result.success:.4f} ({result.success_low:.4f} to {result.success_high:.4f})",
            f"{result.contacts} (in {result.episodes_with_contact} episodes)",
            f"{result.minimum_separation_m:.3f} m", f"{result.intervention_rate:.2f}",
            str(result.deadlocks), f"{result.time_to_success_s:.1f} s", f"{result.crossing_share:.2f}")
    return table
