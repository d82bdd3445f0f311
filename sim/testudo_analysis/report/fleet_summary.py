"""Summary of a fleet run: arrivals, separations, contacts, timing; and the table of several runs."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from testudo_analysis.report.report_data import FleetSection, FlownRun, ReportVerdict
from testudo_deploy.launch.fleet_run import FleetRunState
from testudo_deploy.launch.topic_names import SUCCESS
from testudo_deploy.shield.geometry import z_scaled
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_runs.run_reader import RecordedRun, Track, ticks_in_order


@dataclass(frozen=True)
class RobotSummary:
    """Summary of one robot; times [s], lengths [m]."""

    robot: str
    arrived_s: float | None
    """Time from the first tick until the robot stays within the tolerance; None without arrival. In a run whose task
    is more than goals, until the task succeeded."""
    goal_distance_m: float  # distance to the goal at the end
    path_m: float
    ticks: int
    projected: int  # ticks in which the shield changed the command
    braked: Mapping[str, int]  # ticks in which the robot braked, by reason
    worst_late_s: float
    duration_p50_s: float  # time from the start of a tick to its command
    duration_p99_s: float


@dataclass(frozen=True)
class FleetSummary:
    """Summary of a fleet run."""

    robots: tuple[RobotSummary, ...]
    duration_s: float  # time [s] from the first to the last tick
    contacts: int | None  # contacts that the plant counted at every physics step; None without a plant
    minimum_separation_m: float | None  # least distance of two centres, from the plant, else from recorded poses
    closest: tuple[str, ...]  # the two robots with the least distance

    @property
    def arrived(self) -> int:
        """Return the number of robots that arrived."""
        return sum(robot.arrived_s is not None for robot in self.robots)

    @property
    def arrival_s(self) -> float | None:
        """Return the arrival time [s] of the last robot; None if a robot did not arrive."""
        times = [robot.arrived_s for robot in self.robots if robot.arrived_s is not None]
        return max(times, default=None) if len(times) == len(self.robots) else None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {
            "arrived": self.arrived,
            "arrival_s": self.arrival_s,
            "robots": [asdict(robot) for robot in self.robots],
        }


def summarise_fleet(section: FleetSection) -> FleetSummary:
    """Return the summary of a run, from ground-truth poses if recorded."""
    run = section.run
    begin_s, end_s = time_span(run)
    robots = tuple(_robot(section, name, begin_s) for name in run.robots if run.ticks[name])
    distance, closest = _separation(run)
    contacts = None
    for event in run.events:
        if "contacts" in event.values:
            contacts = int(event.values["contacts"])
        if event.values.get("separation_m") is not None:
            distance = float(event.values["separation_m"])
            closest = tuple(event.values.get("closest", ()))
    return FleetSummary(robots, end_s - begin_s, contacts, distance, closest)


def time_span(run: RecordedRun) -> tuple[float, float]:
    """Return the times of the first and last tick of all robots [s]; zeros without ticks."""
    stamps = [tick.stamp_s for ticks in run.ticks.values() for tick in ticks]
    return min(stamps, default=0.0), max(stamps, default=0.0)


def joint_poses(run: RecordedRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times (T,) [s], positions (T, N, D) [m] and yaws (T, N) [rad] of all robots.

    Times are those of the first robot while all are recorded; the other robots are interpolated.
    """
    tracks = [run.located(name) for name in run.robots]
    if not tracks or any(len(track.stamp_s) < 2 for track in tracks):
        dimension = tracks[0].position_world.shape[1] if tracks else 0
        return np.zeros(0), np.zeros((0, len(tracks), dimension)), np.zeros((0, len(tracks)))
    begin = max(track.stamp_s[0] for track in tracks)
    end = min(track.stamp_s[-1] for track in tracks)
    times = tracks[0].stamp_s[(tracks[0].stamp_s >= begin) & (tracks[0].stamp_s <= end)]

    def at_times(track: Track, values: np.ndarray) -> np.ndarray:
        return np.interp(times, track.stamp_s, values)

    positions = [np.stack([at_times(t, axis) for axis in t.position_world.T], axis=1) for t in tracks]
    yaws = [at_times(t, np.unwrap(t.yaw)) for t in tracks]
    return times, np.stack(positions, axis=1), np.stack(yaws, axis=1)


def pair_distances(run: RecordedRun) -> tuple[np.ndarray, dict[tuple[str, str], np.ndarray]]:
    """Return times (T,) [s] and the distance of centres (T,) [m] of each pair."""
    times, positions, _ = joint_poses(run)
    if not len(times):
        return times, {}
    return times, {
        (run.robots[i], run.robots[j]): np.linalg.norm(positions[:, i] - positions[:, j], axis=1)
        for i, j in combinations(range(len(run.robots)), 2)
    }


