"""The picture of the study: learning curves of all arms, and the cost of one robot's shield against team size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from testudo_analysis.report.plot_style import BAD, FAINT, GOOD, INK, WARN, PlotImage, drawing, picture
from testudo_bench.learning.study_arms import ARMS, Budget, Run, curve
from testudo_bench.learning.team_cost import Cost

_LOOKS = dict(zip(ARMS, ((GOOD, "-"), ("#2f6fb2", "-"), (BAD, "-"), (WARN, (0, (4, 2)))), strict=True))
_PANELS = (
    ("success", "Success without a contact", "episodes"),
    ("touched", "Episodes with a contact", "episodes"),
    ("time_to_goal_s", "Mean time to goal, successes", "seconds"),
)


def study_plot(budget: Budget, runs: Sequence[Run], costs: Sequence[Cost]) -> PlotImage:
    """Return the picture; lines are medians and bands the range of the seeds."""
    with drawing(8.0, 5.0) as figure:
        panels = list(figure.subplots(2, 2).flat)
        for axes, (field, title, label) in zip(panels, _PANELS, strict=False):
            _curves(axes, budget, runs, field)
            axes.set(title=title, ylabel=label, xlabel="decisions of a team")
            if label == "episodes":
                axes.set_ylim(0, 1.02)
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        _costs(panels[-1], costs)
        _legend(figure, panels[0])
        return picture(figure, "Learning curves with and without the shield, and what the shield costs by team size.")


def _curves(axes: Axes, budget: Budget, runs: Sequence[Run], field: str) -> None:
    for arm, (colour, dashes) in _LOOKS.items():
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


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
