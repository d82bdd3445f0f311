"""What became of the worlds of a counterfactual, and of the real run in the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from testudo_analysis.replay.run_moment import RunMoment, goals_of
from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording

REAL = "what happened"
_ARRIVED_M = 0.1
_ROUNDED_S = 0.1


@dataclass(frozen=True)
class CounterfactualVariants:
    """Where the worlds of one moment went."""

    position_world: np.ndarray
    """(T, D, N, E) [m]."""
    yaw: np.ndarray
    """(T, N, E) [rad]."""


@dataclass(frozen=True)
class VariantOutcome:
    """What one way of going on came to from one moment; of the real run there is one world."""

    way: str
    from_s: float
    horizon_s: float
    worlds: int
    touched: int
    """Worlds in which robots touched each other or a wall."""
    contacts: int
    """Ticks times touching pairs, all worlds."""
    separation_m: float | None
    """Least distance of two centres, median over the worlds."""
    least_separation_m: float | None
    """The same, least of all worlds."""
    arrived: int | None
    """Worlds in which all robots were at their goals at once; None without goals."""
    arrival_s: float | None
    """After so long, median over those worlds."""
    interventions: float | None
    """Share of the robots' ticks in which the shield changed the command; None where that is not recorded."""
    braked: float | None
    """Share of the robots' ticks in which it braked."""
    off_m: float | None = None
    """How far a robot was at the end from where it really was, mean over the robots, median over the worlds: without
    the shield and with the recorded commands this is the error of the model, otherwise also what was changed."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True)
class CounterfactualOutcomes:
    """All worlds of one way."""

    way: str
    outcomes: tuple[VariantOutcome, ...]
    """One for each moment."""
    ways: tuple[CounterfactualVariants, ...] = field(repr=False)
    """One for each moment."""

    @classmethod
    def create(
        cls,
        recording: TeamRecording,
        way: str,
        moments: Sequence[RunMoment],
        draws: int,
        logs: Any,
        goal: np.ndarray | None,
    ) -> CounterfactualOutcomes:
        """Return the outcomes of worlds (..., E) whose ticks were logged; those of one moment are side by side."""
        outcomes, ways = [], []
        for k, moment in enumerate(moments):
            part = slice(k * draws, (k + 1) * draws)
            position, status = logs.position_world[..., part], logs.status[..., part]
            arrival = _arrivals(recording.spec, position, goal)
            separation = least_distances(position).min(axis=0, initial=np.inf)
            there = _real_places(recording, moment.time_s + len(position) * recording.spec.control_period_s)
            off = np.linalg.norm(position[-1] - there[..., None], axis=0).mean(axis=0)
            outcomes.append(
                VariantOutcome(
                    way,
                    moment.time_s,
                    len(position) * recording.spec.control_period_s,
                    draws,
                    int((logs.contacts[:, part] > 0).any(axis=0).sum()),
                    int(logs.contacts[:, part].sum()),
                    _finite(np.median(separation)),
                    _finite(separation.min()),
                    *_arrival(arrival, recording.spec),
                    float((status != int(ShieldStatus.PASSED)).mean()),
                    float((status == int(ShieldStatus.BRAKED)).mean()),
                    _finite(np.median(off)),
                )
            )
            ways.append(CounterfactualVariants(position, logs.yaw[..., part]))
        return cls(way, tuple(outcomes), tuple(ways))


def pair_distances(position_world: np.ndarray) -> np.ndarray:
    """Return the distances of the centres of all pairs (pairs, T, E) [m] from places (T, D, N, E)."""
    found = [
        np.linalg.norm(position_world[:, :, i] - position_world[:, :, j], axis=1)
        for i, j in combinations(range(position_world.shape[2]), 2)
    ]
    return np.stack(found) if found else np.empty((0, len(position_world), position_world.shape[-1]))


def least_distances(position_world: np.ndarray) -> np.ndarray:
    """Return the least distance of two centres at each tick in each world (T, E) [m]; infinite for a single robot.

    Heights count in full, as they do where contacts are counted, and not as the shield counts them.
    """
    return pair_distances(position_world).min(axis=0, initial=np.inf)


def recorded_outcome(
    recording: TeamRecording, time_s: float, horizon_s: float
) -> tuple[VariantOutcome, CounterfactualVariants]:
    """Return what the real run came to from a moment on, looked at as often as a simulated one."""
    spec = recording.spec
    end_s = min(time_s + horizon_s, recording.span_s[1])
    count = max(1, int((end_s - time_s) / spec.control_period_s + 1e-9))
    at_s = time_s + spec.control_period_s * np.arange(1, count + 1)
    found = [robot.trajectory.at(at_s) for robot in recording.robots]
    position = np.stack([place.T for place, _, _ in found], axis=-1).transpose(1, 0, 2)  # (T, D, N)
    yaw = np.stack([angle for _, angle, _ in found], axis=-1)
    distance = pair_distances(position[..., None])
    contacts = int((distance < 2 * spec.body_radius_m).sum())
    arrival = _arrivals(spec, position[..., None], goals_of(recording))
    least = _finite(distance.min(initial=np.inf))
    outcome = VariantOutcome(
        REAL,
        time_s,
        end_s - time_s,
        1,
        int(contacts > 0),
        contacts,
        least,
        least,
        *_arrival(arrival, spec),
        *_statuses(recording, time_s, end_s),
    )
    return outcome, CounterfactualVariants(position[..., None], yaw[..., None])


def _real_places(recording: TeamRecording, time_s: float) -> np.ndarray:
    """Return where the robots really were (D, N) [m]; not a number where nobody knows."""
    known = time_s <= recording.span_s[1] + _ROUNDED_S
    places = [robot.trajectory.at(np.array([time_s]))[0][0] for robot in recording.robots]
    return np.stack(places, axis=1) if known else np.full((recording.spec.dimension, len(places)), np.nan)


def _statuses(recording: TeamRecording, begin_s: float, end_s: float) -> tuple[float | None, float | None]:
    """Return the shares of ticks in which the shield acted and in which the robot braked."""
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


def _arrivals(spec: RobotSpec, position_world: np.ndarray, goal_world: np.ndarray | None) -> np.ndarray | None:
    """Return the tick (E,) at which all robots were at their goals at once, -1 for never; None without goals."""
    if goal_world is None:
        return None
    away = np.linalg.norm(position_world - goal_world[None, :, :, None], axis=1)
    there = (away < max(_ARRIVED_M, spec.body_radius_m)).all(axis=1)
    return np.where(there.any(axis=0), there.argmax(axis=0), -1)


def _arrival(ticks: np.ndarray | None, spec: RobotSpec) -> tuple[int | None, float | None]:
    if ticks is None:
        return None, None
    there = ticks[ticks >= 0]
    return len(there), float(np.median(there + 1) * spec.control_period_s) if len(there) else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
