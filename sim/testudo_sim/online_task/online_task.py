"""Runs a scenario's task on measured poses and scores the run with the functions that score training.

A decision begins and ends at fixed moments, the scenario's decision period apart. Poses arrive late and at different
rates: a decision is scored once every body has been measured at or after its end, with poses interpolated to that very
moment. A decision for which a body was not measured is not scored, and said to be missing; nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from testudo_hardware.motion import MotionState
from testudo_sim import devices  # noqa: F401  (sets the precision of matrix products)
from testudo_sim.online_task.task_state import Pose, PoseTrack
from testudo_sim.physics.scene import BodyState, Scene, least_separation
from testudo_sim.scenarios.scenario import TaskScoring

SUCCESS, TIMEOUT = "success", "timeout"


@dataclass(frozen=True)
class DecisionScore:
    """The outcome of one decision of a live run; mappings by robot, empty where the decision could not be scored."""

    decision: int
    """1 for the first."""
    stamp_s: float
    """When it ended, on the station's clock."""
    terms: Mapping[str, Mapping[str, float]]
    """Reward terms by name."""
    reward: Mapping[str, float]
    """Their sum."""
    total: Mapping[str, float]
    """Sum of the rewards of all decisions scored so far."""
    success: bool | None
    """Whether the task was completed at the end of the decision; None if unknown."""
    outcome: str
    """Empty during the episode; then success or timeout."""
    missing: tuple[str, ...]
    """Bodies that were not measured at the beginning or end of the decision."""
    scored: int
    """Decisions scored so far."""
    signals: Mapping[str, Mapping[str, tuple[float, ...]]]
    """Task signals of the policies at the end of the decision, by robot and name."""
    separation_m: float | None
    """Least distance of two robots' centres at the end of the decision; None for a single robot."""


@dataclass(frozen=True)
class _Sight:
    """What is known of one moment."""

    scene: Scene | None
    missing: tuple[str, ...] = ()
    """Bodies without a measurement; then there is no scene."""


