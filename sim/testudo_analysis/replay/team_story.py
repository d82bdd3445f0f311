"""What is known of a run, of whatever origin: how each robot moved and was told to, its goal, and the world around.

A run of `testudo up` and an imported recording look the same here, so that whatever looks for incidents or goes on
from a moment reads both. Times are seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from testudo_analysis.replay.slopes import local_slopes
from testudo_analysis.replay.time_order import ticks_in_order, track_in_order
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.launch.run_folder import FLEET_FILE
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters, projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import WORLD_FRAME
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_runs.alignment import located
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.recording import Recording, load_recording
from testudo_runs.recording.recording import Series
from testudo_runs.run_reader import RecordedRun, Track, read_run


@dataclass(frozen=True)
class RobotMotion:
    """How one robot moved; stamps rise."""

    stamp_s: np.ndarray
    """(T,)."""
    position_world: np.ndarray
    """(T, D) [m]."""
    yaw: np.ndarray
    """(T,) [rad], unwrapped."""
    velocity: np.ndarray
    """(T, D): see `MotionState.velocity`."""

    def at(self, time_s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return position (M, D), yaw (M,) and velocity (M, D) at times (M,), interpolated."""
        position, velocity = (
            np.stack([np.interp(time_s, self.stamp_s, axis) for axis in rows.T], axis=-1)
            for rows in (self.position_world, self.velocity)
        )
        return position, np.interp(time_s, self.stamp_s, self.yaw), velocity


@dataclass(frozen=True)
class SentCommands:
    """What one robot was told."""

    stamp_s: np.ndarray
    """(T,), rising."""
    command: np.ndarray
    """(T, D): actuator command, see `MotionModel.limit_command`."""


@dataclass(frozen=True)
class RobotStory:
    """One robot."""

    name: str
    spec: RobotSpec
    motion: RobotMotion = field(repr=False)
    """As it was seen from outside; what it believed where nobody saw it."""
    believed: RobotMotion = field(repr=False)
    """As its own pose source told."""
    sent: SentCommands | None = field(repr=False)
    """None where no commands are recorded."""
    goal_world: tuple[float, ...] | None
    """(D,) [m]."""


