"""The recorded team that incidents and counterfactuals start from, and its state and commands at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.alignment.prepare import UNSEEN, UNTYPED, load
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.run_reader import RecordedRun, Track

_GAP_S = 1.0  # between poses further apart, a straight line between them is not the position
_FRESH_S = 0.5  # a command stops acting so long after it, if no other follows


def load_team(folder: Path, robot_type: str | None = None, share: Share = quiet) -> TeamRecording:
    """Read a run folder of robots of one kind, with the contract of their policy.

    ``robot_type`` is a registered robot or robot file, for imported runs without one; ``share`` gets the completed
    fraction.

    Raises:
        TestudoError: no run, or as `one_team`.
    """
    return one_team(with_contract(load(folder, robot_type=robot_type, share=share)))


def with_contract(recording: TeamRecording) -> TeamRecording:
    """Return the recording with the contract of its policy, or with a warning where that cannot be read."""
    run = recording.run
    if run is None:
        return recording
    try:
        contract = PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256).contract
    except TestudoError as error:
        return replace(recording, warnings=(*recording.warnings, f"no policy: {error}"))
    return replace(recording, contract=contract)


def one_team(recording: TeamRecording) -> TeamRecording:
    """Return the recording if its robots are of one known kind and all have poses.

    Imported robots without pose and odometry may be missing.

    Raises:
        TestudoError: no kind of robot, several kinds, or a robot with fewer than two poses.
    """
    folder, imported = recording.folder, recording.run is None
    for name, why in recording.left_out.items():
        if why == UNTYPED:
            raise TestudoError(
                f"{folder}: robots.{name}: found no kind of robot, expected one; give --robot NAME or --robot FILE.toml"
            )
    missing = [name for name, why in recording.left_out.items() if not (imported and why.startswith(UNSEEN))]
    if missing or not recording.robots:
        names = ", ".join(sorted(missing or recording.left_out)) or "no robot"
        raise TestudoError(f"{folder}: {names}: found fewer than 2 poses, expected some")
    kinds = sorted({robot.spec.name for robot in recording.robots})
    if len(kinds) > 1:
        raise TestudoError(f"{folder}: found robots of several kinds ({', '.join(kinds)}), expected one kind")
    return recording


def body_track(run: RecordedRun, name: str) -> Track:
    """Return the measured poses of a body of a run.

    Raises:
        TestudoError: none is recorded.
    """
    track = run.bodies.get(name)
    if track is None or not len(track.stamp_s):
        raise TestudoError(f"{run.folder}: {name}: no pose of this body is recorded, which the task is scored with")
    return track


def body_poses(run: RecordedRun, names: Sequence[str], stamps_s: np.ndarray) -> np.ndarray:
    """Return x, y [m] and yaw [rad] (3, B, T) of bodies, interpolated at stamps (T,) on the steady clock.

    Raises:
        TestudoError: as `body_track`.
    """
    found = [body_track(run, name).at(stamps_s) for name in names]
    return np.stack([np.column_stack(pose).T for pose in found], axis=1)


@dataclass(frozen=True)
class RunMoment:
    """State of all robots at one time."""

    time_s: float  # since the start of the run
    position_world: np.ndarray = field(repr=False)  # (D, N) [m]
    yaw: np.ndarray = field(repr=False)  # (N,) [rad]
    velocity: np.ndarray = field(repr=False)  # (D, N): see `MotionState.velocity`
    bodies: np.ndarray | None = field(default=None, repr=False)
    """x, y [m] and yaw [rad] (3, B) of the bodies that robots push; None without any."""


def moment_at(recording: TeamRecording, time_s: float, bodies: Sequence[str] = ()) -> RunMoment:
    """Return the state of the team and of the named bodies at a time, interpolated between poses.

    Raises:
        TestudoError: not all robots are recorded at that time, one has no pose near it, or a body has none at all.
    """
    if not recording.robots:
        raise TestudoError(f"{recording.folder}: --from: found no robot at {time_s:g} s")
    low, high = recording.span_s
    if not low <= time_s <= high:
        raise TestudoError(
            f"{recording.folder}: --from: found {time_s:g} s, expected {low:.1f} to {high:.1f} s, in which "
            "all robots are recorded"
        )
    for robot in recording.robots:
        stamps = robot.trajectory.stamp_s
        after = int(np.clip(np.searchsorted(stamps, time_s), 1, len(stamps) - 1))
        if stamps[after] - stamps[after - 1] > _GAP_S:
            raise TestudoError(
                f"{recording.folder}: --from: {robot.name} was not seen between {stamps[after - 1]:.2f} and "
                f"{stamps[after]:.2f} s; choose another time than {time_s:g} s"
            )
    found = [robot.trajectory.at(np.array([time_s])) for robot in recording.robots]
    return RunMoment(
        time_s,
        np.stack([position[0] for position, _, _ in found], axis=1),
        np.array([yaw[0] for _, yaw, _ in found]),
        np.stack([velocity[0] for _, _, velocity in found], axis=1),
        body_poses(recording.run, bodies, np.array([recording.start_s + time_s]))[..., 0]
        if bodies and recording.run is not None
        else None,
    )


def commands_from(recording: TeamRecording, time_s: float, ticks: int) -> np.ndarray:
    """Return the actuator commands (T, D, N) of each tick from a time on.

    For a robot without recorded commands they are its recorded velocities.
    """
    at_s = time_s + recording.spec.control_period_s * np.arange(ticks)
    return np.stack([_commands(robot, at_s) for robot in recording.robots], axis=-1)


def _commands(robot: AlignedRobot, at_s: np.ndarray) -> np.ndarray:
    if robot.commands is None:
        ahead_s = robot.spec.command_delay_s + robot.spec.velocity_lag_s
        return robot.trajectory.at(at_s + ahead_s)[2]
    return robot.commands.held(at_s + 1e-9, _FRESH_S + 1e-9)[0]


def goals_of(recording: TeamRecording) -> np.ndarray | None:
    """Return the goals (D, N) [m]; None if they are not recorded."""
    goals = [robot.goal_world for robot in recording.robots]
    return None if any(goal is None for goal in goals) else np.array(goals, float).T
