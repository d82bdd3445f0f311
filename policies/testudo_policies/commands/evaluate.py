"""`testudo evaluate`: held-out episodes, with contacts counted at every control tick."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, Evaluation, evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.learning.progress import counted
from testudo_sim.devices import devices
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.starts import load_starts


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional],
    *,
    episodes: int = 1000,
    team_size: tuple[int, ...] = (),
    seed: int = HELD_OUT_SEED,
    shield: bool = True,
    starts: Path | None = None,
    physics: Annotated[PhysicsChoice, tyro.conf.arg(name="")] = PhysicsChoice(),  # noqa: B008
    json: Path | None = None,
) -> int:
    """Evaluate a policy on held-out episodes: success, contacts, separation, interventions, deadlocks.

    With --starts the episodes start at an incident of a real run, and exit status 1 means that robots touched again:
    a regression test for every failed run.

    Example:
        testudo evaluate policy.onnx --episodes 10000
        testudo evaluate runs/mine --team-size 2 4 6 8 --json evaluation.json
        testudo evaluate policy.onnx --physics mjx --episodes 200
        testudo evaluate policy.onnx --starts incident.yaml --episodes 200

    Args:
        policy: an exported policy.onnx, or the folder of a training run.
        episodes: number of episodes for each team size.
        team_size: team sizes; default: that of the training.
        seed: seed of the first episode; each further episode adds 1.
        shield: `--no-shield` is the negative control: nominal commands pass without the shield.
        starts: start file from `testudo incident --save-scenario`; every episode starts from it.
        physics: physics tier of the simulation.
        json: file for the results.
    """
    console = Console()
    check_output(json)
    console.print(devices().text)
    tested = load_policy_under_test(policy)
    distribution = None if starts is None else load_starts(starts)
    sizes = team_size or (tested.team_size if distribution is None else distribution.size,)
    # build all before the first run, so that an invalid team size is refused before any work
    environments = {
        size: tested.environment(size, shielded=shield, physics=physics, starts=distribution) for size in sizes
    }
    results = []
    for size, environment in environments.items():
        with counted(console, f"{size} robots", episodes) as done:
            results.append(evaluate_policy(environment, tested.policy, tested.memory, episodes, seed, done))
    console.print(evaluation_table(results, f"{environment.scenario.name} on {environment.team.physics.name}"))
    write_output(json, [result.to_dict() for result in results], console)
    episodes_with_contact = sum(result.episodes_with_contact for result in results)
    if distribution is None or not episodes_with_contact:
        return 0
    console.print(f"[red]failed:[/] {episodes_with_contact} episodes from {starts} with a contact", highlight=False)
    return 1


def evaluation_table(results: list[Evaluation], title: str) -> Table:
    """Return the table of evaluations, a column for each team size."""
    table = Table(title, *(f"{result.team_size} robots" for result in results))
    rows = {
        "episodes": lambda r: f"{r.episodes:,}",
        "success": lambda r: f"{r.success:.4f}",
        "  95 % interval": lambda r: f"{r.success_low:.4f} to {r.success_high:.4f}",
        "contacts": lambda r: f"{r.contacts}",
        "episodes with a contact": lambda r: f"{r.episodes_with_contact}",
        r"least separation \[m]": lambda r: f"{r.minimum_separation_m:.3f}",
        "share of ticks the shield acts": lambda r: f"{r.intervention_rate:.2f}",
        "deadlocks": lambda r: f"{r.deadlocks}",
        r"median time to success \[s]": lambda r: f"{r.time_to_success_s:.1f}",
        "episodes with crossing paths": lambda r: f"{r.crossing_share:.2f}",
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(result) for result in results))
    return table
