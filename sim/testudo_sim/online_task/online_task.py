"""Scores the task of a scenario on measured poses with the functions that score training.

Decisions begin and end at fixed times, one decision period apart. Poses arrive late and at different rates: a decision
is scored when every body has been measured at or after its end, with poses interpolated to that time. A decision
without a measurement of every body is not scored but reported as missing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import numpy as np

from testudo_deploy.launch.topic_names import SCORE_SCHEMA, SUCCESS, TIMEOUT
from testudo_deploy.station.markers import GoalView, Marker, body_marker
from testudo_hardware.motion import MotionState
from testudo_sim import devices  # noqa: F401  (sets the precision of matrix products)
from testudo_sim.online_task.task_sender import TaskSample
from testudo_sim.online_task.task_state import Pose, PoseTrack, goals_of
from testudo_sim.physics.scene import BodyState, Scene, least_separation
from testudo_sim.scenarios.goal_scenario import GoalScenario
from testudo_sim.scenarios.scenario import GOAL, TaskScoring, absent_robots


@dataclass(frozen=True)
class DecisionScore:
    """The outcome of one decision of a running fleet; mappings by robot, empty if the decision is not scored."""

    decision: int  # number, from 1
    stamp_s: float  # its end on the clock of the station
    total: Mapping[str, float]  # sum of the rewards of all decisions scored so far
    missing: tuple[str, ...]  # bodies that were not measured at its beginning or end
    scored: int  # decisions scored so far
    outcome: str = ""  # empty during the episode; then success or timeout
    success: bool | None = None  # whether the task was completed at its end; None if unknown
    terms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # reward terms by name
    reward: Mapping[str, float] = field(default_factory=dict)  # their sum
    signals: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Task signals of the policies at its end, by robot and name."""
    metrics: Mapping[str, float] = field(default_factory=dict)  # counts of the task so far, by name
    absent: tuple[str, ...] = ()  # robots that took no part in the decision by the task; their rewards are zero
    separation_m: float | None = None
    """Least distance of the centres of two robots at its end; None for a single robot."""


_Moment = tuple[Scene | None, tuple[str, ...]]  # the scene at one time, or None and the bodies without a measurement


