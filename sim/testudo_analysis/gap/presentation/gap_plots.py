"""Plots of the gap: errors over the horizon, over the state space and over time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import NullLocator

from testudo_analysis.gap.error_map import StateErrors
from testudo_analysis.gap.gap_report import ALL, DEAD_RECKONING, IDENTIFIED, NOMINAL, TypeGap
from testudo_analysis.gap.presentation.top_view import ReplayedCourse
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_analysis.report.plot_style import FAINT, INK, PlotImage, drawing, legend_above, picture, robot_colour

MODEL_COLOURS = {DEAD_RECKONING: "#9aa5b1", NOMINAL: "#2f6fb2", IDENTIFIED: "#2a9075"}
_HEAT = LinearSegmentedColormap.from_list("heat", ["#eef4f9", "#f3c892", "#c2483d"])
_EXCERPT_S = 24.0


def horizon_plot(gap: TypeGap, horizons_s: Sequence[float]) -> PlotImage:
    """Return median and p90 over the horizon, by channel and parameter set, all robots together."""
    channels = gap.channels
    columns = min(3, len(channels))
    lines = -(-len(channels) // columns)
    with drawing(9.2, 2.45 * lines + 0.3) as figure:
        panels = figure.subplots(lines, columns, squeeze=False)
        for axes, channel in zip(panels.flat, channels, strict=False):
            unit, factor = SHOWN_UNITS[next(row.unit for row in gap.rows if row.channel == channel)]
            for model in gap.models:
                rows = [row for h in horizons_s if (row := gap.find(model, channel, h))]
                x, colour = [row.horizon_s for row in rows], MODEL_COLOURS[model]
                figures = [(row.median.low, row.median.high, row.median.value, row.p90.value) for row in rows]
                low, high, median, p90 = factor * np.reshape(figures, (-1, 4)).T
                axes.fill_between(x, low, high, color=colour, alpha=0.3, linewidth=0)
                axes.plot(x, median, color=colour, marker="o", markersize=3, label=f"{model}, median")
                axes.plot(x, p90, color=colour, linewidth=1.0, linestyle=(0, (3, 2)), label=f"{model}, p90")
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticks(horizons_s, [f"{horizon:g}" for horizon in horizons_s])
            axes.set(xlabel="horizon [s]", ylabel=f"error [{unit}]", title=channel.capitalize())
            axes.set_ylim(bottom=0)
        for axes in list(panels.flat)[len(channels) :]:
            axes.set_visible(False)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        row = gap.find(gap.best, "position", horizons_s[-1])
        result = f"; {gap.best}: {row.median.value * 1e3:.1f} mm after {horizons_s[-1]:g} s" if row else ""
        return picture(figure, f"Open-loop error over the horizon by channel{result}.")


def robots_plot(gap: TypeGap, horizons_s: Sequence[float]) -> PlotImage:
    """Return the position error of each robot with its interval, after the longest horizon, by parameter set."""
    horizon = next((h for h in reversed(horizons_s) if gap.find(NOMINAL, "position", h)), horizons_s[0])
    names = [*gap.robots, ALL] if len(gap.robots) > 1 else list(gap.robots)
    with drawing(9.2, 0.42 * len(names) + 1.1) as figure:
        axes = figure.subplots()
        for k, model in enumerate(gap.models):
            rows = [gap.find(model, "position", horizon, name) for name in names]
            y = np.arange(len(names)) + 0.22 * (k - (len(gap.models) - 1) / 2)
            for at, row in zip(y, rows, strict=True):
                if row is None:
                    continue
                median, p90 = row.median, row.p90
                colour, label = MODEL_COLOURS[model], model if at == y[0] else None
                axes.plot([1e3 * median.low, 1e3 * median.high], [at, at], color=colour, linewidth=3)
                axes.plot([1e3 * p90.low, 1e3 * p90.high], [at, at], color=colour, linewidth=3, alpha=0.4)
                axes.plot(1e3 * median.value, at, "o", color=colour, markersize=4.5, label=label)
                axes.plot(1e3 * p90.value, at, "o", color="white", markeredgecolor=colour, markersize=4.5)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, max(axes.get_xlim()[1], 1e-3))
        axes.set(xlabel=f"position error after {horizon:g} s [mm]: median (filled) and p90 (open), 95 % intervals")
        axes.grid(visible=False, axis="y")
        legend_above(axes)
        return picture(figure, f"Position error after {horizon:g} s by robot and parameter set.")


def state_plot(gap: TypeGap) -> PlotImage:
    """Return the position error over speed and turn rate, and along each axis."""
    models = [model for model in gap.models if model in gap.state]
    top = max((float(np.nanmax(s.grid)) for s in gap.state.values() if np.isfinite(s.grid).any()), default=1e-3)
    with drawing(9.2, 2.9 + 2.3) as figure:
        upper, lower = np.asarray(figure.subfigures(2, 1, height_ratios=(2.9, 2.3)), object)
        for axes, model in zip(upper.subplots(1, len(models), squeeze=False)[0], models, strict=True):
            state = gap.state[model]
            speed, turn = state.curves[0].axis, state.curves[1].axis
            axes.imshow(state.grid * 1e3, origin="lower", aspect="auto", cmap=_HEAT, vmin=0, vmax=top * 1e3)
            for row, column in np.argwhere(np.isfinite(state.grid)):
                value = state.grid[row, column]
                colour = "white" if value > 0.75 * top else INK
                axes.text(column, row, f"{value * 1e3:.1f}", ha="center", va="center", fontsize=7.5, color=colour)
            edges = [f"{edge:.2g}" for edge in turn.edges]
            axes.set_xticks(np.arange(-0.5, len(turn.words)), edges)
            axes.set_yticks(np.arange(-0.5, len(speed.words)), [f"{edge:.2g}" for edge in speed.edges])
            axes.set(xlabel=f"turn rate [{turn.unit}]", ylabel=f"speed [{speed.unit}]")
            axes.grid(visible=False)
            axes.set_title(f"{model}: median [mm] after {gap.state_horizon_s:g} s")
        panels = lower.subplots(1, 3, sharey=True)
        for axes, k in zip(panels, range(3), strict=True):
            for model in models:
                _curve(axes, gap.state[model], k, MODEL_COLOURS[model], model)
        highest = max(
            (found.value for s in gap.state.values() for c in s.curves for found in c.medians if found), default=1e-3
        )
        panels[0].set_ylim(0, 1.4e3 * highest)
        panels[0].set_ylabel("median [mm]")
        legend_above(panels[-1])
        return picture(
            figure, f"Median position error after {gap.state_horizon_s:g} s over speed, turn rate and acceleration."
        )


def excerpt_plot(courses: Sequence[ReplayedCourse]) -> PlotImage:
    """Return the path of each robot with replayed pieces, in the stretch of largest deviation."""
    columns = min(3, len(courses))
    lines = -(-len(courses) // columns)
    with drawing(9.2, 2.9 * lines) as figure:
        panels = figure.subplots(lines, columns, squeeze=False)
        for index, (axes, course) in enumerate(zip(panels.flat, courses, strict=False)):
            # samples of the stretch with the largest deviation of the replayed course
            off = np.nan_to_num(np.linalg.norm((course.replayed - course.real)[:, :-1], axis=1))
            size = min(round(_EXCERPT_S / (course.time_s[1] - course.time_s[0])), len(off))
            sums = np.convolve(off, np.ones(size), mode="valid")
            begin = int(np.argmax(sums))
            end = begin + size
            part = slice(begin, end)
            real, made = course.real[part], course.replayed[part].copy()
            made = np.insert(made, np.flatnonzero(course.restart[part]), np.nan, axis=0)
            axes.plot(real[:, 0], real[:, 1], color=robot_colour(index), linewidth=4.5, alpha=0.35)
            axes.plot(made[:, 0], made[:, 1], color=INK, linewidth=1.0)
            at = np.flatnonzero(course.restart[part])
            axes.plot(real[at, 0], real[at, 1], "o", color=INK, markersize=2.4)
            axes.set_title(f"{course.robot}, {course.time_s[begin]:.0f} to {course.time_s[end - 1]:.0f} s")
            axes.set_aspect("equal", adjustable="datalim")
        for axes in list(panels.flat)[len(courses) :]:
            axes.set_visible(False)
        for row in panels:
            row[0].set_ylabel("y [m]")
        return picture(
            figure, "Real paths (broad) and replayed pieces of two seconds (thin), where the deviation is largest."
        )


def paths_plot(courses: Sequence[ReplayedCourse]) -> PlotImage:
    """Return all real paths from above, in space also their heights over time."""
    points = np.concatenate([course.real[:, :2] for course in courses])
    size = np.nanmax(points, axis=0) - np.nanmin(points, axis=0)
    high, flies = float(np.clip(8.4 * size[1] / max(size[0], 0.1), 3.0, 6.5)), courses[0].real.shape[1] > 3
    with drawing(9.2, high + 1.8 * flies) as figure:
        axes, *lower = figure.subplots(1 + flies, 1, squeeze=False, height_ratios=[high, 1.8][: 1 + flies])[:, 0]
        for index, course in enumerate(courses):
            x, y = course.real[:, 0], course.real[:, 1]
            axes.plot(x, y, color=robot_colour(index), linewidth=0.9, label=course.robot)
        axes.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
        legend_above(axes)
        for heights in lower:
            for index, course in enumerate(courses):
                heights.plot(course.time_s, course.real[:, 2], color=robot_colour(index), linewidth=0.9)
            heights.set(xlabel="time [s]", ylabel="z [m]")
            heights.margins(x=0)
        rest = ", and their heights." if flies else "."
        return picture(figure, f"Paths of {len(courses)} robots from above" + rest)


def time_plot(
    robots: Sequence[str], times_s: Sequence[np.ndarray], errors: Sequence[dict[str, np.ndarray]], horizon_s: float
) -> PlotImage:
    """Return the error of each channel over the run, robot by robot.

    ``times_s`` (S,) and signed ``errors``, (S,) by channel, are those of each robot.
    """
    units = {"along": "m", "across": "m", "up": "m", "yaw": "rad", "speed": "m/s"}
    channels = [(name, unit) for name, unit in units.items() if name in errors[0]]
    with drawing(9.2, 1.45 * len(channels) + 0.6) as figure:
        panels = figure.subplots(len(channels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (channel, unit) in zip(panels, channels, strict=True):
            shown, factor = SHOWN_UNITS[unit]
            sizes = []
            for index, (name, time, own) in enumerate(zip(robots, times_s, errors, strict=True)):
                t, low, high = _envelope(time, own[channel] * factor)
                axes.fill_between(t, low, high, color=robot_colour(index), alpha=0.5, linewidth=0, label=name)
                sizes.append(np.nanpercentile(np.abs(own[channel] * factor), 99.5))
            axes.set_ylabel(f"{channel} [{shown}]")
            room = max(1.25 * max(sizes), 1e-3)
            axes.set_ylim(-room, room)
        panels[-1].set(xlabel="time of the start [s]")
        panels[-1].margins(x=0)
        panels[0].set_title(f"Predicted less real after {horizon_s:g} s")
        legend_above(panels[0])
        return picture(figure, f"Signed error after {horizon_s:g} s over the run, by channel and robot.")


def _curve(axes: Axes, state: StateErrors, index: int, colour: str, label: str) -> None:
    curve = state.curves[index]
    for k, found in enumerate(curve.medians):
        if found is None:
            continue
        left, right = curve.axis.edges[k : k + 2]
        axes.fill_between([left, right], 1e3 * found.low, 1e3 * found.high, color=colour, alpha=0.25, linewidth=0)
        axes.plot([left, right], [1e3 * found.value] * 2, color=colour, linewidth=1.8, label=label or None)
        label = ""
    axes.set_xlabel(f"{curve.axis.name} [{curve.axis.unit}]")
    axes.set_title(curve.axis.name.capitalize(), color=FAINT)


def _envelope(times: np.ndarray, values: np.ndarray, bins: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, 10th and 90th percentile in even bins; NaN in empty bins."""
    edges = np.linspace(times[0], times[-1] + 1e-9, bins + 1)
    low, high = np.full(bins, np.nan), np.full(bins, np.nan)
    cuts = np.searchsorted(times, edges)
    room = 0.004 * float(np.ptp(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
    for k in range(bins):
        part = values[cuts[k] : cuts[k + 1]]
        part = part[np.isfinite(part)]
        if len(part):
            low[k], high[k] = np.percentile(part, (10, 90)) + np.array([-room, room])
    return 0.5 * (edges[1:] + edges[:-1]), low, high
