"""Plots of a fleet run: paths, separations and shield activity."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Patch, Rectangle

from testudo_analysis.report.fleet_summary import control_point_distances, pair_distances, time_span
from testudo_analysis.report.plot_style import (
    BAD,
    FAINT,
    INK,
    LIGHT,
    WARN,
    PlotImage,
    drawing,
    legend_above,
    picture,
    robot_colour,
)
from testudo_analysis.report.report_data import FleetSection
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.shield.arena import Arena, distance_to
from testudo_runs.run_reader import ticks_in_order

_MARK_EVERY_S = 2.0
_GAP_S = 0.5  # longer gaps between samples are left open in lines
_LABEL_SHARE = 0.13  # height of a line of text as a share of the axes' height
_STATUS_COLOURS = {"passed": "#dbe7ef", "projected": WARN, "braked": BAD}


def trajectory_plot(section: FleetSection) -> PlotImage:
    """Return the paths from above, with starts, goals and final poses; for drones also from the side and heights."""
    robots = len(section.run.robots)
    if section.contract.dimension == 3:
        return _paths_in_space(section)
    arena = section.contract.arena
    if arena is not None:
        low, high = np.array(arena.low_world), np.array(arena.high_world)
    else:
        places = [section.run.located(name).position_world for name in section.run.robots]
        low = np.min([place.min(axis=0) for place in places], axis=0)
        high = np.max([place.max(axis=0) for place in places], axis=0)
    width, height = max(float(high[0] - low[0]), 0.5), max(float(high[1] - low[1]), 0.5)
    with drawing(9.2, min(7.0, max(3.2, 8.4 * height / width + 0.6))) as figure:
        _draw_view(figure.subplots(), section, (0, 1))
        return picture(
            figure,
            f"Paths of {robots} robots from above: circles are starts, crosses are goals, "
            "discs are where the robots ended.",
        )


def _paths_in_space(section: FleetSection) -> PlotImage:
    run = section.run
    begin, end = time_span(run)
    with drawing(9.2, 4.9) as figure:
        above, side, heights = figure.subplot_mosaic(
            [["above", "side"], ["above", "heights"]], height_ratios=(1.5, 1)
        ).values()
        _draw_view(above, section, (0, 1))
        above.set_title("From above")
        _draw_view(side, section, (0, 2))
        side.set_title("From the side")
        for index, name in enumerate(run.robots):
            track = run.located(name)
            heights.plot(track.stamp_s - begin, track.position_world[:, 2], color=robot_colour(index), linewidth=1.6)
        heights.set(xlabel="time [s]", ylabel="z [m]", xlim=(0, max(end - begin, 1e-3)))
        if section.contract.arena is not None:
            heights.set_ylim(section.contract.arena.low_world[2], section.contract.arena.high_world[2])
        heights.set_title("Height over time")
        return picture(
            figure,
            f"Paths of {len(run.robots)} robots from above and from the side, and their heights over time: circles are "
            "starts, crosses are goals, discs are where the robots ended.",
        )


def separation_plot(section: FleetSection) -> PlotImage | None:
    """Return distances over time with their limits; None for a single robot."""
    run, contract = section.run, section.contract
    times, distances = pair_distances(run)
    if not distances:
        return None
    begin, end = time_span(run)
    contact = sum(sorted(r.spec.body_radius_m for r in run.fleet.robots)[-2:])
    with drawing(9.2, 4.4) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        lines = [_with_gaps(times - begin, values) for values in distances.values()]
        _draw_distances(upper, lines, "centres of two robots", contact, "contact", BAD)
        upper.set_title("Distance of centres")
        known = control_point_distances(run, contract.shield.height_ratio)
        lines = [_with_gaps(stamps - begin, values) for stamps, values in known]
        if lines:
            _draw_distances(
                lower, lines, "control points of two robots", contract.shield.separation_m,
                "kept apart by the shield", WARN,
            )  # fmt: skip
        less = "heights counting less" if contract.shield.height_ratio > 1 else "where a robot would come to rest"
        lower.set_title(f"Distance of control points ({less})")
        lower.set(xlabel="time [s]", xlim=(0, max(end - begin, 1e-3)))
        least = min(float(values.min()) for values in distances.values())
        return picture(
            figure,
            f"Distance of every pair over time: least distance of centres {least:.3f} m, contact at {contact:.3f} m.",
        )


def shield_plot(section: FleetSection) -> PlotImage:
    """Return the shield's activity over time by robot."""
    run = section.run
    names = [name for name in run.robots if run.ticks[name]]
    begin, end = time_span(run)
    most = max((t.change_m_s for name in names for t in run.ticks[name]), default=0.0) * 1e3
    with drawing(9.2, 0.75 * len(names) + 0.85) as figure:
        panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
        for axes, name in zip(panels, names, strict=True):
            colour = robot_colour(run.robots.index(name))
            _draw_activity(axes, ticks_in_order(run.ticks[name]), begin, max(most, 1.0))
            axes.set_ylabel(name, rotation=0, ha="right", va="center", color=colour, weight="bold")
        panels[-1].set(xlabel="time [s]", xlim=(0, max(end - begin, 1e-3)))
        panels[0].set_title("Change of the command by the shield [mm/s]")
        keys = [Patch(color=colour, label=name) for name, colour in _STATUS_COLOURS.items()]
        panels[0].legend(handles=keys, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), handlelength=1.0)
        count = sum(t.status == "projected" for name in names for t in run.ticks[name])
        total = sum(len(run.ticks[name]) for name in names)
        return picture(
            figure,
            f"Shield over time: it changed {count} of {total} commands of {len(names)} robots.",
        )


