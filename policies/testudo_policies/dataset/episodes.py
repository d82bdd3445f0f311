"""Episodes of transitions from a recorded run: what each policy read, what it commanded, what that was worth.

The team's decisions lie on one grid of times, the scenario's decision period apart, which begins once every robot has
decided. At each, a robot's decision is the recorded one nearest to it. Rewards come from the very code that scores
training and live runs (`OnlineTask`), on the poses of the recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testudo_analysis.replay.tick_replay import recorded_table
from testudo_analysis.replay.time_order import ticks_in_order, track_in_order
from testudo_deploy.contract.command_types import check_velocities_alone
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.contract.signals import policy_signals
from testudo_deploy.control.control_loop import slots_first
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel, MotionState, motion_model
from testudo_hardware.spec import parse_robot
from testudo_runs.run_reader import RecordedRun, Track
from testudo_sim.online_task.online_task import SUCCESS, DecisionScore, OnlineTask
from testudo_sim.online_task.task_state import Pose, make_task, scoring_of
from testudo_sim.physics.scene import Scene

_SETTLED_S = 1.0
"""After the end of the tracks, no pose is waited for any more."""


@dataclass(frozen=True)
class DatasetEpisode:
    """Transitions of a team: T decisions of N robots; D axes, M units of memory."""

    robots: tuple[str, ...]
    stamp_s: np.ndarray
    """(T,) steady clock of the run: beginning of each decision."""
    signals: Mapping[str, np.ndarray] = field(repr=False)
    """By name, as the policy read them: (T, N, ...), neighbours (T, N, K, ...)."""
    next_signals: Mapping[str, np.ndarray] = field(repr=False)
    """At the decision after; of the last one, at the tick nearest to its end."""
    hidden: np.ndarray = field(repr=False)
    """(T, N, M): the policy's memory before the decision."""
    actions: np.ndarray = field(repr=False)
    """(T, N, D) [m/s]: nominal control-point velocity in the world, before the shield."""
    rewards: np.ndarray = field(repr=False)
    """(T, N); zero where it could not be told, see ``valid``."""
    terms: Mapping[str, np.ndarray] = field(repr=False)
    """Reward terms by name: (T, N)."""
    terminals: np.ndarray = field(repr=False)
    """(T,) bool: the task was done at the end of the decision."""
    truncations: np.ndarray = field(repr=False)
    """(T,) bool: time was up, or the recording ended."""
    state: np.ndarray = field(repr=False)
    """(T, S): position, yaw, velocity and goal of each robot in turn, as the tracks have them."""
    next_state: np.ndarray = field(repr=False)
    """(T, S)."""
    valid: np.ndarray = field(repr=False)
    """(T, N) bool: decided, and with a reward; else the action or the reward is zero and says nothing."""
    rest_return: float
    """Return of the same team had it stood still for a whole time limit."""

    @property
    def team_return(self) -> float:
        """Return the sum of rewards, mean over the robots."""
        return float(self.rewards.sum(axis=0).mean())

    def __len__(self) -> int:
        return len(self.stamp_s)


@dataclass(frozen=True)
class _Decisions:
    """The ticks of one robot that have an estimate, and which of them decided."""

    ticks: tuple[TickRecord, ...]
    stamp_s: np.ndarray
    decided: np.ndarray

    @classmethod
    def of(cls, records: Sequence[TickRecord]) -> _Decisions:
        ticks = tuple(
            tick
            for tick in ticks_in_order(records)
            if tick.estimate_position_world is not None and tick.control_point_world is not None
        )
        return cls(
            ticks,
            np.array([tick.stamp_s for tick in ticks]),
            np.array([tick.decided and tick.nominal_world is not None for tick in ticks], bool),
        )

    def nearest(self, time_s: float, within_s: float) -> tuple[TickRecord, bool]:
        """Return the decision nearest to a moment, else the nearest tick, and whether it is a decision."""
        chosen = np.flatnonzero(self.decided & (np.abs(self.stamp_s - time_s) <= within_s))
        found = len(chosen) > 0
        rows = chosen if found else np.arange(len(self.ticks))
        return self.ticks[rows[np.argmin(np.abs(self.stamp_s[rows] - time_s))]], found


