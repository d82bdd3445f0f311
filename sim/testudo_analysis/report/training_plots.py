"""Plots of training and of the gap."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from testudo_analysis.replay.gap_names import ALL_ROBOTS
from testudo_analysis.replay.open_loop import OpenLoopGap
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_analysis.report.plot_style import BAD, FAINT, GOOD, INK, PlotImage, drawing, picture, robot_colour

_CURVES = (
    ("train/success", "Episodes that end in success", "share", GOOD),
    ("train/return", "Return of an episode", "sum of rewards", "#2f6fb2"),
    ("shield/intervention_rate", "Ticks in which the shield acts", "share", "#d9822b"),
    ("train/contacts", "Contacts in an update", "pairs and ticks", BAD),
)
_SMOOTH_SHARE = 0.04  # width of the moving average, as a share of all updates
_GAP_PANELS = (("position", "Position"), ("yaw", "Yaw"), ("speed", "Speed"))


def training_plot(rows: Sequence[Mapping[str, float]]) -> PlotImage | None:
    """Return the learning curves of `metrics.jsonl`; None without known metrics."""
    curves = [curve for curve in _CURVES if any(curve[0] in row for row in rows)]
    if not curves or len(rows) < 2:
        return None
    lines = -(-len(curves) // 2)
    with drawing(9.2, 2.35 * lines) as figure:
        panels = figure.subplots(lines, 2, sharex=True, squeeze=False)
        for axes, (key, title, label, colour) in zip(panels.flat, curves, strict=False):
            used = [row for row in rows if key in row]
            x = np.array([row.get("decisions", k) for k, row in enumerate(used)], float)
            y = np.array([row[key] for row in used], float)
            axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.9)
            # moving average, with a shorter window at the ends
            half = int(_SMOOTH_SHARE * len(y) / 2)
            total = np.concatenate([[0.0], np.cumsum(y)])
            index = np.arange(len(y))
            first, end = np.maximum(index - half, 0), np.minimum(index + half + 1, len(y))
            axes.plot(x, (total[end] - total[first]) / (end - first), color=colour, clip_on=False)
            if not np.any(y):
                axes.annotate("none", (0.5, 0.5), xycoords="axes fraction", ha="center", color=FAINT)
            axes.set(title=title, ylabel=label)
            axes.set_ylim(*_limits(y, is_share=label == "share"))
            if label == "share":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.xaxis.set_major_formatter(FuncFormatter(_count))
            axes.margins(x=0)
        for axes in list(panels.flat)[len(curves) :]:
            axes.set_visible(False)
        for axes in panels[-1]:
            axes.set_xlabel("decisions of a team")
        last = {title: rows[-1].get(key) for key, title, _, _ in curves}
        text = ", ".join(f"{title.lower()} {value:.3g}" for title, value in last.items() if value)
        return picture(figure, f"Learning curves over the decisions taken; at the end {text}.")


def gap_plot(gap: OpenLoopGap) -> PlotImage:
    """Return the open-loop errors over the horizon, by robot."""
    panels = [(c, title) for c, title in _GAP_PANELS if c in gap.channels]
    robots = [robot for robot in gap.robots if robot != ALL_ROBOTS]
    with drawing(9.2, 2.9) as figure:
        all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (channel, title) in zip(all_axes, panels, strict=True):
            _gap_panel(axes, gap, channel, robots)
            axes.set_title(title)
        handles, labels = all_axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        row = gap.find("position", gap.horizons_s[-1])
        text = f"after {row.horizon_s:g} s {row.errors.median * 1e3:.1f} mm" if row else ""
        return picture(figure, f"Open-loop error by horizon; median position error {text}.")


def _gap_panel(axes: Axes, gap: OpenLoopGap, channel: str, robots: Sequence[str]) -> None:
    unit, factor = SHOWN_UNITS[next(row.unit for row in gap.rows if row.channel == channel)]

    def curve(robot: str, quantile: str) -> tuple[list[float], list[float]]:
        found = [row for h in gap.horizons_s if (row := gap.find(channel, h, robot))]
        values = [getattr(row.errors, quantile) * factor for row in found]
        return [row.horizon_s for row in found], values

    x, median = curve(ALL_ROBOTS, "median")
    _, high = curve(ALL_ROBOTS, "p90")
    axes.fill_between(x, median, high, color=FAINT, alpha=0.16, linewidth=0, label="median to p90")
    for index, robot in enumerate(robots):
        axes.plot(
            *curve(robot, "median"),
            color=robot_colour(index),
            marker="o",
            markersize=3,
            label=robot,
        )
    axes.plot(x, median, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="all, median")
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(gap.horizons_s, [f"{horizon:g}" for horizon in gap.horizons_s])
    axes.set(xlabel="horizon [s]", ylabel=f"error [{unit}]")
    axes.set_ylim(bottom=0)


def _limits(values: np.ndarray, *, is_share: bool) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    if is_share:
        return 0.0, 1.0 if high > 0.5 else max(1.15 * high, 0.05)
    if low >= 0:
        return 0.0, max(1.1 * high, 1.0)
    room = 0.06 * max(high - low, 1e-9)
    return low - room, high + room


def _count(value: float, _: int) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"
