"""`testudo evaluate`: held-out episodes, with contacts counted at every simulation step."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, Evaluation, evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.learning.progress import counted
from testudo_sim.deployed_environment import STRIDE
from testudo_sim.devices import devices
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.starts import load_starts

_LAYERS = {"none": "no shield", "1": "layer 1", "all": "all layers"}
_COUNTED = (
    "Contacts are counted at every simulation step: once a control tick with layer 1 alone, "
    f"{STRIDE} times a control tick with all layers."
)


def evaluate(
    policy: Annotated[Path, tyro.conf.Positional],
    *,
    episodes: int = 1000,
    team_size: tuple[int, ...] = (),
    seed: int = HELD_OUT_SEED,
    layers: Literal["1", "all"] = "1",
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
        testudo evaluate policy.onnx --layers all --team-size 4 8
        testudo evaluate policy.onnx --physics mjx --episodes 200
        testudo evaluate policy.onnx --starts incident.yaml --episodes 200

    Args:
        policy: an exported policy.onnx, or the folder of a training run.
        episodes: number of episodes for each team size.
        team_size: team sizes; default: that of the training.
        seed: seed of the first episode; each further episode adds 1.
        layers: `all` runs the same episodes with layer 1 alone and as deployed, with all layers.
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
    if layers == "all" and not shield:
        raise TestudoError("--layers all: found it with --no-shield, which turns all layers off; give one of the two")
    # build all before the first run, so that an invalid team size is refused before any work
    environments = [
        tested.environment(size, shielded=shield, all_layers=deployed, physics=physics, starts=distribution)
        for size in sizes
        for deployed in ((False, True) if layers == "all" else (False,))
    ]
    results = []
    for environment in environments:
        with counted(console, _column(environment.team.size, environment.layers, layers == "all"), episodes) as done:
            results.append(evaluate_policy(environment, tested.policy, tested.memory, episodes, seed, done))
    _show(console, results, f"{environment.scenario.name} on {environment.team.physics.name}")
    write_output(json, [result.to_dict() for result in results], console)
    episodes_with_contact = sum(result.episodes_with_contact for result in results)
    if distribution is None or not episodes_with_contact:
        return 0
    console.print(f"[red]failed:[/] {episodes_with_contact} episodes from {starts} with a contact", highlight=False)
    return 1


def _show(console: Console, results: list[Evaluation], title: str) -> None:
    console.print(evaluation_table(results, title))
    if any(result.layers == "all" for result in results):
        console.print(_COUNTED, highlight=False)


def _column(size: int, layers: str, several: bool) -> str:
    return f"{size} robots, {_LAYERS[layers]}" if several else f"{size} robots"


def evaluation_table(results: list[Evaluation], title: str) -> Table:
    """Return the table of evaluations, a column for each team size, and for each set of layers if there are several."""
    several = len({result.layers for result in results}) > 1
    table = Table(title, *(_column(result.team_size, result.layers, several) for result in results))
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
