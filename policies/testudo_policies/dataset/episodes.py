"""Episodes from a recorded run: observation, action and reward of each robot at each decision.

The team's decisions are on one time grid with the scenario's decision period; it starts when every robot has decided
once. At each grid time, a robot's decision is the nearest recorded one. Rewards come from the code that scores
training and running fleets (`OnlineTask`), applied to the recorded poses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import numpy as np

from testudo_analysis.replay.recorded_task import (
    best_track,
    is_decision,
    is_estimated,
    score_recorded,
)
from testudo_analysis.replay.replayed_team import body_poses, body_track
from testudo_analysis.replay.tick_replay import recorded_table, recorded_task
from testudo_deploy.contract.command_types import check_velocities_alone
from testudo_deploy.contract.contract import Contract, policy_signals, slots_first
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.launch.topic_names import SUCCESS
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel, MotionState, motion_model
from testudo_hardware.spec import parse_robot
from testudo_runs.run_reader import RecordedRun, Track, ticks_in_order
from testudo_sim.online_task.online_task import DecisionScore, OnlineTask
from testudo_sim.online_task.task_state import scoring_of, task_of
from testudo_sim.physics.scene import BodyState, Scene


@dataclass(frozen=True)
class DatasetEpisode:
    """Transitions of a team: T decisions of N robots; D axes, M units of memory."""

    robots: tuple[str, ...]
    stamp_s: np.ndarray  # (T,) start of each decision, on the steady clock of the run
    signals: Mapping[str, np.ndarray] = field(repr=False)
    """The policy's inputs by name: (T, N, ...), neighbours (T, N, K, ...)."""
    next_signals: Mapping[str, np.ndarray] = field(repr=False)
    """Inputs at the next decision; for the last decision, at the tick nearest to its end."""
    hidden: np.ndarray = field(repr=False)  # (T, N, M): the policy's memory before the decision
    actions: np.ndarray = field(repr=False)
    """(T, N, D + S) [m/s]: nominal control-point velocity in the world, before the shield; then the S numbers that a
    policy with a learned message said."""
    rewards: np.ndarray = field(repr=False)  # (T, N); zero where unknown, see ``valid``
    terms: Mapping[str, np.ndarray] = field(repr=False)  # reward terms by name: (T, N)
    terminals: np.ndarray = field(repr=False)  # (T,) bool: success at the end of the decision
    truncations: np.ndarray = field(repr=False)  # (T,) bool: time limit or end of the recording
    state: np.ndarray = field(repr=False)  # (T, S): position, yaw, velocity and goal of each robot, from the tracks
    next_state: np.ndarray = field(repr=False)  # (T, S)
    valid: np.ndarray = field(repr=False)
    """(T, N) bool: action and reward are known, and the robot takes part; else one of them may be a placeholder."""
    rest_return: float  # return of a team that stands still at the same start for the whole time limit

    @property
    def team_return(self) -> float:
        """Return the sum of rewards, mean over the robots."""
        return float(self.rewards.sum(axis=0).mean())

    def __len__(self) -> int:
        return len(self.stamp_s)


@dataclass(frozen=True)
class _Decisions:
    """The ticks of one robot with a state estimate; ``decided`` marks those with a decision."""

    ticks: tuple[TickRecord, ...]
    stamp_s: np.ndarray
    decided: np.ndarray

    @classmethod
    def of(cls, records: Sequence[TickRecord]) -> _Decisions:
        ticks = tuple(filter(is_estimated, ticks_in_order(records)))
        return cls(
            ticks,
            np.array([tick.stamp_s for tick in ticks]),
            np.array([is_decision(tick) for tick in ticks], bool),
        )

    def nearest(self, time_s: float, within_s: float) -> tuple[TickRecord, bool]:
        """Return the nearest decision within a time, else the nearest tick, and whether it is a decision."""
        chosen = np.flatnonzero(self.decided & (np.abs(self.stamp_s - time_s) <= within_s))
        found = len(chosen) > 0
        rows = chosen if found else np.arange(len(self.ticks))
        return self.ticks[rows[np.argmin(np.abs(self.stamp_s[rows] - time_s))]], found


