"""What came of a fleet's run: arrivals, separations, contacts, timing of the control loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from testudo_analysis.report.report_data import FleetSection
from testudo_deploy.shield.segment_distance import squeezed
from testudo_runs.run_reader import RecordedRun, Track, ticks_in_order


@dataclass(frozen=True)
class RobotSummary:
    """One robot's run; times s, lengths m."""

    robot: str
    arrived_s: float | None
    """From the first tick to being within the tolerance for good; None if it never was."""
    goal_distance_m: float
    """At the end."""
    path_m: float
    ticks: int
    projected: int
    """Ticks in which the shield changed the command."""
    braked: Mapping[str, int]
    """Ticks in which the robot was braked, by reason."""
    worst_late_s: float
    duration_p50_s: float
    """From the start of a tick to its command."""
    duration_p99_s: float


@dataclass(frozen=True)
class FleetSummary:
    """A fleet's run."""

    robots: tuple[RobotSummary, ...]
    duration_s: float
    """From the first tick to the last."""
    contacts: int | None
    """As the plant counted them at every physics step; None without a plant."""
    minimum_separation_m: float | None
    """Least distance of two centres; of the plant's, else of the recorded poses."""
    closest: tuple[str, ...]
    """Between whom that was."""

    @property
    def arrived(self) -> int:
        """Return how many robots arrived."""
        return sum(robot.arrived_s is not None for robot in self.robots)

    @property
    def arrival_s(self) -> float | None:
        """Return when the last robot had arrived; None if one did not."""
        times = [robot.arrived_s for robot in self.robots]
        return None if None in times else max(times, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {
            "arrived": self.arrived,
            "arrival_s": self.arrival_s,
            "robots": [asdict(robot) for robot in self.robots],
        }


def summarise_fleet(section: FleetSection) -> FleetSummary:
    """Return what came of the run; true poses are used where the run has them."""
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
    """Return the first and the last tick of all robots [s]; zeros without any."""
    stamps = [tick.stamp_s for ticks in run.ticks.values() for tick in ticks]
    return min(stamps, default=0.0), max(stamps, default=0.0)


def joint_poses(run: RecordedRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times (T,) [s], positions (T, N, D) [m] and yaws (T, N) [rad] of all robots.

    Times are those of the first robot while all were observed; the others are interpolated.
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
    """Return times (T,) [s] and for each pair the distance of the centres (T,) [m]."""
    times, positions, _ = joint_poses(run)
    if not len(times):
        return times, {}
    return times, {
        (run.robots[i], run.robots[j]): np.linalg.norm(positions[:, i] - positions[:, j], axis=1)
        for i, j in combinations(range(len(run.robots)), 2)
    }


def control_point_distances(run: RecordedRun, height_ratio: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return times (T,) [s] and distances (T,) [m] of the recorded control points, pair by pair.

    Heights count 1/``height_ratio``, as for the shield of drones.
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
        there = np.stack([np.interp(times, stamps, axis) for axis in second.T], axis=1)
        found.append((times[inside], np.linalg.norm(squeezed((first - there).T, height_ratio), axis=0)[inside]))
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
    away = np.linalg.norm(track.position_world - goal, axis=1)
    outside = np.flatnonzero(away >= section.tolerance_m)
    arrived = None
    if len(away) and (not len(outside) or outside[-1] + 1 < len(away)):
        first = outside[-1] + 1 if len(outside) else 0
        arrived = max(0.0, float(track.stamp_s[first]) - begin_s)
    durations = np.percentile([tick.duration_s for tick in ticks], (50, 99))
    return RobotSummary(
        name,
        arrived,
        float(away[-1]) if len(away) else math.nan,
        float(np.linalg.norm(np.diff(track.position_world, axis=0), axis=1).sum()),
        len(ticks),
        sum(tick.status == "projected" for tick in ticks),
        dict(Counter(tick.reason.split(":")[0] for tick in ticks if tick.reason)),
        max(tick.late_s for tick in ticks),
        float(durations[0]),
        float(durations[1]),
    )
