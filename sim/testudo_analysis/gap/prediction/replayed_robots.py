"""Which robots of a recording can be replayed, by type."""

from __future__ import annotations

from dataclasses import replace

from testudo_analysis.gap.prediction.drone_predictions import flight_of
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.recording.recording import RecordingError


def robots_by_type(
    recording: TeamRecording,
) -> tuple[list[tuple[RobotSpec, list[AlignedRobot]]], dict[str, str]]:
    """Return the robots of each type with the samples that have a velocity, and why others cannot be replayed."""
    groups: dict[tuple[int, bool], tuple[RobotSpec, list[AlignedRobot]]] = {}
    left_out = dict(recording.left_out)
    for robot in recording.robots:
        series = robot.raw.series
        flown = bool(robot.spec.rotors) and "motors" in series and "command" not in series
        try:
            own = flight_of(robot) if flown else _replayable(robot)
        except RecordingError as error:
            left_out[robot.name] = str(error).removeprefix(f"{robot.name}: ")
            continue
        groups.setdefault((id(robot.spec), flown), (robot.spec, []))[1].append(own)
    return list(groups.values()), left_out


def _replayable(robot: AlignedRobot) -> AlignedRobot:
    robot.needed_commands()
    if robot.trajectory.valid.sum() < 2:
        raise RecordingError("no stretch of poses is long enough to take a velocity from")
    return replace(robot, trajectory=robot.trajectory.take(robot.trajectory.valid))