def _draw_view(axes: Axes, section: FleetSection, view: tuple[int, int]) -> None:
    """Draw arena and paths in two axes: (0, 1) is from above, (0, 2) from the side."""
    arena = section.contract.arena
    if arena is not None:
        low, high = ((side[view[0]], side[view[1]]) for side in (arena.low_world, arena.high_world))
        box = (high[0] - low[0], high[1] - low[1])
        axes.add_patch(Rectangle(low, *box, fill=False, edgecolor=FAINT, lw=1.4))
        axes.set_xlim(low[0] - 0.05, high[0] + 0.05)
        axes.set_ylim(low[1] - 0.05, high[1] + 0.05)
        if view == (0, 1):
            _draw_obstacles(axes, arena)
    for index, name in enumerate(section.run.robots):
        _draw_path(axes, section, name, robot_colour(index), view)
    axes.set(xlabel="x [m]", ylabel=f"{'xyz'[view[1]]} [m]", aspect="equal")
    axes.spines[:].set_visible(arena is None)


def _draw_obstacles(axes: Axes, arena: Arena) -> None:
    """Fill the area of obstacles, from above."""
    x, y = (np.linspace(low, high, 400) for low, high in zip(arena.low_world[:2], arena.high_world[:2], strict=True))
    points = np.stack(np.meshgrid(x, y))
    for obstacle in arena.obstacles:
        flat = replace(
            obstacle,
            **{  # positions without height
                name: value[:2] for name, value in vars(obstacle).items() if isinstance(value, tuple)
            },
        )
        axes.contourf(x, y, distance_to(flat, points), levels=[-np.inf, 0.0], colors=[FAINT])


