"""`testudo cross`: policies of two roles against each other, with Elo ratings."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from testudo_deploy.contract.shipped_policies import policy_file
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.evaluation.cross_table import CrossTable, Meeting, cross_table
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, LAST_SEED
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.progress import counted
from testudo_sim.devices import devices


def cross(
    policies: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    episodes: int = 200,
    seed: int = HELD_OUT_SEED,
    json: Path | None = None,
) -> int:
    """Let the roles of policies meet: each as one role against each as the other, in the same held-out episodes.

    Prints who wins, returns, Elo ratings, and for each policy by which of the others it is exploited, and how much.
    Runs of `testudo train --against` play the role that they have learnt.

    Example:
        testudo cross runs/play runs/alone
        testudo cross runs/play runs/exploits_prey runs/exploits_predator --episodes 1000 --json cross.json

    Args:
        policies: training runs or exported policy files of one scenario with two roles.
        episodes: episodes of each meeting.
        seed: seed of the first episode; each further episode adds 1.
        json: file for the results.
    """
    check_output(json)
    if not policies:
        raise TestudoError("cross: found no policy; expected training runs or policy files")
    if not 1 <= episodes <= LAST_SEED - seed:
        raise TestudoError(f"--episodes: found {episodes}, expected 1 to {LAST_SEED - seed}")
    console = Console()
    console.print(devices().text)
    files = {str(path): policy_file(path) for path in policies}
    tested = {name: load_policy_under_test(file) for name, file in files.items()}
    # of a best response, which is never exported, the role that has learnt
    learnt = {name: role for name, file in files.items() if file.is_dir() and (role := load_config(file).role)}
    with counted(console, "meetings", len(files) ** 2) as done:
        table = cross_table(tested, learnt, episodes, seed, done)
    for shown in tables(table):
        console.print(shown)
    write_output(json, table.to_dict(), console)
    return 0


def tables(table: CrossTable) -> tuple[Table, Table]:
    """Return the table of meetings, and that of ratings and of who exploits whom."""
    (first, second), (one, other) = table.sides, table.roles
    met = Table(f"{table.scenario}: {one} below, {other} beside", *second, title=f"won by {one}; mean return of {one}")
    for name in first:
        met.add_row(name, *(_cell(table.meetings[name, opponent]) for opponent in second))
    rated = Table("policy", "role", "Elo", "exploited: more return for the best opponent here")
    for side, (role, ratings) in enumerate(zip(table.roles, table.ratings, strict=True)):
        for name, rating in sorted(ratings.items(), key=lambda pair: -pair[1]):
            found = table.exploited(name, side)
            rated.add_row(name, role, f"{rating:.0f}", "" if found is None else f"{found[0]:.2f}, by {found[1]}")
    return met, rated


def _cell(met: Meeting) -> str:
    return f"{met.won:.3f}; {met.returns[0]:.2f} ± {2 * met.errors[0]:.2f}"