def episodes_of(run: RecordedRun, contract: Contract) -> tuple[DatasetEpisode, ...]:
    """Return the episodes of a run of a policy with this contract; one ends at success or at the time limit.

    Raises:
        TestudoError: the run has no decisions, no poses for them, its task is not in the recording, or its policy
            commands more than velocities.
    """
    check_velocities_alone(contract.command, f"{run.folder}: a dataset")
    spec = parse_robot(contract.robot_spec, "contract: robot_spec")
    scoring = scoring_of(contract, spec)
    if scoring.scenario.boxes:
        names = ", ".join(box.name for box in scoring.scenario.boxes)
        raise TestudoError(
            f"{run.folder}: scenario {scoring.scenario.name} has bodies ({names}) whose poses a run "
            "does not hold; datasets are made of runs of scenarios with robots alone"
        )
    series = {name: _Decisions.of(records) for name, records in run.ticks.items()}
    idle = [name for name, decisions in series.items() if not decisions.decided.any()]
    if idle or not series:
        raise TestudoError(
            f"{run.folder}: {', '.join(idle) or 'no robot'} never ran its policy in the record; a "
            "dataset needs a run in which every robot was active"
        )
    tracks = {name: track_in_order(best_track(run, name)) for name in run.robots}
    begin_s = max(decisions.stamp_s[decisions.decided][0] for decisions in series.values())
    end_s = max(track.stamp_s[-1] for track in tracks.values())
    task = make_task(scoring.scenario, [run.fleet.robot(name).goal_world for name in run.robots])
    model, found = motion_model(spec), []
    while end_s - begin_s >= scoring.decision_s:
        live = OnlineTask(scoring, run.robots, task)
        scores = _scored(live, run, tracks, begin_s, end_s)
        if not scores:
            break
        found.append(_episode(run, contract, model, series, tracks, scores, begin_s))
        begin_s = scores[-1].stamp_s
        if scores[-1].outcome in ("", SUCCESS):  # after success a team rests; after the record there is nothing
            break
    if not found:
        raise TestudoError(
            f"{run.folder}: no whole decision ({scoring.decision_s:g} s) is recorded after every robot became active"
        )
    return tuple(found)


def best_track(run: RecordedRun, name: str) -> Track:
    """Return the truth of a robot where there is any, else what it believed."""
    track = run.truth[name] if len(run.truth[name].stamp_s) else run.odometry[name]
    if not len(track.stamp_s):
        raise TestudoError(f"{run.folder}: {name}: no pose is recorded, neither truth nor odometry")
    return track


def _scored(
    live: OnlineTask, run: RecordedRun, tracks: Mapping[str, Track], begin_s: float, end_s: float
) -> list[DecisionScore]:
    """Return the scores of an episode that begins at a moment."""
    live.begin(begin_s)
    for name in run.robots:
        for tick in run.ticks[name]:
            if tick.stamp_s > begin_s:
                live.on_change(name, tick.stamp_s, tick.change_m_s)
    scores: list[DecisionScore] = []
    step_s = live.scoring.decision_s
    rows = dict.fromkeys(run.robots, 0)
    until_s = begin_s
    while live.running and until_s < end_s + _SETTLED_S:
        until_s += step_s  # in pieces: a pose track remembers some seconds
        for name, track in tracks.items():
            while rows[name] < len(track.stamp_s) and track.stamp_s[rows[name]] <= until_s:
                k = rows[name]
                pose = Pose(
                    tuple(track.position_world[k].tolist()), float(track.yaw[k]), tuple(track.velocity[k].tolist())
                )
                live.on_pose(name, track.stamp_s[k], track.stamp_s[k], pose)
                rows[name] += 1
        scores += [score for score in live.advance(until_s) if score.stamp_s <= end_s]
    return scores


