"""The tables of the study: the end of each arm's curves, and cost against team size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from testudo_policies.shield_study.arms import ARMS, SOLVED, Arm, Budget, Run, curve, has_flattened, solved_at
from testudo_policies.shield_study.cost import Cost

COLUMNS = ("arm", "success before", "at the end", "episodes with contact", "contacts per robot-hour", "time to goal",
           f"decisions until {SOLVED:g} stays")
COST_COLUMNS = ("robots", "build", "check", "rows each", "one robot", "compile", "robot-ticks/s", "joint rows",
                "joint", "change", "joint change")
_FIELDS = ("success", "reached", "touched", "contacts_per_robot_hour", "time_to_goal_s", "interventions")


def summary(budget: Budget, runs: Sequence[Run], arm: Arm) -> dict[str, Any]:
    """Return the figures of an arm: median and range of its seeds before training and at its end."""
    updates, success = curve(runs, arm, "success")
    if not updates:
        return {"arm": arm.name, "seeds": 0}
    chosen = [run for run in runs if run.shielded == arm.trained_shielded]
    figures = {"arm": arm.name, "seeds": len(success), "before": _spread(success[:, 0]),
               "flattened": has_flattened(success),
               "solved_after_decisions": [at if at is None else budget.decisions(at)
                                          for at in solved_at(updates, success)],
               "training_contacts": _spread(np.array([run.training_contacts for run in chosen], float))}
    return figures | {name: _spread(curve(runs, arm, name)[1][:, -1]) for name in _FIELDS}


def rows(budget: Budget, runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Return the table's rows, in the order of `ARMS`; an arm without a run says so."""
    return [_row(summary(budget, runs, arm)) for arm in ARMS]


def cost_rows(costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """Return a row for each team size."""
    return [(str(cost.team_size), f"{cost.build_ms:.0f} ms", f"{cost.check_fleet_ms:.2f} ms",
             str(cost.rows_of_a_robot), f"{cost.robot_us:.0f} µs", f"{cost.compile_s:.1f} s",
             f"{cost.robot_ticks_per_s:,.0f}", str(cost.joint_rows),
             "" if cost.joint_us is None else f"{cost.joint_us:,.0f} µs", f"{cost.change_m_s:.4f} m/s",
             "" if cost.joint_change_m_s is None else f"{cost.joint_change_m_s:.4f} m/s")
            for cost in sorted(costs, key=lambda cost: cost.team_size)]


def _row(figures: dict[str, Any]) -> tuple[str, ...]:
    if not figures["seeds"]:
        return (figures["arm"], *[""] * (len(COLUMNS) - 1))
    solved = [at for at in figures["solved_after_decisions"] if at is not None]
    count = f"{len(solved)} of {figures['seeds']} seeds"
    when = "never" if not solved else f"{count}: {np.median(solved):,.0f}"
    return (figures["arm"], _shown(figures["before"], ".3f"), _shown(figures["success"], ".3f"),
            _shown(figures["touched"], ".3f"), _shown(figures["contacts_per_robot_hour"], ".1f"),
            _shown(figures["time_to_goal_s"], ".1f", " s"), when)


def _shown(spread: dict[str, float | None], form: str, unit: str = "") -> str:
    if spread["median"] is None:
        return ""
    return f"{spread['median']:{form}}{unit} ({spread['low']:{form}} to {spread['high']:{form}})"


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """Return median, least and largest of the finite values; None for all if there is none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return dict.fromkeys(("median", "low", "high"))
    return {"median": float(np.median(finite)), "low": float(finite.min()), "high": float(finite.max())}
