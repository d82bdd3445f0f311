"""The task of a recorded run at any time of it: the code that scores training, applied to the recorded poses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from testudo_analysis.replay.replayed_team import body_track
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import TeamRecording
from testudo_runs.run_reader import RecordedRun, Track, ticks_in_order
from testudo_sim.online_task.online_task import DecisionScore, OnlineTask
from testudo_sim.online_task.task_state import Pose, scoring_of, task_of
from testudo_sim.scenarios.scenario import TaskScoring

_SETTLED_S = 1.0  # time after the end of the tracks for which scores are still requested


def is_estimated(tick: TickRecord) -> bool:
    """Return whether a tick has a state estimate."""
    return tick.estimate_position_world is not None and tick.control_point_world is not None


def is_decision(tick: TickRecord) -> bool:
    """Return whether the policy decided in a tick."""
    return is_estimated(tick) and tick.decided and tick.nominal_world is not None


def begin_of_team(run: RecordedRun) -> float:
    """Return the time [s] on the steady clock at which every robot has decided once.

    Raises:
        TestudoError: a robot never decided.
    """
    firsts = {
        name: next((tick.stamp_s for tick in ticks_in_order(run.ticks.get(name, ())) if is_decision(tick)), None)
        for name in run.robots
    }
    idle = [name for name, first in firsts.items() if first is None]
    if idle or not firsts:
        raise TestudoError(
            f"{run.folder}: {', '.join(idle) or 'no robot'} has no recorded decision, expected a run in which every "
            "robot was active"
        )
    return max(first for first in firsts.values() if first is not None)


def best_track(run: RecordedRun, name: str) -> Track:
    """Return the ground-truth track of a robot if recorded, else its odometry.

    Raises:
        TestudoError: neither is recorded.
    """
    track = run.located(name)
    if not len(track.stamp_s):
        raise TestudoError(f"{run.folder}: {name}: no pose is recorded, neither truth nor odometry")
    return track


def score_recorded(
    live: OnlineTask, run: RecordedRun, tracks: Mapping[str, Track], begin_s: float, end_s: float
) -> Iterator[DecisionScore]:
    """Yield the scores of an episode that begins at ``begin_s``, up to ``end_s``; ``tracks`` of robots and bodies."""
    live.begin(begin_s)
    for name in run.robots:
        for tick in run.ticks[name]:
            if tick.stamp_s > begin_s:
                live.on_change(name, tick.stamp_s, tick.change_m_s)
    rows = dict.fromkeys(tracks, 0)
    until_s = begin_s
    while live.running and until_s < end_s + _SETTLED_S:
        until_s += live.scoring.decision_s  # step by step, because a pose track stores only some seconds
        for name, track in tracks.items():
            while rows[name] < len(track.stamp_s) and track.stamp_s[rows[name]] <= until_s:
                k = rows[name]
                pose = Pose(
                    tuple(track.position_world[k].tolist()), float(track.yaw[k]), tuple(track.velocity[k].tolist())
                )
                live.on_pose(name, track.stamp_s[k], track.stamp_s[k], pose)
                rows[name] += 1
        yield from (score for score in live.advance(until_s) if score.stamp_s <= end_s)


@dataclass(frozen=True)
class RecordedTask:
    """The course of the task of a run; times are seconds since the start of the run, decisions in order."""

    scoring: TaskScoring
    start: Any = field(repr=False)  # its state at the first decision, of one world
    states: tuple[Any, ...] = field(repr=False)  # after each decision
    stamp_s: tuple[float, ...] = field(repr=False)  # ends of the decisions
    rewards: tuple[float, ...] = field(repr=False)  # of each decision, mean over the robots

    @classmethod
    def create(cls, recording: TeamRecording, contract: Contract) -> RecordedTask:
        """Return the course of the task of a run, scored as in the training of a policy with ``contract``.

        Raises:
            TestudoError: not all robots of the run are there or decided, the task is not installed here or another one,
                or a body that robots push has no recorded pose.
        """
        run = recording.run
        if run is None:
            raise TestudoError(f"{recording.folder}: is an imported run, in which no task is recorded")
        scoring = scoring_of(contract, recording.spec)
        if recording.names != run.robots:
            raise TestudoError(
                f"{recording.folder}: task {scoring.scenario.name}: found {', '.join(recording.names)} at these times, "
                "expected all robots of the run"
            )
        live = OnlineTask(scoring, run.robots, task_of(scoring.scenario, run.fleet), open_end=True)
        start, found = live.task, []
        tracks = {name: best_track(run, name) for name in run.robots}
        end_s = max(track.stamp_s[-1] for track in tracks.values())
        tracks |= {box.name: body_track(run, box.name) for box in scoring.scenario.boxes}
        for score in score_recorded(live, run, tracks, begin_of_team(run), end_s):
            reward = sum(score.reward.values()) / len(run.robots)
            found.append((live.task, score.stamp_s - recording.start_s, reward))
        states, stamps, rewards = zip(*found, strict=True) if found else ((), (), ())
        return cls(scoring, start, states, stamps, rewards)

    @property
    def bodies(self) -> tuple[str, ...]:
        """Return the names of the bodies that robots push, in the order of the scenario."""
        return tuple(box.name for box in self.scoring.scenario.boxes)

    def at(self, time_s: float) -> Any:
        """Return the state after the last decision that had ended; before the first one, the start."""
        done = bisect_right(self.stamp_s, time_s)
        return self.states[done - 1] if done else self.start

    def return_between(self, begin_s: float, end_s: float) -> float:
        """Return the sum of the rewards of the decisions that ended in a time, mean over the robots."""
        return sum(self.rewards[bisect_right(self.stamp_s, begin_s) : bisect_right(self.stamp_s, end_s)])