def _draw_path(axes: Axes, section: FleetSection, name: str, colour: str, view: tuple[int, int]) -> None:
    robot, track = section.run.fleet.robot(name), section.run.located(name)
    places = (robot.initial_position_world, robot.goal_world)
    start, goal = ((place[view[0]], place[view[1]]) for place in places)
    radius = robot.spec.body_radius_m
    axes.add_patch(Circle(start, radius, fill=False, edgecolor=colour, lw=1.3))
    if section.run.fleet.task is None:
        axes.add_patch(Circle(goal, section.tolerance_m, facecolor=colour, alpha=0.12, edgecolor="none"))
        axes.plot(*goal, marker="x", color=colour, markersize=7, markeredgewidth=1.8)
    above, offset = (start[0], start[1] + radius), {"xytext": (0, 2), "textcoords": "offset points"}
    axes.annotate(name, above, color=colour, weight="bold", ha="center", va="bottom", **offset)
    if not len(track.stamp_s):
        return
    x, y = (track.position_world[:, k] for k in view)
    axes.plot(x, y, color=colour, linewidth=1.8)
    marks = np.arange(track.stamp_s[0], track.stamp_s[-1], _MARK_EVERY_S)[1:]
    at = np.searchsorted(track.stamp_s, marks)
    axes.plot(x[at], y[at], linestyle="", marker="o", markersize=2.6, color="white",
              markeredgecolor=colour, markeredgewidth=1.0)  # fmt: skip
    axes.add_patch(Circle((x[-1], y[-1]), radius, facecolor=colour, alpha=0.85, edgecolor="white"))
    if robot.spec.dimension == 2:
        yaw = track.yaw[-1]
        tip = (x[-1] + radius * np.cos(yaw), y[-1] + radius * np.sin(yaw))
        axes.plot((x[-1], tip[0]), (y[-1], tip[1]), color="white", linewidth=1.6)


def _draw_distances(
    axes: Axes,
    lines: list[tuple[np.ndarray, np.ndarray]],
    label: str,
    limit_m: float,
    limit_label: str,
    colour: str,
) -> None:
    for index, (times, values) in enumerate(lines):
        axes.plot(times, values, color=FAINT, alpha=0.55, linewidth=0.9,
                  label=label if index == 0 else None)  # fmt: skip
    times, least = _least(lines)
    axes.plot(times, least, color=INK, linewidth=1.6, label="least of all")
    axes.axhline(limit_m, color=colour, linewidth=1.4)
    axes.axhspan(0, limit_m, color=colour, alpha=0.08, linewidth=0)
    top = max((float(np.nanmax(values)) for _, values in lines), default=1.0)
    top = max(1.08 * top, 1.6 * limit_m)
    below = limit_m > _LABEL_SHARE * top
    axes.annotate(
        f"{limit_label} {limit_m:.3f} m", (1, limit_m), xycoords=("axes fraction", "data"),
        xytext=(-4, -3 if below else 3), textcoords="offset points", ha="right",
        va="top" if below else "bottom", color=colour,
    )  # fmt: skip
    axes.set(ylabel="distance [m]", ylim=(0, top))
    legend_above(axes)


def _least(lines: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower envelope at the times of the first line."""
    times = lines[0][0]
    known = np.isfinite(times)
    values = [np.interp(times[known], *_finite(*line)) for line in lines]
    least = np.full(len(times), np.nan)
    least[known] = np.min(values, axis=0)
    return times, least


def _finite(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    good = np.isfinite(times) & np.isfinite(values)
    return times[good], values[good]


def _with_gaps(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the line with NaN where samples are missing."""
    gaps = np.flatnonzero(np.diff(times) > _GAP_S) + 1
    return np.insert(times, gaps, np.nan), np.insert(values, gaps, np.nan)


def _draw_activity(axes: Axes, ticks: tuple[TickRecord, ...], begin: float, most: float) -> None:
    times = np.array([tick.stamp_s for tick in ticks]) - begin
    change = np.array([tick.change_m_s for tick in ticks]) * 1e3
    axes.fill_between(times, change, color=WARN, alpha=0.55, linewidth=0, step="post")
    # status, first and last tick of each span of constant status
    edges = [0] + [k for k in range(1, len(ticks)) if ticks[k].status != ticks[k - 1].status]
    for status, first, last in [(ticks[a].status, a, b - 1) for a, b in pairwise([*edges, len(ticks)])]:
        colour = _STATUS_COLOURS.get(status, LIGHT)
        left, right = times[first], times[min(last + 1, len(times) - 1)]
        axes.axvspan(left, right, ymin=0.0, ymax=0.16, color=colour, linewidth=0)
    axes.set(ylim=(-0.22 * most, 1.1 * most), yticks=[0, round(most)])
    axes.grid(visible=False, axis="x")
    axes.spines["left"].set_visible(False)