@dataclass(frozen=True)
class TeamStory:
    """A team."""

    folder: Path
    robots: tuple[RobotStory, ...]
    shield: ProjectionParameters
    arena: Arena | None
    run: RecordedRun | None = field(default=None, repr=False)
    """For a run of ours: its ticks, announcements and events."""
    contract: Contract | None = field(default=None, repr=False)
    start_s: float = 0.0
    """Steady clock at the start, for a run of ours."""
    warnings: tuple[str, ...] = ()

    @property
    def spec(self) -> RobotSpec:
        """Return the kind of its robots."""
        return self.robots[0].spec

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the robots."""
        return tuple(robot.name for robot in self.robots)

    def seen_at(self, times_s: Sequence[float]) -> TeamStory:
        """Return the same story with the robots alone that were being recorded at all these times."""
        low, high = min(times_s), max(times_s)
        seen = [robot for robot in self.robots if robot.motion.stamp_s[0] <= low and high <= robot.motion.stamp_s[-1]]
        return self if len(seen) == len(self.robots) else replace(self, robots=tuple(seen))

    @property
    def span_s(self) -> tuple[float, float]:
        """Return the time in which all robots were seen."""
        return (
            max(float(robot.motion.stamp_s[0]) for robot in self.robots),
            min(float(robot.motion.stamp_s[-1]) for robot in self.robots),
        )


def read_team_story(folder: Path, robot: str | None = None, share: Share = quiet) -> TeamStory:
    """Read a run folder as a story.

    Args:
        folder: recorded by `testudo up`, or made by `testudo import`.
        robot: kind of the robots, for imported runs that do not say; a registered name or a robot file.
        share: is told the share that is done.

    Raises:
        TestudoError: no run, no kind of robot, robots of several kinds, or one that was hardly ever seen.
    """
    if not (Path(folder) / FLEET_FILE).is_file():
        return story_of_recording(load_recording(folder, share=share), robot)
    run = read_run(folder, share)
    try:
        contract = PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256).contract
    except TestudoError as error:
        return story_of_run(run, None, (*run.warnings, f"no policy: {error}"))
    return story_of_run(run, contract)


def story_of_run(
    run: RecordedRun, contract: Contract | None = None, warnings: tuple[str, ...] | None = None
) -> TeamStory:
    """Return the story of a run of ours; with its contract, walls and margins are those of the policy.

    Raises:
        TestudoError: robots of several kinds, or one that was never located.
    """
    start_s = run.info.get("start_steady_s")
    if start_s is None:
        start_s = min((tick.stamp_s for ticks in run.ticks.values() for tick in ticks), default=0.0)
    robots = []
    for robot in run.fleet.robots:
        believed = _motion(run.odometry[robot.name], start_s)
        truth = run.truth[robot.name]
        motion = _motion(truth, start_s) if len(truth.stamp_s) > 1 else believed
        if len(motion.stamp_s) < 2:
            continue
        sent = _sent(run, robot.name, robot.spec, start_s)
        robots.append(RobotStory(robot.name, robot.spec, motion, believed, sent, robot.goal_world))
    _check(run.folder, robots, [robot.name for robot in run.fleet.robots])
    shield = contract.shield if contract else projection_parameters(robots[0].spec)
    return TeamStory(
        run.folder,
        tuple(robots),
        shield,
        contract.arena if contract else None,
        run,
        contract,
        start_s,
        run.warnings if warnings is None else warnings,
    )


def story_of_recording(recording: Recording, robot: str | None = None) -> TeamStory:
    """Return the story of poses and commands alone.

    Raises:
        TestudoError: no kind of robot is known, robots of several kinds, or none with poses.
    """
    folder, robots, unseen = recording.folder or Path("recording"), [], []
    for name, heard in recording.robots.items():
        kind = robot or heard.robot_type
        if not kind:
            raise TestudoError(
                f"{folder}: robots.{name}: found no kind of robot, expected one; give --robot NAME or --robot FILE.toml"
            )
        spec = load_robot(kind)
        if not any(len(heard.series.get(role, ())) > 1 for role in ("pose", "odometry")):
            unseen.append(name)
            continue
        motion = _seen(located(heard).find("pose"), spec)
        believed = _seen(heard.series["odometry"], spec) if len(heard.series.get("odometry", ())) else motion
        if len(motion.stamp_s) > 1:
            commands = heard.series.get("command")
            sent = _told(commands, spec, motion) if commands is not None and len(commands) else None
            robots.append(RobotStory(name, spec, motion, believed, sent, None))
    _check(folder, robots, [name for name in recording.robots if name not in unseen or not robots])
    warnings = tuple(
        f"{name}: neither pose nor odometry is recorded: left out, what it did to others is not seen" for name in unseen
    )
    return TeamStory(
        folder, tuple(robots), projection_parameters(robots[0].spec), None, warnings=(*recording.warnings, *warnings)
    )


def _sent(run: RecordedRun, name: str, spec: RobotSpec, start_s: float) -> SentCommands | None:
    """Return what the driver was told: what the guard let through, or what the loop sent where that is not known."""
    driver, ticks = run.sent[name], run.ticks[name]
    if len(driver.stamp_s) > 1 and spec.kind != HOLONOMIC:  # a base's commands travel in its body
        chosen = rising(driver.stamp_s)
        return SentCommands(driver.stamp_s[chosen] - start_s, driver.command[chosen])
    if not ticks:
        return None
    ticks = ticks_in_order(ticks)
    return SentCommands(
        np.array([tick.stamp_s for tick in ticks]) - start_s, np.array([tick.sent_command for tick in ticks], float)
    )


def _check(folder: Path, robots: list[RobotStory], names: list[str]) -> None:
    missing = sorted(set(names) - {robot.name for robot in robots})
    if missing or not robots:
        raise TestudoError(f"{folder}: {', '.join(missing) or 'no robot'}: found fewer than 2 poses, expected some")
    kinds = sorted({robot.spec.name for robot in robots})
    if len(kinds) > 1:
        raise TestudoError(f"{folder}: found robots of several kinds ({', '.join(kinds)}), expected one kind")


def _motion(track: Track, start_s: float) -> RobotMotion:
    if len(track.stamp_s) > 1:
        track = track_in_order(track)
    return RobotMotion(track.stamp_s - start_s, track.position_world, np.unwrap(track.yaw), track.velocity)


def _seen(series: Series, spec: RobotSpec) -> RobotMotion:
    """Return poses without stamps that repeat or go back, and velocities from slopes over neighbouring samples."""
    chosen = rising(series.stamp_s)
    stamp_s, values = series.stamp_s[chosen], series.values[chosen]
    position = values[:, : spec.dimension]
    x, y, z, w = values[:, 3:7].T
    yaw = np.unwrap(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
    if len(stamp_s) < 2:
        return RobotMotion(stamp_s, position, yaw, np.zeros_like(position))
    slopes = local_slopes(stamp_s, np.concatenate([position, yaw[:, None]], axis=1))
    if spec.kind == DIFFERENTIAL_DRIVE:
        forward = slopes[:, 0] * np.cos(yaw) + slopes[:, 1] * np.sin(yaw)
        return RobotMotion(stamp_s, position, yaw, np.stack([forward, slopes[:, -1]], axis=1))
    return RobotMotion(stamp_s, position, yaw, slopes[:, : spec.dimension])


def _told(series: Series, spec: RobotSpec, motion: RobotMotion) -> SentCommands:
    """Return commands in the channels of the robot's model."""
    chosen = rising(series.stamp_s)
    stamp_s, values = series.stamp_s[chosen], series.values[chosen]
    if spec.kind == DIFFERENTIAL_DRIVE:
        return SentCommands(stamp_s, values[:, [0, 5]])
    linear = values[:, : spec.dimension].copy()
    if spec.kind == HOLONOMIC and series.frame != WORLD_FRAME:
        yaw = np.interp(stamp_s, motion.stamp_s, motion.yaw)
        linear[:, 0], linear[:, 1] = (
            np.cos(yaw) * values[:, 0] - np.sin(yaw) * values[:, 1],
            np.sin(yaw) * values[:, 0] + np.cos(yaw) * values[:, 1],
        )
    return SentCommands(stamp_s, linear)


def rising(stamp_s: np.ndarray) -> np.ndarray:
    """Return the samples (K,) int whose stamps are later than all before them."""
    if not len(stamp_s):
        return np.zeros(0, int)
    highest = np.maximum.accumulate(stamp_s)
    return np.flatnonzero(np.concatenate([[True], stamp_s[1:] > highest[:-1]]))
