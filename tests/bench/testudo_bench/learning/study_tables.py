"""The tables of the study: the end of each arm's curves, and cost against team size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from testudo_bench.learning.study_arms import ARMS, SOLVED, Budget, Run, StudyArm, curve, has_flattened, solved_at
from testudo_bench.learning.team_cost import Cost

COLUMNS = ("shield", "success", "contact", "per hour", "time s", "solved")
COST_COLUMNS = (
    "N",
    "build ms",
    "check ms",
    "rows each",
    "tick µs",
    "jit s",
    "M /s",
    "joint rows",
    "joint µs",
    "extra %",
)
"""Short, so that the tables fit a terminal; `LEGEND` says what they mean."""
LEGEND = (
    "success: share of held-out episodes that succeed without a contact, at the end and before training; contact: "
    "share with one; per hour: contacts per robot-hour; time s: mean time to goal of the successes; solved: decisions "
    f"from which success stays at {SOLVED:g}, and of how many seeds; median and range of the seeds"
)
COST_LEGEND = (
    "build, check: margins, contract and obligation of all robots, and the check of the fleet; tick: layer 1 of one "
    "robot in NumPy; jit, M: compilation and million robot-ticks per second of the simulation; joint: one problem for "
    "all, solved by quadprog; extra: what the robots' own shields change a command more than that, root mean square"
)
_FIELDS = ("success", "reached", "touched", "contacts_per_robot_hour", "time_to_goal_s", "interventions")


def summary(budget: Budget, runs: Sequence[Run], arm: StudyArm) -> dict[str, Any]:
    """Return the figures of an arm: median and range of its seeds before training and at its end."""
    updates, success = curve(runs, arm, "success")
    if not updates:
        return {"arm": arm.name, "seeds": 0}
    chosen = [run for run in runs if run.shielded == arm.trained_shielded]
    figures = {
        "arm": arm.name,
        "seeds": len(success),
        "before": _spread(success[:, 0]),
        "flattened": has_flattened(success),
        "solved_after_decisions": [at if at is None else budget.decisions(at) for at in solved_at(updates, success)],
        "training_contacts": _spread(np.array([run.training_contacts for run in chosen], float)),
    }
    return figures | {name: _spread(curve(runs, arm, name)[1][:, -1]) for name in _FIELDS}


def rows(budget: Budget, runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """Return the table's rows, in the order of `ARMS`; an arm without a run says so."""
    return [_row(summary(budget, runs, arm)) for arm in ARMS]


def cost_rows(costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """Return a row for each team size."""
    return [
        (
            str(cost.team_size),
            f"{cost.build_ms:.0f}",
            f"{cost.check_fleet_ms:.1f}",
            str(cost.rows_of_a_robot),
            f"{cost.robot_us:.0f}",
            f"{cost.compile_s:.1f}",
            f"{cost.robot_ticks_per_s / 1e6:.2f}",
            str(cost.joint_rows),
            "" if cost.joint_us is None else f"{cost.joint_us:.0f}",
            "" if cost.joint_change_m_s is None else f"{100 * (cost.change_m_s / cost.joint_change_m_s - 1):.1f}",
        )
        for cost in sorted(costs, key=lambda cost: cost.team_size)
    ]


def _row(figures: dict[str, Any]) -> tuple[str, ...]:
    if not figures["seeds"]:
        return (figures["arm"], *[""] * (len(COLUMNS) - 1))
    solved = [at for at in figures["solved_after_decisions"] if at is not None]
    when = "never" if not solved else f"{np.median(solved):.0f}\n{len(solved)} of {figures['seeds']}"
    success = _shown(figures["success"], ".3f") + f"\nfrom {figures['before']['median']:.3f}"
    return (
        figures["arm"],
        success,
        _shown(figures["touched"], ".2f"),
        _shown(figures["contacts_per_robot_hour"], ".0f"),
        _shown(figures["time_to_goal_s"], ".1f"),
        when,
    )


def _shown(spread: dict[str, float | None], form: str) -> str:
    if spread["median"] is None:
        return ""
    return f"{spread['median']:{form}}\n{spread['low']:{form}}-{spread['high']:{form}}"


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """Return median, least and largest of the finite values; None for all if there is none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return dict.fromkeys(("median", "low", "high"))
    return {"median": float(np.median(finite)), "low": float(finite.min()), "high": float(finite.max())}