def _episode(
    run: RecordedRun,
    contract: Contract,
    model: MotionModel,
    series: Mapping[str, _Decisions],
    tracks: Mapping[str, Track],
    scores: Sequence[DecisionScore],
    begin_s: float,
) -> DatasetEpisode:
    names = run.robots
    ends = np.array([score.stamp_s for score in scores])
    starts = np.concatenate([[begin_s], ends[:-1]])
    moments = np.concatenate([starts, ends[-1:]])
    step_s = contract.decision_period_s
    chosen = [[series[name].nearest(moment, step_s / 2) for name in names] for moment in moments]
    signals = _stacked([[_signals(tick, model, contract) for tick, _ in row] for row in chosen])
    size = contract.dimension
    actions = np.array(
        [[tick.nominal_world if found else (0.0,) * size for tick, found in row] for row in chosen[:-1]], np.float32
    )
    hidden = np.array([[tick.hidden_before for tick, _ in row] for row in chosen[:-1]], np.float32)
    told = np.array([bool(score.reward) for score in scores])
    rewards = np.array([[score.reward.get(name, 0.0) for name in names] for score in scores], np.float32)
    terms = {
        term: np.array(
            [[score.terms[name][term] if score.terms else 0.0 for name in names] for score in scores], np.float32
        )
        for term in _terms(scores)
    }
    decided = np.array([[found for _, found in row] for row in chosen[:-1]])
    terminals = np.array([score.outcome == SUCCESS for score in scores])
    truncations = np.zeros(len(scores), bool)
    truncations[-1] = not terminals[-1]
    state = team_states(run, tracks, moments)
    return DatasetEpisode(
        names,
        starts,
        {name: value[:-1] for name, value in signals.items()},
        {name: value[1:] for name, value in signals.items()},
        hidden.reshape(len(scores), len(names), -1),
        actions,
        rewards,
        terms,
        terminals,
        truncations,
        state[:-1],
        state[1:],
        decided & told[:, None],
        _rest_return(run, contract, tracks, begin_s),
    )


def _terms(scores: Sequence[DecisionScore]) -> tuple[str, ...]:
    return next((tuple(next(iter(score.terms.values()))) for score in scores if score.terms), ())


def _signals(tick: TickRecord, model: MotionModel, contract: Contract) -> dict[str, np.ndarray]:
    """Return what a policy reads at a tick, component last: (D,), neighbours (K, D)."""
    estimate = MotionState(
        np.array(tick.estimate_position_world), np.array(tick.estimate_yaw), np.array(tick.estimate_velocity)
    )
    named = policy_signals(
        estimate,
        model.stopping_point(estimate),
        recorded_table(tick),
        contract.shield.hold_s,
        {"goal_world": np.array(tick.goal_world)},
    )
    return slots_first(named)


def _stacked(rows: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, np.ndarray]:
    return {name: np.array([[values[name] for values in row] for row in rows], np.float32) for name in rows[0][0]}


def team_states(run: RecordedRun, tracks: Mapping[str, Track], moments: np.ndarray) -> np.ndarray:
    """Return the state (T, S) of the team at moments."""

    def at(track: Track, values: np.ndarray) -> np.ndarray:
        columns = values.reshape(len(track.stamp_s), -1).T
        return np.stack([np.interp(moments, track.stamp_s, column) for column in columns], axis=1)

    parts = [
        part
        for name, track in tracks.items()
        for part in (
            at(track, track.position_world),
            at(track, track.yaw),
            at(track, track.velocity),
            np.tile(run.fleet.robot(name).goal_world, (len(moments), 1)),
        )
    ]
    return np.concatenate(parts, axis=1).astype(np.float32)


def _rest_return(run: RecordedRun, contract: Contract, tracks: Mapping[str, Track], begin_s: float) -> float:
    """Return what standing still at the starts for the whole time limit would have brought."""
    spec = parse_robot(contract.robot_spec, "contract: robot_spec")
    scoring = scoring_of(contract, spec)
    size = spec.dimension
    state = team_states(run, tracks, np.array([begin_s]))[0].reshape(len(tracks), -1)
    motion = MotionState(state[:, :size].T[..., None], state[:, size][:, None], np.zeros((size, len(tracks), 1)))
    task = make_task(scoring.scenario, [run.fleet.robot(name).goal_world for name in run.robots])
    still = Scene(motion)
    score = scoring.decision(task, still, still, np.zeros((len(tracks), 1)))
    return scoring.horizon * float(np.mean(score.reward))
