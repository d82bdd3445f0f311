"""Outcomes of counterfactual variants, and of the recorded run in the same time."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from testudo_analysis.replay.replayed_team import RunMoment, goals_of
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording

REAL = "what happened"
_ARRIVED_M = 0.1
_ROUNDED_S = 0.1


@dataclass(frozen=True)
class VariantPaths:
    """Paths of the worlds of one start time."""

    position_world: np.ndarray  # (T, D, N, E) [m]
    yaw: np.ndarray  # (T, N, E) [rad]


@dataclass(frozen=True)
class VariantOutcome:
    """Outcome of one variant from one start time; the recorded run has one world."""

    way: str
    from_s: float
    horizon_s: float
    worlds: int
    touched: int  # worlds with contact of robots with each other or with a wall
    contacts: int  # ticks times touching pairs, all worlds
    separation_m: float | None  # least distance of two centres, median over the worlds
    least_separation_m: float | None  # the same, least of all worlds
    arrived: int | None  # worlds in which all robots were at their goals at the same time; None without goals
    arrival_s: float | None  # time [s] until then, median over those worlds
    interventions: float | None
    """Share of the robots' ticks in which the shield changed the command; None if not recorded."""
    braked: float | None  # share of the robots' ticks in which it braked
    off_m: float | None = None
    """Distance [m] from the recorded position at the end, mean over the robots, median over the worlds: the error of
    the model for recorded commands without the shield; otherwise also the effect of the variant."""
    task_return: float | None = None
    """Sum of the rewards of the task, mean over the robots, median over the worlds; None where no task goes on."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True)
class CounterfactualOutcomes:
    """All worlds of one variant."""

    way: str
    outcomes: tuple[VariantOutcome, ...]  # one for each start time
    paths: tuple[VariantPaths, ...] = field(repr=False)  # one for each start time

    @classmethod
    def create(
        cls,
        recording: TeamRecording,
        way: str,
        moments: Sequence[RunMoment],
        draws: int,
        logs: Any,
        goal: np.ndarray | None,
        task_return: np.ndarray | None = None,
    ) -> "CounterfactualOutcomes":
        """Return the outcomes of logged worlds (..., E), and of their task (E,); those of one start are adjacent."""
        outcomes, paths = [], []
        for k, moment in enumerate(moments):
            part = slice(k * draws, (k + 1) * draws)
            position, status = logs.position_world[..., part], logs.status[..., part]
            horizon_s = len(position) * recording.spec.control_period_s
            separation = least_distances(position).min(axis=0, initial=np.inf)
            # recorded positions (D, N) [m]; NaN after the end of the recording
            time_s = moment.time_s + horizon_s
            known = time_s <= recording.span_s[1] + _ROUNDED_S
            places = [robot.trajectory.at(np.array([time_s]))[0][0] for robot in recording.robots]
            there = np.stack(places, axis=1) if known else np.full((recording.spec.dimension, len(places)), np.nan)
            off = np.linalg.norm(position[-1] - there[..., None], axis=0).mean(axis=0)
            contacts = logs.contacts[:, part]
            touched, count = int((contacts > 0).any(axis=0).sum()), int(contacts.sum())
            distances = _finite(np.median(separation)), _finite(separation.min())
            arrived, arrival_s = _arrival(recording.spec, position, goal)
            acted, braked = (status != int(ShieldStatus.PASSED)).mean(), (status == int(ShieldStatus.BRAKED)).mean()
            found = (touched, count, *distances, arrived, arrival_s, float(acted), float(braked))
            gained = None if task_return is None else _finite(np.median(task_return[part]))
            distance = _finite(np.median(off))
            outcomes.append(
                VariantOutcome(way, moment.time_s, horizon_s, draws, *found, off_m=distance, task_return=gained)
            )
            paths.append(VariantPaths(position, logs.yaw[..., part]))
        return cls(way, tuple(outcomes), tuple(paths))


def pair_distances(position_world: np.ndarray) -> np.ndarray:
    """Return the distances of the centres of all pairs (pairs, T, E) [m] from places (T, D, N, E)."""
    found = [
        np.linalg.norm(position_world[:, :, i] - position_world[:, :, j], axis=1)
        for i, j in combinations(range(position_world.shape[2]), 2)
    ]
    return np.stack(found) if found else np.empty((0, len(position_world), position_world.shape[-1]))


def least_distances(position_world: np.ndarray) -> np.ndarray:
    """Return the least distance of two centres at each tick in each world (T, E) [m]; infinite for a single robot.

    Heights count in full, as for contacts; the shield scales them.
    """
    return pair_distances(position_world).min(axis=0, initial=np.inf)


def recorded_outcome(recording: TeamRecording, time_s: float, horizon_s: float) -> tuple[VariantOutcome, VariantPaths]:
    """Return the outcome of the recorded run from a start time on, sampled at the control period."""
    spec = recording.spec
    end_s = min(time_s + horizon_s, recording.span_s[1])
    count = max(1, int((end_s - time_s) / spec.control_period_s + 1e-9))
    at_s = time_s + spec.control_period_s * np.arange(1, count + 1)
    found = [robot.trajectory.at(at_s) for robot in recording.robots]
    position = np.stack([place.T for place, _, _ in found], axis=-1).transpose(1, 0, 2)  # (T, D, N)
    yaw = np.stack([angle for _, angle, _ in found], axis=-1)
    distance = pair_distances(position[..., None])
    contacts = int((distance < 2 * spec.body_radius_m).sum())
    least = _finite(distance.min(initial=np.inf))
    arrived, arrival_s = _arrival(spec, position[..., None], goals_of(recording))
    acted, braked = _status_shares(recording, time_s, end_s)
    found = (int(contacts > 0), contacts, least, least, arrived, arrival_s, acted, braked)
    outcome = VariantOutcome(REAL, time_s, end_s - time_s, 1, *found)
    return outcome, VariantPaths(position[..., None], yaw[..., None])


def _status_shares(recording: TeamRecording, begin_s: float, end_s: float) -> tuple[float | None, float | None]:
    """Return the shares of ticks in which the shield acted and in which the robot braked; None without ticks."""
    if recording.run is None:
        return None, None
    found = [
        tick.status
        for name in recording.names
        for tick in recording.run.ticks[name]
        if begin_s < tick.stamp_s - recording.start_s <= end_s
    ]
    if not found:
        return None, None
    return sum(status != "passed" for status in found) / len(found), found.count("braked") / len(found)


def _arrival(
    spec: RobotSpec, position_world: np.ndarray, goal_world: np.ndarray | None
) -> tuple[int | None, float | None]:
    """Return in how many worlds all robots arrived, and the median time [s]; None without goals or arrivals.

    ``position_world`` (T, D, N, E) and ``goal_world`` (D, N) in [m].
    """
    if goal_world is None:
        return None, None
    away = np.linalg.norm(position_world - goal_world[None, :, :, None], axis=1)
    there = (away < max(_ARRIVED_M, spec.body_radius_m)).all(axis=1)
    ticks = there.argmax(axis=0)[there.any(axis=0)]
    return len(ticks), float(np.median(ticks + 1) * spec.control_period_s) if len(ticks) else None


def _finite(value: float | np.floating) -> float | None:
    return float(value) if np.isfinite(value) else None
