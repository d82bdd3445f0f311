"""Tables and plot of the shield study: results of each arm, and cost by team size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from testudo_analysis.report.plot_style import BAD, FAINT, GOOD, INK, WARN, PlotImage, drawing, picture
from testudo_bench.learning.study_runs import ARMS, SOLVED, Budget, Run, StudyArm, curve, has_flattened, solved_at
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
"""Short names, so that the tables fit a terminal; `LEGEND` explains them."""
LEGEND = (
    "success: share of held-out episodes that succeed without a contact, at the end and before training; contact: "
    "share with one; per hour: contacts per robot-hour; time s: mean time to goal of the successes; solved: decisions "
    f"from which success stays at {SOLVED:g}, and of how many seeds; median and range of the seeds"
)
COST_LEGEND = (
    "build, check: margins, policy contract and safety contract of all robots, and fleet admission; tick: layer 1 of "
    "one robot in NumPy; jit, M: compilation and million robot-ticks per second of the simulation; joint: one problem "
    "for all, solved by quadprog; extra: additional change of commands by separate shields, root mean square"
)
_FIELDS = ("success", "reached", "touched", "contacts_per_robot_hour", "time_to_goal_s", "interventions")


def summary(budget: Budget, runs: Sequence[Run], arm: StudyArm) -> dict[str, Any]:
    """Return median and range of an arm's seeds before and after training."""
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
    """Return the rows of the table in the order of `ARMS`; the row of an arm without runs is empty."""
    return [_row(summary(budget, runs, arm)) for arm in ARMS]


def cost_rows(costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """Return the rows of the cost table, by team size."""
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


_LINE_STYLES = dict(zip(ARMS, ((GOOD, "-"), ("#2f6fb2", "-"), (BAD, "-"), (WARN, (0, (4, 2)))), strict=True))
_PANELS = (
    ("success", "Success without a contact", "episodes"),
    ("touched", "Episodes with a contact", "episodes"),
    ("time_to_goal_s", "Mean time to goal, successes", "seconds"),
)


def study_plot(budget: Budget, runs: Sequence[Run], costs: Sequence[Cost]) -> PlotImage:
    """Return the plot; lines are medians and bands the range of the seeds."""
    with drawing(8.0, 5.0) as figure:
        panels = list(figure.subplots(2, 2).flat)
        for axes, (field, title, label) in zip(panels, _PANELS, strict=False):
            _curves(axes, budget, runs, field)
            axes.set(title=title, ylabel=label, xlabel="decisions of a team")
            if label == "episodes":
                axes.set_ylim(0, 1.02)
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        _costs(panels[-1], costs)
        handles, labels = panels[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return picture(figure, "Learning curves with and without the shield, and cost of the shield by team size.")


def _curves(axes: Axes, budget: Budget, runs: Sequence[Run], field: str) -> None:
    for arm, (colour, dashes) in _LINE_STYLES.items():
        updates, values = curve(runs, arm, field)
        if not updates or np.isnan(values).any():
            continue
        x = [budget.decisions(update) for update in updates]
        axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(
            x,
            np.median(values, axis=0),
            color=colour,
            linestyle=dashes,
            marker="o",
            markersize=2.5,
            label=f"shield: {arm.name}",
            linewidth=2.6 if arm is ARMS[0] else 1.3,
        )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e3:g} k" if value else "0"))
    axes.margins(x=0.01)


def _costs(axes: Axes, costs: Sequence[Cost]) -> None:
    chosen = sorted(costs, key=lambda cost: cost.team_size)
    sizes = [cost.team_size for cost in chosen]
    axes.set(title="Time for one tick, NumPy, one core", xlabel="robots", ylabel="µs")
    if not sizes:
        axes.annotate("not measured", (0.5, 0.5), xycoords="axes fraction", ha="center", color=FAINT)
        return
    axes.plot(
        sizes, [cost.robot_us for cost in chosen], color=GOOD, marker="o", markersize=3, label="one robot's own shield"
    )
    joint = [(cost.team_size, cost.joint_us) for cost in chosen if cost.joint_us is not None]
    if joint:
        axes.plot(
            *zip(*joint, strict=True),
            color=INK,
            marker="o",
            markersize=3,
            linestyle=(0, (4, 2)),
            label="one joint problem (quadprog)",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.legend(loc="upper left")