def episodes_of(run: RecordedRun, contract: Contract) -> tuple[DatasetEpisode, ...]:
    """Return the episodes of a run; an episode ends at success or at the time limit.

    Raises:
        TestudoError: the run has no decisions or no poses, the recording lacks the task's state, or the policy
            commands more than velocities.
    """
    check_velocities_alone(replace(contract.command, message_size=0), f"{run.folder}: a dataset")
    spec = parse_robot(contract.robot_spec, "contract: robot_spec")
    scoring = scoring_of(contract, spec)
    bodies = {box.name: body_track(run, box.name) for box in scoring.scenario.boxes}
    series = {name: _Decisions.of(records) for name, records in run.ticks.items()}
    idle = [name for name, decisions in series.items() if not decisions.decided.any()]
    if idle or not series:
        raise TestudoError(
            f"{run.folder}: {', '.join(idle) or 'no robot'} has no recorded decision; a "
            "dataset needs a run in which every robot was active"
        )
    tracks = {name: best_track(run, name) for name in run.robots}
    begin_s = max(decisions.stamp_s[decisions.decided][0] for decisions in series.values())
    end_s = max(track.stamp_s[-1] for track in tracks.values())
    task = task_of(scoring.scenario, run.fleet)
    model, found = motion_model(spec), []
    while end_s - begin_s >= scoring.decision_s:
        live = OnlineTask(scoring, run.robots, task)
        scores = list(score_recorded(live, run, {**tracks, **bodies}, begin_s, end_s))
        if not scores:
            break
        found.append(_episode(run, contract, model, series, tracks, scores, begin_s))
        begin_s = scores[-1].stamp_s
        if scores[-1].outcome in ("", SUCCESS):  # the team rests after success; the recording is over
            break
    if not found:
        raise TestudoError(
            f"{run.folder}: found no complete decision ({scoring.decision_s:g} s) after all robots became active, "
            "expected at least one"
        )
    return tuple(found)


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
    blank = (0.0,) * (contract.dimension + contract.command.message_size)
    actions = np.array(
        [
            [(*tick.nominal_world, *tick.message) if found and tick.nominal_world else blank for tick, found in row]
            for row in chosen[:-1]
        ],
        np.float32,
    )
    hidden = np.array([[tick.hidden_before for tick, _ in row] for row in chosen[:-1]], np.float32)
    scored = np.array([bool(score.reward) for score in scores])
    rewards = np.array([[score.reward.get(name, 0.0) for name in names] for score in scores], np.float32)
    terms = {
        term: np.array(
            [[score.terms[name][term] if score.terms else 0.0 for name in names] for score in scores], np.float32
        )
        for term in _terms(scores)
    }
    decided = np.array([[found for _, found in row] for row in chosen[:-1]])
    takes_part = np.array([[name not in score.absent for name in names] for score in scores])
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
        decided & scored[:, None] & takes_part,
        _rest_return(run, contract, tracks, begin_s),
    )


def _terms(scores: Sequence[DecisionScore]) -> tuple[str, ...]:
    return next((tuple(next(iter(score.terms.values()))) for score in scores if score.terms), ())


def _signals(tick: TickRecord, model: MotionModel, contract: Contract) -> dict[str, np.ndarray]:
    """Return the policy's inputs at a tick, component last: (D,), neighbours (K, D)."""
    estimate = MotionState(
        np.array(tick.estimate_position_world), np.array(tick.estimate_yaw), np.array(tick.estimate_velocity)
    )
    named = policy_signals(
        estimate,
        model.stopping_point(estimate),
        recorded_table(tick, contract.command.message_size),
        contract.shield.hold_s,
        recorded_task(tick, contract),
    )
    return slots_first(named)


def _stacked(rows: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, np.ndarray]:
    return {name: np.array([[values[name] for values in row] for row in rows], np.float32) for name in rows[0][0]}


def team_states(run: RecordedRun, tracks: Mapping[str, Track], moments: np.ndarray) -> np.ndarray:
    """Return the interpolated state (T, S) of the team at ``moments`` [s]; see `DatasetEpisode.state`."""

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


def body_states(run: RecordedRun, names: Sequence[str], moments: np.ndarray) -> BodyState | None:
    """Return the interpolated poses of bodies at ``moments`` (T,) [s], worlds last; None without any."""
    if not names:
        return None
    found = body_poses(run, names, moments).astype(np.float32)
    return BodyState(cast(Any, found[:2]), cast(Any, found[2]))


def _rest_return(run: RecordedRun, contract: Contract, tracks: Mapping[str, Track], begin_s: float) -> float:
    """Return the return of standing still at the starts for the whole time limit."""
    spec = parse_robot(contract.robot_spec, "contract: robot_spec")
    scoring = scoring_of(contract, spec)
    size = spec.dimension
    state = team_states(run, tracks, np.array([begin_s]))[0].reshape(len(tracks), -1)
    motion = MotionState(state[:, :size].T[..., None], state[:, size][:, None], np.zeros((size, len(tracks), 1)))
    task = task_of(scoring.scenario, run.fleet)
    still = Scene(motion, body_states(run, [box.name for box in scoring.scenario.boxes], np.array([begin_s])))
    keys = jax.random.split(jax.random.key(0), 1)
    # one program; called as it is, each operation would be one
    score = jax.jit(scoring.decision)(task, still, still, np.zeros((len(tracks), 1)), keys)
    return scoring.horizon * float(np.mean(score.reward))