class OnlineTask:
    """The task of one running fleet, for one episode at a time."""

    def __init__(self, scoring: TaskScoring, robots: Sequence[str], task: Any) -> None:
        """Prepare, and compile what scores.

        Args:
            scoring: of the scenario.
            robots: names, in the fleet's order.
            task: the scenario's state for one world, see `make_task`.
        """
        self.scoring, self.robots, self.task = scoring, tuple(robots), task
        self.bodies = tuple(box.name for box in scoring.scenario.boxes)
        gap_s = scoring.spec.pose_max_age_s
        self._patience_s = 2 * gap_s
        self._tracks = {name: PoseTrack(gap_s) for name in (*self.robots, *self.bodies)}
        self._changes: dict[str, list[tuple[float, float]]] = {name: [] for name in self.robots}
        self._start_s: float | None = None
        self._before: _Sight | None = None
        self._last: DecisionScore | None = None
        self._evaluate = jax.jit(self._evaluation)
        self._warm_up()

    @property
    def running(self) -> bool:
        """Return whether an episode is running."""
        return self._start_s is not None and not (self._last is not None and self._last.outcome)

    @property
    def last(self) -> DecisionScore | None:
        """Return the newest score of the episode."""
        return self._last

    @property
    def foreign_clocks(self) -> tuple[str, ...]:
        """Return the names of bodies whose stamps are on another clock: their times of arrival are used."""
        return tuple(name for name, track in self._tracks.items() if track.foreign_clock)

    def newest(self, name: str) -> Pose | None:
        """Return the newest pose of a robot or body; None where there is none of that name, or of it."""
        return self._tracks[name].newest if name in self._tracks else None

    def unmeasured(self, now_s: float) -> tuple[str, ...]:
        """Return the names of robots and bodies without a pose young enough to be used."""
        return tuple(name for name, track in self._tracks.items() if now_s - track.newest_s > self._patience_s)

    def on_pose(self, name: str, stamp_s: float, received_s: float, pose: Pose) -> bool:
        """Take a measured pose of a robot or body; returns False if it is refused, see `PoseTrack.add`."""
        return self._tracks[name].add(stamp_s, received_s, pose)

    def on_change(self, robot: str, received_s: float, change_m_s: float) -> None:
        """Take by how much the shield changed the command of one tick [m/s]."""
        if self.running and math.isfinite(change_m_s):
            self._changes[robot].append((received_s, change_m_s))

    def begin(self, now_s: float) -> None:
        """Start a new episode at ``now_s`` [s]."""
        self._start_s, self._last, self._before = now_s, None, None
        for changes in self._changes.values():
            changes.clear()

    def advance(self, now_s: float) -> list[DecisionScore]:
        """Return the scores of all decisions that can be told at ``now_s`` [s], oldest first."""
        scores: list[DecisionScore] = []
        while self.running:
            number = 1 + (self._last.decision if self._last else 0)
            if self._before is None:
                if not self._may_look(self._start_s, now_s):
                    break
                self._before = self._look(self._start_s)
            end_s = self._start_s + number * self.scoring.decision_s
            if not self._may_look(end_s, now_s):
                break
            self._last = self._score(number, end_s)
            scores.append(self._last)
        return scores

    def _may_look(self, time_s: float, now_s: float) -> bool:
        """Return whether all poses of a moment have arrived."""
        return now_s >= time_s and (
            now_s - time_s >= self._patience_s or all(track.newest_s >= time_s for track in self._tracks.values())
        )

    def _score(self, number: int, end_s: float) -> DecisionScore:
        before, after = self._before, self._look(end_s)
        self._before = after
        changes, last = self._mean_changes(end_s), self._last
        told = DecisionScore(
            number,
            end_s,
            {},
            {},
            last.total if last else dict.fromkeys(self.robots, 0.0),
            None,
            "",
            tuple(dict.fromkeys((*before.missing, *after.missing))),
            last.scored if last else 0,
            {},
            None,
        )
        if after.scene is None:
            return self._ended(told)
        # without a beginning there is no reward, but the end alone says whether the task is done
        begin = after.scene if before.scene is None else before.scene
        score, signals, least_m = jax.device_get(self._evaluate(self.task, begin, after.scene, changes))
        told = replace(
            told,
            success=bool(score.success[0]),
            signals=self._by_robot(signals),
            separation_m=float(least_m[0]) if math.isfinite(least_m[0]) else None,
        )
        if before.scene is None:
            return self._ended(told)
        terms = {
            name: {term: float(value[i, 0]) for term, value in score.terms.items()}
            for i, name in enumerate(self.robots)
        }
        reward = {name: float(score.reward[i, 0]) for i, name in enumerate(self.robots)}
        total = {name: told.total[name] + reward[name] for name in self.robots}
        return self._ended(replace(told, terms=terms, reward=reward, total=total, scored=told.scored + 1))

    def _ended(self, score: DecisionScore) -> DecisionScore:
        if score.success:
            return replace(score, outcome=SUCCESS)
        return replace(score, outcome=TIMEOUT) if score.decision >= self.scoring.horizon else score

    def _look(self, time_s: float) -> _Sight:
        poses = {name: track.at(time_s) for name, track in self._tracks.items()}
        missing = tuple(name for name, pose in poses.items() if pose is None)
        if missing:
            return _Sight(None, missing)
        return _Sight(scene_of([poses[name] for name in self.robots], [poses[name] for name in self.bodies]))

    def _evaluation(self, task: Any, before: Scene, after: Scene, change_m_s: jax.Array) -> tuple[Any, ...]:
        """Return score, signals and least separation after a decision."""
        return (
            self.scoring.decision(task, before, after, change_m_s),
            self.scoring.scenario.signals(task, after),
            least_separation(after.robots.position_world, self.scoring.spec.height_ratio),
        )

    def _by_robot(self, signals: Mapping[str, np.ndarray]) -> dict[str, dict[str, tuple[float, ...]]]:
        return {
            robot: {name: tuple(value[..., i, 0].tolist()) for name, value in signals.items()}
            for i, robot in enumerate(self.robots)
        }

    def _mean_changes(self, end_s: float) -> np.ndarray:
        """Return the mean changes (N, 1) [m/s] of the ticks up to a moment, and forget them."""
        means = []
        for name, changes in self._changes.items():
            mine = [change for received_s, change in changes if received_s <= end_s]
            self._changes[name] = [item for item in changes if item[0] > end_s]
            means.append(float(np.mean(mine)) if mine else 0.0)
        return np.array(means, np.float32)[:, None]

    def _warm_up(self) -> None:
        """Compile before the first decision, as poses would be lost meanwhile."""
        size = self.scoring.spec.dimension
        still = Pose((0.0,) * size, 0.0, (0.0,) * size)
        scene = scene_of([still] * len(self.robots), [Pose((0.0, 0.0), 0.0)] * len(self.bodies))
        jax.block_until_ready(self._evaluate(self.task, scene, scene, self._mean_changes(0.0)))


def scene_of(robots: Sequence[Pose], bodies: Sequence[Pose]) -> Scene:
    """Return the scene of one world from the poses of its robots and bodies."""
    motion = MotionState(
        _columns([pose.position_world for pose in robots]),
        _columns([pose.yaw for pose in robots]),
        _columns([pose.velocity for pose in robots]),
    )
    if not bodies:
        return Scene(motion)
    return Scene(
        motion, BodyState(_columns([pose.position_world for pose in bodies]), _columns([pose.yaw for pose in bodies]))
    )


def _columns(rows: Sequence[Any]) -> np.ndarray:
    """Return (N,) or (N, D) numbers as an array (N, 1) or (D, N, 1)."""
    return np.array(rows, np.float32).T[..., None]
