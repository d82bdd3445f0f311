"""A recorded run, prepared once: aligned trajectories and commands of all robots, validity and provenance.

Times are seconds since the start of the recording, on the clock of the recorder. D is 2 for ground robots, 3 for
drones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.contract.contract import Contract
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters, projection_parameters
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment.latency import LatencyEstimate, response_latency
from testudo_runs.alignment.sample_cleaning import CleaningReport, ClockFit
from testudo_runs.recording.recording import Recording, RecordingError, RobotRecording
from testudo_runs.run_reader import RecordedRun


@dataclass(frozen=True)
class RobotReport:
    """Every correction of the series of one robot."""

    robot: str
    tidy: Mapping[str, CleaningReport]  # by role
    clocks: Mapping[str, ClockFit]  # by role, of series with times of reception
    smoothing: Mapping[str, Any]
    """Choices of the smoother, numbers of samples and of velocities; empty for recorded velocities."""
    reference: str = "pose"  # source of its poses: `pose` if measured from outside, else `odometry`, its own estimate
    pushing: int = 0  # poses at which it may push a body; they are not compared with a model of the robot

    def to_dict(self, latency: LatencyEstimate | None = None) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "robot": self.robot,
            "series": {role: report.to_dict() for role, report in self.tidy.items()},
            "clocks": {role: fit.to_dict() for role, fit in self.clocks.items()},
            "latency": None if latency is None else latency.to_dict(),
            "velocity": dict(self.smoothing),
            "reference": self.reference,
            "pushing": self.pushing,
        }

    def notes(self) -> tuple[str, ...]:
        """Return the corrections of poses and commands as sentences."""
        found = []
        for role, report in self.tidy.items():
            counts = (
                (report.not_finite, "not finite"),
                (report.duplicate, "doubles"),
                (report.backward, "out of order"),
                (report.gap_count, "gaps"),
            )
            if any(count for count, _ in counts):
                found.append(f"{role}: " + ", ".join(f"{count} {what}" for count, what in counts if count))
            clock = self.clocks.get(role)
            if clock is not None and clock.corrected:
                found.append(
                    f"{role}: stamps of another clock, moved by {clock.offset_s:.3f} s with a drift of "
                    f"{1e6 * clock.drift:.0f} ppm"
                )
            isolated = self.smoothing.get("samples", 0) - self.smoothing.get("known", 0)
            if role == "pose" and isolated:
                found.append(f"{isolated} poses too far from others to have a velocity")
        if self.pushing:
            found.append(f"{self.pushing} poses at which it may touch a body that it pushes: left out")
        return tuple(found)


LONGEST_HOLD_S = 0.5
"""Time without a command after which the acting command is unknown, for drivers with unknown dead-man time."""
_LATENCY_STEP_S = 0.01


@dataclass(frozen=True)
class Trajectory:
    """Motion of one robot at its T samples, stamps rising."""

    stamp_s: np.ndarray  # (T,)
    position_world: np.ndarray  # (T, D) [m]
    yaw: np.ndarray  # (T,) [rad], unwrapped
    velocity: np.ndarray
    """(T, D): (forward [m/s], turn rate [rad/s]) of differential drives, else world velocity [m/s]; where not valid,
    interpolated between the valid samples."""
    valid: np.ndarray  # (T,) bool: the velocity is measured, from samples without a gap between them
    gap_s: float  # a longer time between samples is a gap without observations
    pushes: np.ndarray | None = None
    """(T,) bool: the robot may touch a body that it pushes, and need not follow its commands; None: at no sample."""

    def __len__(self) -> int:
        return len(self.stamp_s)

    def at(self, times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return position (M, D), yaw (M,) and velocity (M, D) at times (M,), interpolated; see `observed` for gaps."""
        position, velocity = (
            np.stack([np.interp(times_s, self.stamp_s, axis) for axis in rows.T], axis=-1)
            for rows in (self.position_world, self.velocity)
        )
        return position, np.interp(times_s, self.stamp_s, self.yaw), velocity

    def observed(self, times_s: np.ndarray, gap_s: float | None = None) -> np.ndarray:
        """Return (M,) bool: the time lies at a valid sample, or between two valid ones at most ``gap_s`` apart."""
        after = np.searchsorted(self.stamp_s, times_s)
        high = np.minimum(after, len(self) - 1)
        at_sample = (self.stamp_s[high] == times_s) & self.valid[high]
        low = np.maximum(after - 1, 0)
        limit = self.gap_s if gap_s is None else gap_s
        inside = (after > 0) & (after < len(self)) & (self.stamp_s[high] - self.stamp_s[low] <= limit)
        return at_sample | (inside & self.valid[low] & self.valid[high])

    def free(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return whether no sample from one (...) to another (...), both included, has ``pushes``."""
        if self.pushes is None:
            return np.ones(np.broadcast_shapes(start.shape, end.shape), bool)
        pushed = np.concatenate([[0], np.cumsum(self.pushes)])
        return pushed[end + 1] == pushed[start]

    def take(self, which: np.ndarray) -> "Trajectory":
        """Return some of the samples: indices or mask (T,)."""
        columns = ["stamp_s", "position_world", "yaw", "velocity", "valid"]
        columns += [] if self.pushes is None else ["pushes"]
        return replace(self, **{name: getattr(self, name)[which] for name in columns})


@dataclass(frozen=True)
class Commands:
    """Commands of one robot; each acts until the next one."""

    stamp_s: np.ndarray  # (M,) rising [s]: times of sending
    values: np.ndarray
    """(M, D): in the channels of the motion model, see `MotionModel.limit_command`; in the world unless of a
    differential drive."""
    gap_s: float = np.inf  # a longer time between commands is a gap: a command may be missing from the recording

    def held(self, times_s: np.ndarray, longest_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the last command (S, D) at times (S,), zero if older than ``longest_s``, and whether it acts (S,)."""
        index = np.searchsorted(self.stamp_s, times_s, side="right") - 1
        last = np.maximum(index, 0)
        acts = (index >= 0) & (times_s - self.stamp_s[last] <= longest_s)
        return np.where(acts[:, None], self.values[last], 0.0), acts

    def pieces(self, dead_man_s: float | None = None) -> "CommandPieces":
        """Return the commands as constant pieces.

        Without a new command the driver brakes after ``dead_man_s``; without it, the pieces are unknown after
        `LONGEST_HOLD_S`.
        """
        limit, brakes = (LONGEST_HOLD_S, False) if dead_man_s is None else (dead_man_s, True)
        late = np.flatnonzero(np.append(np.diff(self.stamp_s), np.inf) > limit)
        begin = np.insert(self.stamp_s, late + 1, self.stamp_s[late] + limit)
        values = np.insert(self.values, late + 1, 0.0, axis=0)
        known = np.insert(np.ones(len(self.stamp_s), bool), late + 1, brakes)
        known[-1] = False
        fresh = np.append(True, np.any(np.diff(values, axis=0) != 0, axis=1) | (np.diff(known) != 0))
        return CommandPieces(begin[fresh], values[fresh].T, known[fresh])


@dataclass(frozen=True)
class CommandPieces:
    """Constant commands, one after the other; the last one has no end."""

    begin_s: np.ndarray  # (M,) rising [s]
    values: np.ndarray  # (D, M) in the channels of the motion model
    known: np.ndarray  # (M,) bool: False where the acting command is unknown


@dataclass(frozen=True)
class AlignedRobot:
    """One robot on the clock of the recorder."""

    name: str
    spec: RobotSpec
    trajectory: Trajectory = field(repr=False)
    """Measured from outside, or the estimate of the robot, see ``report.reference``."""
    believed: Trajectory = field(repr=False)  # by the odometry of the robot; the trajectory if none is recorded
    commands: Commands | None = field(repr=False)  # None if none are recorded
    report: RobotReport = field(repr=False)  # every correction of its series
    dead_man_s: float | None = None  # dead-man time of its driver [s]; None if unknown
    goal_world: tuple[float, ...] | None = None  # (D,) [m]; None if no goal is recorded
    raw: RobotRecording | None = field(default=None, repr=False)  # its series

    @cached_property
    def pieces(self) -> CommandPieces:
        """Return the commands as constant pieces; none where no commands are recorded."""
        if self.commands is None:
            return CommandPieces(np.zeros(0), np.zeros((self.spec.dimension, 0)), np.zeros(0, bool))
        return self.commands.pieces(self.dead_man_s)

    @cached_property
    def latency(self) -> LatencyEstimate | None:
        """Return the time from command to motion by cross-correlation; None for fewer than two of either."""
        commands, motion = self.commands, self.trajectory
        if commands is None or len(commands.stamp_s) < 2 or len(motion) < 2:
            return None
        times = np.arange(commands.stamp_s[0], commands.stamp_s[-1], _LATENCY_STEP_S)
        velocity = np.where(motion.valid[:, None], motion.velocity, np.nan)
        return response_latency(times, commands.held(times, np.inf)[0], motion.stamp_s, velocity)

    def needed_commands(self) -> Commands:
        """Return the commands.

        Raises:
            RecordingError: none are recorded.
        """
        if self.commands is None:
            has = ", ".join(role for role, series in self.raw.series.items() if len(series)) if self.raw else "nothing"
            raise RecordingError(f"{self.name}: no command is recorded; there is {has}")
        return self.commands

    def provenance(self) -> dict[str, object]:
        """Return every correction, the clocks and the latency, JSON-ready."""
        return self.report.to_dict(self.latency)


@dataclass(frozen=True)
class TeamRecording:
    """All robots of a run that were located."""

    robots: tuple[AlignedRobot, ...]
    source: Recording = field(repr=False)  # the series as recorded, of all robots
    left_out: Mapping[str, str] = field(default_factory=dict)  # reasons of missing robots, by name
    robot_type: str = ""  # robot or robot file given for all robots; empty for those of the run
    run: RecordedRun | None = field(default=None, repr=False)
    """For a run of `testudo up`: its ticks, announcements and events, on the steady clock."""
    start_s: float = 0.0  # steady clock at time zero, for a run of `testudo up`
    contract: Contract | None = field(default=None, repr=False)  # of the policy of the robots, if it is read
    walls: Arena | None = None  # walls without a contract
    warnings: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return self.source.folder or Path("recording")

    @property
    def spec(self) -> RobotSpec:
        """Return the kind of its robots, for a team of one kind."""
        return self.robots[0].spec

    @property
    def shield(self) -> ProjectionParameters:
        """Return the margins of the policy, or without one those of the robot file."""
        return self.contract.shield if self.contract else projection_parameters(self.spec)

    @property
    def arena(self) -> Arena | None:
        """Return the walls, if any are known."""
        return self.contract.arena if self.contract else self.walls

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the robots."""
        return tuple(robot.name for robot in self.robots)

    @property
    def span_s(self) -> tuple[float, float]:
        """Return the time in which all robots were recorded."""
        stamps = [robot.trajectory.stamp_s for robot in self.robots]
        return max(float(own[0]) for own in stamps), min(float(own[-1]) for own in stamps)

    def robot(self, name: str) -> AlignedRobot:
        """Return one robot.

        Raises:
            RecordingError: it was left out, with the reason, or there is none of that name.
        """
        for robot in self.robots:
            if robot.name == name:
                return robot
        raise RecordingError(f"{name}: {self.left_out.get(name, 'no such robot')}")

    def seen_at(self, times_s: Sequence[float]) -> "TeamRecording":
        """Return the recording of the robots that were recorded at all these times."""
        low, high = min(times_s), max(times_s)
        robots = tuple(
            one for one in self.robots if one.trajectory.stamp_s[0] <= low and high <= one.trajectory.stamp_s[-1]
        )
        return self if len(robots) == len(self.robots) else replace(self, robots=robots)


def body_velocity(spec: RobotSpec, yaw: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return velocities (T, D) in the channels of the motion model from world rates (T, D + 1), the yaw's last."""
    if spec.kind != DIFFERENTIAL_DRIVE:
        return rates[:, :-1]
    return np.stack([rates[:, 0] * np.cos(yaw) + rates[:, 1] * np.sin(yaw), rates[:, -1]], axis=1)
