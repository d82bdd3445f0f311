"""Old against new policy on the same episodes, and whether the new one may replace the old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from testudo_policies.evaluation.evaluation import Evaluation

SLOWER = 1.1
"""A policy that needs more than so many times the old one's median time is worse."""


@dataclass(frozen=True)
class Comparison:
    """Both policies on the same held-out episodes of one world."""

    name: str
    old: Evaluation
    new: Evaluation

    def complaints(self) -> tuple[str, ...]:
        """Return in what the new policy is worse; nothing if it is not.

        Success below the old one's 95 % interval, contacts in more episodes than the upper 95 % bound of the old one's
        share, or a median time to success more than a tenth longer.
        """
        old, new, found = self.old, self.new, []
        if new.success < old.success_low:
            found.append(
                f"{self.name}: success {new.success:.3f} is below the old policy's interval "
                f"({old.success_low:.3f} to {old.success_high:.3f})"
            )
        if new.episodes_with_contact / new.episodes > old.contact_rate_high:
            found.append(
                f"{self.name}: contacts in {new.episodes_with_contact} of {new.episodes} episodes, the old "
                f"policy had {old.episodes_with_contact}"
            )
        if new.time_to_success_s > SLOWER * old.time_to_success_s:  # false where one of them is not a number
            found.append(
                f"{self.name}: median time to success {new.time_to_success_s:.1f} s, the old policy needed "
                f"{old.time_to_success_s:.1f} s"
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "name": self.name,
            "old": self.old.to_dict(),
            "new": self.new.to_dict(),
            "complaints": list(self.complaints()),
        }


def comparison_table(comparisons: tuple[Comparison, ...]) -> Table:
    """Return the table of old against new."""
    table = Table(title="Old policy against new, on the same held-out episodes")
    table.add_column("")
    for comparison in comparisons:
        table.add_column(f"old, {comparison.name}")
        table.add_column(f"new, {comparison.name}")
    for name, cell in _ROWS.items():
        table.add_row(name, *(cell(result) for item in comparisons for result in (item.old, item.new)))
    return table


def arrivals_table(values: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the table of old against new in the counterfactual of the run."""
    table = Table("", *values, title="Counterfactual of the run: on from its own moments, all layers of the shield")
    rows: Mapping[str, Any] = {
        "worlds": lambda one: f"{one['worlds']}",
        "arrived": lambda one: f"{one['arrived'] / one['worlds']:.3f}",
        "  Wilson interval, 95 %": lambda one: f"{one['low']:.3f} to {one['high']:.3f}",
        "worlds with a contact": lambda one: f"{one['touched']}",
        r"median time \[s]": lambda one: "" if one["arrival_s"] is None else f"{one['arrival_s']:.1f}",
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(one) for one in values.values()))
    return table


_ROWS: Mapping[str, Any] = {
    "episodes": lambda r: f"{r.episodes:,}",
    "success": lambda r: f"{r.success:.3f}",
    "  Wilson interval, 95 %": lambda r: f"{r.success_low:.3f} to {r.success_high:.3f}",
    "episodes with a contact": lambda r: f"{r.episodes_with_contact}",
    r"least separation \[m]": lambda r: f"{r.minimum_separation_m:.3f}",
    "share of ticks the shield acts": lambda r: f"{r.intervention_rate:.2f}",
    "deadlocks": lambda r: f"{r.deadlocks}",
    r"median time to success \[s]": lambda r: f"{r.time_to_success_s:.1f}",
}
