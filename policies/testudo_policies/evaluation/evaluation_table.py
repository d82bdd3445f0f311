"""The table of evaluations on the terminal."""

import math
from collections.abc import Callable, Mapping

from rich.table import Table

from testudo_policies.evaluation.baselines import ORCA
from testudo_policies.evaluation.evaluation import Evaluation

DRIVING: Mapping[str, Callable[[Evaluation], str]] = {
    "episodes with a contact": lambda r: f"{r.episodes_with_contact}",
    r"least separation \[m]": lambda r: f"{r.minimum_separation_m:.3f}",
    "share of ticks the shield acts": lambda r: f"{r.intervention_rate:.2f}",
    "deadlocks": lambda r: f"{r.deadlocks}",
    r"median time to success \[s]": lambda r: f"{r.time_to_success_s:.1f}",
}
"""How robots drove: names of rows, and their cells."""
_LAYERS = {"none": "no shield", "1": "layer 1", "all": "all layers"}


def column(size: int, layers: str, policy: str, several_layers: bool, several: bool) -> str:
    """Return the head of a column."""
    words = [f"{size} robots", *([_LAYERS[layers]] if several_layers else []), *([policy] if several else [])]
    return ", ".join(words)


def evaluation_table(results: list[Evaluation], title: str) -> Table:
    """Return the table of evaluations: a column for each policy of a team, or for each team size and set of layers."""
    policies = len({result.policy for result in results}) > 1
    layers = len({result.layers for result in results}) > 1
    if policies:
        shielded = f", {_LAYERS['all']}" if results[0].layers == "all" else ""
        title = f"{title}, {results[0].team_size} robots{shielded}"
        heads = [f"{r.policy}, {_LAYERS['none']}" if r.policy == ORCA else r.policy for r in results]
    else:
        heads = [column(r.team_size, r.layers, r.policy, layers, several=False) for r in results]
    table = Table(title, *heads)
    rows = {
        "episodes": lambda r: f"{r.episodes:,}",
        "success": lambda r: f"{r.success:.4f}" if r.has_success else "none",
        "  95 % interval": lambda r: f"{r.success_low:.4f} to {r.success_high:.4f}" if r.has_success else "",
        "return": lambda r: f"{r.mean_return:.2f}",
        "  interquartile mean": lambda r: _iqm(r, f"{r.iqm_return:.2f}"),
        "  its 95 % interval": lambda r: _iqm(r, f"{r.iqm_return_low:.2f} to {r.iqm_return_high:.2f}"),
        **{name: lambda r, name=name: f"{r.metrics[name]:.2f}" for name in results[0].metrics},
        "chance that a robot fails": lambda r: f"{r.failures:.2f}",
        "contacts": lambda r: f"{r.contacts}",
        **DRIVING,
        "episodes with crossing paths": lambda r: f"{r.crossing_share:.2f}",
    }
    if all(math.isnan(result.iqm_return) for result in results):
        rows.pop("  interquartile mean")
        rows.pop("  its 95 % interval")
    if not any(result.failures for result in results):
        rows.pop("chance that a robot fails")
    if not any(result.crossing_share for result in results):  # as in tasks whose robots have no goals
        rows.pop("episodes with crossing paths")
    if any(result.no_plan for result in results):
        rows["episodes without a plan"] = _plans
    for name, cell in rows.items():
        table.add_row(name, *("" if result.absent else cell(result) for result in results))
    if any(result.absent for result in results):
        table.add_row("does not apply", *(result.absent for result in results))
    return table


def _iqm(result: Evaluation, text: str) -> str:
    return "" if math.isnan(result.iqm_return) else text


def _plans(result: Evaluation) -> str:
    if not result.no_plan:
        return ""
    return f"{result.without_plan}: {result.no_plan}" if result.without_plan else "0"