def control_point_distances(run: RecordedRun, height_ratio: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return times (T,) [s] and distances (T,) [m] of the recorded control points of each pair.

    Heights are divided by ``height_ratio``, as in the shield of drones.
    """
    points = {}
    for name in run.robots:
        known = [t for t in ticks_in_order(run.ticks[name]) if t.control_point_world is not None]
        if len(known) > 1:
            stamps = np.array([t.stamp_s for t in known])
            points[name] = (stamps, np.array([t.control_point_world for t in known]))
    found = []
    for one, other in combinations(points, 2):
        times, first = points[one]
        stamps, second = points[other]
        inside = (times >= stamps[0]) & (times <= stamps[-1])
        interpolated = np.stack([np.interp(times, stamps, axis) for axis in second.T], axis=1)
        found.append((times[inside], np.linalg.norm(z_scaled((first - interpolated).T, height_ratio), axis=0)[inside]))
    return found


def _separation(run: RecordedRun) -> tuple[float | None, tuple[str, ...]]:
    _, distances = pair_distances(run)
    if not distances:
        return None, ()
    pair = min(distances, key=lambda key: distances[key].min())
    return float(distances[pair].min()), pair


def _robot(section: FleetSection, name: str, begin_s: float) -> RobotSummary:
    run = section.run
    ticks, track = ticks_in_order(run.ticks[name]), run.located(name)
    goal = np.array(run.fleet.robot(name).goal_world)
    distance = np.linalg.norm(track.position_world - goal, axis=1)
    outside = np.flatnonzero(distance >= section.tolerance_m)
    arrived = None
    if len(distance) and (not len(outside) or outside[-1] + 1 < len(distance)):
        first = outside[-1] + 1 if len(outside) else 0
        arrived = max(0.0, float(track.stamp_s[first]) - begin_s)
    if run.fleet.task is not None:
        ends = [event.stamp_s for event in run.events if event.values.get("outcome") == SUCCESS]
        arrived = ends[0] - begin_s if ends else None
    durations = np.percentile([tick.duration_s for tick in ticks], (50, 99))
    return RobotSummary(
        name,
        arrived,
        float(distance[-1]) if len(distance) else math.nan,
        float(np.linalg.norm(np.diff(track.position_world, axis=0), axis=1).sum()),
        len(ticks),
        sum(tick.status == "projected" for tick in ticks),
        dict(Counter(tick.reason.split(":")[0] for tick in ticks if tick.reason)),
        max(tick.late_s for tick in ticks),
        float(durations[0]),
        float(durations[1]),
    )


COLUMNS = ("seed", "outcome", "time", "contacts", "centres", "control points", "kept", "late ticks", "load")


def flown_run(seed: int, state: FleetRunState, recording: RecordedRun, shield: ProjectionParameters) -> FlownRun:
    """Return the result of a run that has just ended; ``seed`` is that of its starts and plant."""
    pairs = control_point_distances(recording, shield.height_ratio)
    distances = [float(values.min()) for _, values in pairs if len(values)]
    return FlownRun(
        seed,
        state.outcome,
        state.time_s,
        state.contacts,
        state.separation_m,
        min(distances, default=math.inf),
        shield.separation_m,
        sum(state.late_ticks.values()),
        sum(state.ticks.values()),
        os.getloadavg()[0],
    )


def flown_row(run: FlownRun) -> tuple[str, ...]:
    """Return the row of a run in a table with `COLUMNS`."""
    return (
        str(run.seed),
        run.outcome,
        f"{run.time_s:.1f} s",
        str(run.contacts),
        f"{run.separation_m:.3f} m",
        f"{run.control_points_m:.3f} m",
        f"{run.kept_m:.3f} m",
        f"{run.late_ticks} of {run.ticks}",
        f"{run.load:.1f}",
    )


def flown_verdicts(runs: Sequence[FlownRun]) -> Iterator[ReportVerdict]:
    """Yield the checks of several runs; none for a single run, which has its own checks."""
    if len(runs) < 2:
        return
    arrived, touched = sum(run.outcome == "arrived" for run in runs), sum(run.contacts for run in runs)
    yield ReportVerdict(
        f"arrived, {len(runs)} runs over ROS 2", f"{arrived} of {len(runs)}", "all", arrived == len(runs)
    )
    yield ReportVerdict(f"contacts, {len(runs)} runs over ROS 2", str(touched), "0", not touched)
    least, short = min(run.separation_m for run in runs), max(run.short_m for run in runs)
    yield ReportVerdict(f"least distance, {len(runs)} runs over ROS 2", f"{least:.3f} m", "", None)
    yield ReportVerdict("control points within what the shield keeps", f"{1e3 * short:.0f} mm", "", None)