class OnlineTask:
    """The task of one running fleet, for one episode at a time."""

    def __init__(self, scoring: TaskScoring, robots: Sequence[str], task: Any, *, open_end: bool = False) -> None:
        """Prepare and compile the scoring.

        ``robots`` are the names in the order of the fleet, ``task`` is the state of one world, see `make_task`; with an
        ``open_end`` neither success nor time ends an episode.
        """
        self._open_end = open_end
        self.scoring, self.robots, self.task = scoring, tuple(robots), task
        signals = [signal.name for signal in scoring.scenario.task_signals]
        self._goals_alone = open_end and isinstance(scoring.scenario, GoalScenario) and signals == [GOAL]
        self._first_task = task
        self.bodies = tuple(box.name for box in scoring.scenario.boxes)
        gap_s = scoring.spec.pose_max_age_s
        self._patience_s = 2 * gap_s
        self._tracks = {name: PoseTrack(gap_s) for name in (*self.robots, *self.bodies)}
        self._changes: dict[str, list[tuple[float, float]]] = {name: [] for name in self.robots}
        self.paused: frozenset[str] = frozenset()
        """Robots that an operator lets stand where they are."""
        self.corners_world: dict[str, tuple[float, ...]] = {}
        """Places (D,) [m] to which robots drive on the way to their goals, by robot."""
        self._start_s: float | None = None
        self._before: _Moment | None = None
        self._last: DecisionScore | None = None
        self._evaluate = jax.jit(self._evaluation)
        self._signals = jax.jit(self.scoring.scenario.signals)
        # compile before the first decision, as poses would be lost during compilation
        size = self.scoring.spec.dimension
        self._nowhere = still = Pose((0.0,) * size, 0.0, (0.0,) * size)
        scene = scene_of([still] * len(self.robots), [Pose((0.0, 0.0), 0.0)] * len(self.bodies))
        jax.block_until_ready(self._evaluate(self.task, scene, scene, self._mean_changes(0.0), 0))
        jax.block_until_ready(self._signals(self.task, scene))

    @property
    def running(self) -> bool:
        """Return whether an episode is running."""
        return self._start_s is not None and not (self._last is not None and self._last.outcome)

    @property
    def absent(self) -> tuple[str, ...]:
        """Return the robots that take no part in the present decision by the task."""
        return self._names(absent_robots(self.scoring.scenario, self.task))

    @property
    def last(self) -> DecisionScore | None:
        """Return the newest score of the episode."""
        return self._last

    @property
    def foreign_clocks(self) -> tuple[str, ...]:
        """Return the bodies whose stamps are on another clock, so that their times of arrival are used."""
        return tuple(name for name, track in self._tracks.items() if track.foreign_clock)

    def newest(self, name: str) -> Pose | None:
        """Return the newest pose of a robot or body; None without such a body or pose."""
        return self._tracks[name].newest if name in self._tracks else None

    def unmeasured(self, now_s: float) -> tuple[str, ...]:
        """Return the names of robots and bodies without a recent pose."""
        return tuple(name for name, track in self._tracks.items() if now_s - track.newest_s > self._patience_s)

    def on_pose(self, name: str, stamp_s: float, received_s: float, pose: Pose) -> bool:
        """Add a measured pose of a robot or body; return False if it is refused, see `PoseTrack.add`."""
        return self._tracks[name].add(stamp_s, received_s, pose)

    def on_change(self, robot: str, received_s: float, change_m_s: float) -> None:
        """Add the change of the command of one tick by the shield [m/s]."""
        if self.running and math.isfinite(change_m_s):
            self._changes[robot].append((received_s, change_m_s))

    @property
    def goals_world(self) -> dict[str, tuple[float, ...]]:
        """Return the present goal (D,) [m] of each robot; empty if the task has no goal for each."""
        places = goals_of(self.task).T
        return (
            dict(zip(self.robots, map(tuple, places.tolist()), strict=True)) if len(places) == len(self.robots) else {}
        )

    @property
    def tolerance_m(self) -> float:
        """Return how near to its goal a body is there; a robot's radius, if the scenario does not say it."""
        return float(getattr(self.scoring.scenario, "tolerance_m", self.scoring.spec.body_radius_m))

    def is_at_goal(self, robot: str) -> bool:
        """Return whether a robot was last measured within the tolerance of its goal."""
        pose, goal = self.newest(robot), self.goals_world[robot]
        return pose is not None and math.dist(pose.position_world, goal) < self.tolerance_m

    def aim(self, robot: str, goal_world: Sequence[float]) -> None:
        """Give a robot another goal (D,) [m], from the present decision on; not to be undone by `rewind`."""
        goals = np.array(self.task.goal_world)
        goals[:, self.robots.index(robot), 0] = goal_world
        self.task = self._first_task = replace(self.task, goal_world=jax.numpy.asarray(goals))
        self.corners_world.pop(robot, None)

    def rewind(self) -> None:
        """Put the task back to its start; no episode runs."""
        self._start_s, self._last, self._before, self.task = None, None, None, self._first_task

    def begin(self, now_s: float) -> None:
        """Start a new episode at ``now_s`` [s]."""
        self.rewind()
        self._start_s = now_s
        for changes in self._changes.values():
            changes.clear()

    def sample(self, now_s: float) -> TaskSample | None:
        """Return the present signals of the task, at the newest poses; None while a robot or body is not measured.

        The task itself changes at the ends of decisions; before an episode it is at its start. Goals of a fleet that
        takes orders are no measurements: its other robots drive on while one is not measured.
        """
        away = self.unmeasured(now_s)
        if away and not self._goals_alone:
            return None
        poses = {name: track.newest or self._nowhere for name, track in self._tracks.items()}
        values = self._by_robot(jax.device_get(self._signals(self.task, self._scene(poses))))
        age_s = now_s - min((track.newest_s for name, track in self._tracks.items() if name not in away), default=now_s)
        stands = isinstance(self.scoring.scenario, GoalScenario) and self.scoring.spec.dimension == 2  # a drone drifts
        within_m = self.tolerance_m if stands else 0.0
        for name, corner in self.corners_world.items():
            values[name][GOAL] = np.array(corner, np.float32)
        return TaskSample(values, age_s, self.absent, within_m, self.paused, frozenset(self.corners_world))

    def advance(self, now_s: float) -> list[DecisionScore]:
        """Return the scores of all decisions that can be scored at ``now_s`` [s], oldest first."""
        scores: list[DecisionScore] = []
        while self.running and self._start_s is not None:
            number = 1 + (self._last.decision if self._last else 0)
            if self._before is None:
                if not self._is_measured(self._start_s, now_s):
                    break
                self._before = self._look(self._start_s)
            end_s = self._start_s + number * self.scoring.decision_s
            if not self._is_measured(end_s, now_s):
                break
            self._last = self._score(number, self._before, end_s)
            scores.append(self._last)
        return scores

    def _is_measured(self, time_s: float, now_s: float) -> bool:
        """Return whether all poses at a time have arrived, or are overdue."""
        return now_s >= time_s and (
            now_s - time_s >= self._patience_s or all(track.newest_s >= time_s for track in self._tracks.values())
        )

    def _score(self, number: int, before: _Moment, end_s: float) -> DecisionScore:
        first, second = before[0], self._look(end_s)
        self._before = second
        after, missing = second
        changes, last = self._mean_changes(end_s), self._last
        missing = tuple(dict.fromkeys((*before[1], *missing)))
        total, scored = (last.total, last.scored) if last else (dict.fromkeys(self.robots, 0.0), 0)
        metrics = last.metrics if last else {}
        decision = DecisionScore(number, end_s, total, missing, scored, metrics=metrics)
        if after is None:
            return self._ended(decision)
        # without a beginning there is no reward, but the end alone shows whether the task is done
        begin = after if first is None else first
        score, signals, least_m = jax.device_get(self._evaluate(self.task, begin, after, changes, number))
        self.task = score.task
        decision = replace(
            decision,
            success=bool(score.success[0]),
            metrics={name: metrics.get(name, 0.0) + float(value[0]) for name, value in score.metrics.items()},
            signals={
                robot: {name: tuple(value.tolist()) for name, value in named.items()}
                for robot, named in self._by_robot(signals).items()
            },
            absent=self._names(score.stood),
            separation_m=float(least_m[0]) if math.isfinite(least_m[0]) else None,
        )
        if first is None:
            return self._ended(decision)
        terms = {
            robot: {term: float(value) for term, value in named.items()}
            for robot, named in self._by_robot(score.terms).items()
        }
        reward = {name: float(score.reward[i, 0]) for i, name in enumerate(self.robots)}
        total = {name: decision.total[name] + reward[name] for name in self.robots}
        return self._ended(replace(decision, terms=terms, reward=reward, total=total, scored=decision.scored + 1))

    def _ended(self, score: DecisionScore) -> DecisionScore:
        if self._open_end:
            return score
        if score.success:
            return replace(score, outcome=SUCCESS)
        return replace(score, outcome=TIMEOUT) if score.decision >= self.scoring.horizon else score

    def _look(self, time_s: float) -> _Moment:
        poses = {name: pose for name, track in self._tracks.items() if (pose := track.at(time_s)) is not None}
        missing = tuple(name for name in self._tracks if name not in poses)
        if missing:
            return None, missing
        return self._scene(poses), ()

    def _scene(self, poses: Mapping[str, Pose]) -> Scene:
        return scene_of([poses[name] for name in self.robots], [poses[name] for name in self.bodies])

    def _names(self, robots: Any) -> tuple[str, ...]:
        """Return the names of the robots of a mask (N, 1), or of None."""
        return () if robots is None else tuple(name for i, name in enumerate(self.robots) if robots[i, 0])

    def _by_robot(self, values: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Return the values (..., N, 1) of one world by robot and name."""
        return {
            robot: {name: value[..., i, 0] for name, value in values.items()} for i, robot in enumerate(self.robots)
        }

    def _evaluation(
        self, task: Any, before: Scene, after: Scene, change_m_s: jax.Array, number: jax.Array
    ) -> tuple[Any, ...]:
        """Return score, signals and least separation after a decision."""
        keys = jax.random.fold_in(jax.random.key(0), number)[None]
        score = self.scoring.decision(task, before, after, change_m_s, keys)
        return (
            score,
            self.scoring.scenario.signals(score.task, after),
            least_separation(after.robots.position_world, self.scoring.spec.height_ratio),
        )

    def _mean_changes(self, end_s: float) -> np.ndarray:
        """Return the mean changes (N, 1) [m/s] of the ticks up to a time, and remove them."""
        means = []
        for name, changes in self._changes.items():
            mine = [change for received_s, change in changes if received_s <= end_s]
            self._changes[name] = [item for item in changes if item[0] > end_s]
            means.append(float(np.mean(mine)) if mine else 0.0)
        return np.array(means, np.float32)[:, None]


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


def _columns(rows: Sequence[Any]) -> Any:
    """Return (N,) or (N, D) numbers as a NumPy array (N, 1) or (D, N, 1), which JAX takes as its own."""
    return np.array(rows, np.float32).T[..., None]


ACTIVE = "active"
"""The mode of a robot under its policy."""
START_ON = (ACTIVE, "poses")
"""Start of an episode: when all robots are active, or when all are measured."""


def waits_for(
    live: OnlineTask, topics: Mapping[str, str], modes: Mapping[str, str], start_on: str, now_s: float
) -> tuple[str, ...]:
    """Return the reasons why an episode cannot begin, as sentences; none if it can.

    ``topics`` are those of the poses of robots and bodies, by name; ``modes`` the known modes of the robots;
    ``start_on`` one of `START_ON`; ``now_s`` on the clock of the station.
    """
    found = [f"{name}: no pose on {topics[name]}: rewards and success are unknown" for name in live.unmeasured(now_s)]
    if start_on == ACTIVE:
        found += [
            f"{name}: {modes.get(name, 'its mode is not known')}"
            for name in live.robots
            if modes.get(name) != ACTIVE and name not in live.absent  # it has no values of the task yet, and waits
        ]
    return tuple(found)


def waiting_values(live: OnlineTask, reasons: Sequence[str]) -> dict[str, Any]:
    """Return the JSON values before an episode begins."""
    return _head(live) | {"state": "waiting", "waits_for": list(reasons)}


def score_values(live: OnlineTask, score: DecisionScore) -> dict[str, Any]:
    """Return the outcome of a decision as JSON values; ``state`` is running, success or timeout."""
    values = asdict(score)
    outcome = values.pop("outcome")
    return _head(live) | {"state": outcome or "running", "time_s": score.decision * live.scoring.decision_s} | values


def figure_values(score: DecisionScore) -> dict[str, float]:
    """Return the figures of the task so far: the mean return of a robot, and counts."""
    totals = score.total.values()
    return {"return": sum(totals) / len(totals) if totals else 0.0, **score.metrics}


def finish_values(live: OnlineTask, score: DecisionScore) -> dict[str, Any]:
    """Return the result of an episode, for the supervisor of the fleet."""
    return {
        "scenario": live.scoring.scenario.name,
        "outcome": score.outcome,
        "time_s": score.decision * live.scoring.decision_s,
        "decisions": score.decision,
        "scored": score.scored,
        "total": dict(score.total),
    }


def goal_views(live: OnlineTask) -> tuple[GoalView, ...]:
    """Return the goals of the task: one for each robot, or of its first body."""
    places = goals_of(live.task)
    names = live.robots if places.shape[1] == len(live.robots) else live.bodies[:1] or ("goal",)
    tolerance_m, made = live.tolerance_m, []
    for name, place in zip(names, places.T.tolist(), strict=False):
        pose = live.newest(name)
        reached = pose is not None and math.dist(pose.position_world, place) < tolerance_m
        made.append(GoalView(name, tuple(place), tolerance_m, reached))
    return tuple(made)


def body_markers(live: OnlineTask) -> tuple[Marker, ...]:
    """Return the markers of the measured bodies."""
    poses = [(box, live.newest(box.name)) for box in live.scoring.scenario.boxes]
    return tuple(
        body_marker(box.name, pose.position_world, pose.yaw, box.size_m) for box, pose in poses if pose is not None
    )


def _head(live: OnlineTask) -> dict[str, Any]:
    return {
        "schema": SCORE_SCHEMA,
        "scenario": live.scoring.scenario.name,
        "robots": list(live.robots),
        "times_of_arrival": list(live.foreign_clocks),
    }
