"""Plots of incidents: the timeline, and the paths of each with its counterfactuals."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.incident.incident_replay import IncidentReplay
from testudo_analysis.replay.variants import least_distances
from testudo_analysis.report.plot_style import (
    BAD,
    FAINT,
    GOOD,
    INK,
    WARN,
    PlotImage,
    drawing,
    legend_above,
    picture,
    robot_colour,
)
from testudo_runs.alignment import AlignedRobot, TeamRecording

_COLOURS = {IncidentKind.CONTACT: BAD, IncidentKind.NEAR_CONTACT: WARN, IncidentKind.DEADLOCK: "#7a4fa3"}
_LINES = ("-", (0, (5, 2)), (0, (1, 1.6)))  # recorded, simulated with the shield, without
_TONES = (INK, GOOD, BAD)
_LEAST_BAR = 0.004  # least width of a bar as a share of the time axis


def timeline_plot(recording: TeamRecording, incidents: Sequence[Incident]) -> PlotImage | None:
    """Return the incidents over time, one row for each kind; None without incidents."""
    kinds = [kind for kind in IncidentKind if any(item.kind is kind for item in incidents)]
    if not kinds:
        return None
    begin = min(float(robot.trajectory.stamp_s[0]) for robot in recording.robots)
    end = max(float(robot.trajectory.stamp_s[-1]) for robot in recording.robots)
    least = _LEAST_BAR * (end - begin)
    with drawing(9.2, 0.62 + 0.3 * len(kinds)) as figure:
        axes = figure.subplots()
        for row, kind in enumerate(kinds):
            bars = [(item.begin_s, max(item.end_s - item.begin_s, least)) for item in incidents if item.kind is kind]
            axes.broken_barh(bars, (row - 0.32, 0.64), facecolor=_COLOURS.get(kind, "#4e8fc7"), alpha=0.8)
        axes.set_yticks(range(len(kinds)), [str(kind) for kind in kinds])
        axes.set(xlim=(begin, end), ylim=(len(kinds) - 0.4, -0.6), xlabel="s since the start of the run")
        axes.grid(axis="y", visible=False)
        return picture(figure, f"Timeline of {len(incidents)} incidents by kind.")


def incident_plot(aftermath: IncidentReplay, bounds: IncidentThresholds) -> PlotImage:
    """Return paths from above and the least distance over time, by variant; of drones also heights."""
    item, recording = aftermath.incident, aftermath.recording
    flies = recording.spec.dimension == 3
    with drawing(9.2, 3.7 + 1.6 * flies) as figure:
        places = "AB;HH" if flies else "AB"
        panels = figure.subplot_mosaic(places, width_ratios=(1.15, 1), height_ratios=(3.7, 1.6)[: 1 + flies])
        _draw_above(panels["A"], aftermath)
        _draw_distances(panels["B"], aftermath, bounds)
        if flies:
            _draw_heights(panels["H"], aftermath)
        legend_above(panels["B"], 3)
        names = " and ".join(item.robots)
        return picture(
            figure,
            f"{item.kind} of {names} at {item.at_s:.1f} s among {len(recording.robots)} robots, from "
            "above and as least distance over time.",
        )


def _draw_above(axes: Axes, aftermath: IncidentReplay) -> None:
    item, recording = aftermath.incident, aftermath.recording
    involved = [k for k, robot in enumerate(recording.robots) if robot.name in item.robots]
    points = []
    for line, (_, paths) in zip(_LINES, aftermath.variants, strict=False):
        for k, robot in enumerate(recording.robots):
            path = paths.position_world[:, :2, k, 0]
            mine = k in involved
            colour = robot_colour(k) if mine else FAINT
            axes.plot(*path.T, linestyle=line, color=colour, linewidth=1.6 if mine else 0.8, alpha=1 if mine else 0.5)
            if mine or len(involved) < 2:  # a single robot is shown with the others
                points.append(path)
            if line == "-":
                _draw_body(axes, robot, item.at_s, colour, strong=mine)
    if recording.arena is not None:
        low, high = recording.arena.low_world, recording.arena.high_world
        size = high[0] - low[0], high[1] - low[1]
        axes.add_patch(Rectangle((low[0], low[1]), *size, fill=False, edgecolor=FAINT, lw=1.2))
    every = np.concatenate(points)
    room = 3 * recording.spec.body_radius_m
    low, high = every.min(axis=0) - room, every.max(axis=0) + room
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x [m]", ylabel="y [m]")
    axes.set_title(f"From above, bodies at {item.at_s:.1f} s")
    handles = [Line2D([], [], color=INK, linestyle=line) for line in _LINES[: len(aftermath.variants)]]
    axes.legend(handles, [outcome.way for outcome, _ in aftermath.variants], loc="best", fontsize=7)


def _draw_heights(axes: Axes, aftermath: IncidentReplay) -> None:
    item, recording = aftermath.incident, aftermath.recording
    for line, (_, paths) in zip(_LINES, aftermath.variants, strict=False):
        heights = paths.position_world[:, 2, :, 0]
        times = _times(aftermath, len(heights))
        for k, robot in enumerate(recording.robots):
            mine = robot.name in item.robots
            shown = {"color": robot_colour(k), "linewidth": 1.4} if mine else {"color": FAINT, "linewidth": 0.8}
            axes.plot(times, heights[:, k], linestyle=line, alpha=1 if mine else 0.5, **shown)
    axes.axvline(item.at_s, color=FAINT, linewidth=0.8)
    axes.set(xlabel="s since the start of the run", ylabel="z [m]")
    axes.margins(x=0)


def _times(aftermath: IncidentReplay, ticks: int) -> np.ndarray:
    """Return the times (ticks,) [s since the start of the run] of the simulated ticks."""
    period = aftermath.recording.spec.control_period_s
    return (aftermath.incident.from_s or 0.0) + period * (1 + np.arange(ticks))


def _draw_body(axes: Axes, robot: AlignedRobot, at_s: float, colour: str, *, strong: bool) -> None:
    position, yaw, _ = robot.trajectory.at(np.array([at_s]))
    place, radius = position[0][:2], robot.spec.body_radius_m
    axes.add_patch(Circle(place, radius, facecolor=colour, alpha=0.28 if strong else 0.12, edgecolor=colour))
    front = place + radius * np.array([np.cos(yaw[0]), np.sin(yaw[0])])
    axes.plot(*zip(place, front, strict=True), color=colour, linewidth=1.2)
    at, offset = (place[0], place[1] + radius), {"xytext": (0, 1.5), "textcoords": "offset points"}
    axes.annotate(robot.name, at, fontsize=7, color=INK, ha="center", va="bottom", **offset)


def _draw_distances(axes: Axes, aftermath: IncidentReplay, bounds: IncidentThresholds) -> None:
    item, recording = aftermath.incident, aftermath.recording
    for tone, line, (outcome, paths) in zip(_TONES, _LINES, aftermath.variants, strict=False):
        distance = least_distances(paths.position_world)
        times = _times(aftermath, len(distance))
        if distance.shape[1] > 1:
            axes.fill_between(times, distance.min(axis=1), distance.max(axis=1), color=tone, alpha=0.13, linewidth=0)
        axes.plot(times, distance[:, 0], color=tone, linestyle=line, label=outcome.way)
    touching = 2 * recording.spec.body_radius_m
    text = {"xycoords": ("axes fraction", "data"), "ha": "right", "fontsize": 7, "textcoords": "offset points"}
    axes.axhline(touching, color=BAD, linewidth=1)
    axes.annotate("contact", (1, touching), va="top", color=BAD, xytext=(0, -1.5), **text)
    axes.axhline(bounds.near_m, color=WARN, linewidth=1)
    axes.annotate("near", (1, bounds.near_m), va="bottom", color=WARN, xytext=(0, 0), **text)
    axes.axvline(item.at_s, color=FAINT, linewidth=0.8)
    axes.set(xlabel="s since the start of the run", ylabel="least distance of two centres [m]")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
