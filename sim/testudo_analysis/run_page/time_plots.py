"""Plots over time with one row for each robot: clearance, speed, height, error of the model, shield, lateness."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from testudo_analysis.gap.gap_analysis import TypeReplay
from testudo_analysis.gap.gap_report import GapReport
from testudo_analysis.run_page.page_data import (
    PageBody,
    PageClock,
    PageScene,
    PlotLimit,
    PlotLine,
    PlotRow,
    Severity,
    TimePlot,
)
from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.run_reader import ticks_in_order

_FRESH_S = 0.5  # a command counts so long after it, if no other follows
_LEAST_LATE_S = 1e-3


def scene_plots(scene: PageScene, near_m: float | None = None) -> list[TimePlot]:
    """Return the plots that poses alone give: clearance, and height of drones.

    ``near_m`` is the distance of two centres that counts as near, drawn as a limit.
    """
    robots = [body for body in scene.bodies if body.kind != "box"]
    found = []
    if len(robots) > 1:
        found.append(_clearances(robots, near_m))
    if scene.flies:
        rows = tuple(
            PlotRow(body.name, (PlotLine("height", body.poses[:, 2]), *_model_height(body))) for body in robots
        )
        found.append(TimePlot("Height", "m", "Height of each drone above the floor.", rows))
    return found


def moved_speeds(clock: PageClock, scene: PageScene) -> TimePlot:
    """Return the speeds of robots from their poses, for episodes without recorded velocities."""
    rows = []
    for body in scene.bodies:
        if body.kind != "box":
            step = np.diff(body.poses[:, :3], axis=0, prepend=body.poses[:1, :3])
            rows.append(PlotRow(body.name, (PlotLine("speed", np.linalg.norm(step, axis=1) / clock.step_s),)))
    return TimePlot("Speed", "m/s", "Speed of each robot.", tuple(rows))


def recorded_speeds(recording: TeamRecording, clock: PageClock) -> TimePlot:
    """Return recorded and commanded speeds."""
    rows = []
    for robot in recording.robots:
        lines = [PlotLine("speed", _speed(robot, clock))]
        if robot.commands is not None:
            values, acts = robot.commands.held(clock.times_s, _FRESH_S)
            lines.insert(0, PlotLine("command", np.where(acts, _size(robot, values), np.nan), faint=True))
        rows.append(PlotRow(robot.name, tuple(lines)))
    signed = recording.robots[0].spec.kind == DIFFERENTIAL_DRIVE
    about = "Forward speed" if signed else "Speed"
    return TimePlot("Speed", "m/s", f"{about} of each robot (dark), and what was commanded (light).", tuple(rows))


def tick_plots(recording: TeamRecording, clock: PageClock) -> Iterator[TimePlot]:
    """Yield what the control loops of a run of `testudo up` recorded; nothing for other runs."""
    if recording.run is None:
        return
    ticks = {name: ticks_in_order(recording.run.ticks[name]) for name in recording.names}

    def plot(name: str, unit: str, about: str, value: Callable[[TickRecord], float]) -> TimePlot:
        rows = []
        for robot, own in ticks.items():
            stamps = np.array([tick.stamp_s for tick in own]) - recording.start_s
            largest = on_clock(clock, stamps, np.array([value(tick) for tick in own], float))
            rows.append(PlotRow(robot, (PlotLine(name.lower(), largest),)))
        return TimePlot(name, unit, about, tuple(rows))

    yield plot("Shield", "mm/s", "How far the shield changed the command.", lambda tick: 1e3 * tick.change_m_s)
    yield plot("Braked", "", "1 while the control loop braked.", lambda tick: float(bool(tick.reason)))
    if max((tick.late_s for own in ticks.values() for tick in own), default=0.0) >= _LEAST_LATE_S:
        yield plot("Lateness", "ms", "How late each control tick began.", lambda tick: 1e3 * tick.late_s)


def model_errors(report: GapReport, replays: Sequence[TypeReplay], clock: PageClock) -> TimePlot | None:
    """Return the position error of the best model over the run; None if nothing was replayed."""
    rows, horizon = [], report.horizons_s[-1]
    for gap, replay in zip(report.types, replays, strict=True):
        valid = [out.windows.valid for out in replay.outs]
        counts = [sum(int(mask[h].sum()) for mask in valid) for h in range(len(report.horizons_s))]
        at = max(h for h, count in enumerate(counts) if count >= 0.5 * max(counts))
        horizon = min(horizon, report.horizons_s[at])
        for out, own in zip(replay.outs, replay.errors[gap.best], strict=True):
            values = 1e3 * np.abs(own["position"][at])
            line = PlotLine("error", on_clock(clock, out.windows.start_s, values))
            rows.append(PlotRow(out.robot.name, (line,)))
    if not rows:
        return None
    about = f"Distance of the model's prediction from the recorded pose, {horizon:g} s later."
    return TimePlot("Error of the model", "mm", about, tuple(rows))


def on_clock(clock: PageClock, stamp_s: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the largest value (K,) within each step of the clock, held over short gaps; NaN where there is none."""
    largest = np.full(clock.count, -np.inf)
    good = np.isfinite(values) & np.isfinite(stamp_s)
    index = np.rint((stamp_s[good] - clock.begin_s) / clock.step_s).astype(int)
    inside = (index >= 0) & (index < clock.count)
    np.maximum.at(largest, index[inside], values[good][inside])
    known = np.flatnonzero(np.isfinite(largest))
    if not len(known):
        return np.full(clock.count, np.nan)
    last = known[np.maximum(np.searchsorted(known, np.arange(clock.count), side="right") - 1, 0)]
    age = (np.arange(clock.count) - last) * clock.step_s
    return np.where((age >= 0) & (age <= _FRESH_S), largest[last], np.nan)


def _clearances(robots: Sequence[PageBody], near_m: float | None) -> TimePlot:
    rows = []
    for one in robots:
        gaps = [
            np.linalg.norm(one.poses[:, :3] - other.poses[:, :3], axis=1) - one.size_m[0] - other.size_m[0]
            for other in robots
            if other is not one
        ]
        rows.append(PlotRow(one.name, (PlotLine("clearance", 1e3 * np.fmin.reduce(gaps)),)))
    limits = [PlotLimit("contact", 0.0, Severity.BAD)]
    error = 1e3 * 2**0.5 * max(body.error_m for body in robots)
    if error > 0:
        limits.append(PlotLimit("pose error", error, Severity.NOTE))
    if near_m is not None:
        limits.append(PlotLimit("near", 1e3 * (near_m - 2 * robots[0].size_m[0]), Severity.DOUBT))
    about = "Free space between the hulls of a robot and its nearest neighbour; below 0 they overlap."
    return TimePlot("Clearance", "mm", about, tuple(rows), tuple(limits))


def _model_height(body: PageBody) -> tuple[PlotLine, ...]:
    return () if body.model is None else (PlotLine("model", body.model[:, 2], faint=True),)


def _speed(robot: AlignedRobot, clock: PageClock) -> np.ndarray:
    track = robot.trajectory
    _, _, velocity = track.at(clock.times_s)
    return np.where(track.observed(clock.times_s, _FRESH_S), _size(robot, velocity), np.nan)


def _size(robot: AlignedRobot, velocity: np.ndarray) -> np.ndarray:
    return velocity[:, 0] if robot.spec.kind == DIFFERENTIAL_DRIVE else np.linalg.norm(velocity, axis=1)
