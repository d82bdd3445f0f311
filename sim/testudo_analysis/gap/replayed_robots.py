"""The robots of a recording that can be replayed, by type, and the open-loop replay of imported runs."""

from collections.abc import Sequence
from dataclasses import replace

from testudo_analysis.gap.batch_rollout import roll_out_all
from testudo_analysis.gap.drone_predictions import AlignedFlight, flight_of
from testudo_analysis.replay.open_loop import HORIZONS_S, GapRow, OpenLoopGap, errors_of, rows_of
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.recording.recording import RecordingError

_FLOWN = "motor signals are recorded instead of velocity commands: `testudo gap` replays those"


def robots_by_type(
    recording: TeamRecording,
) -> tuple[list[tuple[RobotSpec, list[AlignedRobot]]], dict[str, str]]:
    """Return the robots of each type with the samples that have a velocity, and why others cannot be replayed.

    Raises:
        TestudoError: no robot can be replayed.
    """
    groups: dict[tuple[int, bool], tuple[RobotSpec, list[AlignedRobot]]] = {}
    left_out = dict(recording.left_out)
    for robot in recording.robots:
        series = robot.raw.series if robot.raw else {}
        flown = bool(robot.spec.rotors) and "motors" in series and "command" not in series
        try:
            own = flight_of(robot) if flown else _replayable(robot)
        except RecordingError as error:
            left_out[robot.name] = str(error).removeprefix(f"{robot.name}: ")
            continue
        groups.setdefault((id(robot.spec), flown), (robot.spec, []))[1].append(own)
    if not groups:
        raise _none_left(recording, left_out)
    return list(groups.values()), left_out


def open_loop_recording(
    recording: TeamRecording, *, horizons_s: Sequence[float] = HORIZONS_S
) -> tuple[list[OpenLoopGap], dict[str, str]]:
    """Replay the recorded commands of an imported run from every pose.

    ``horizons_s`` rise [s].

    Returns:
        One gap for each type of robot, and why robots were left out, by their names.

    Raises:
        TestudoError: no robot can be replayed.
    """
    groups, left_out = robots_by_type(recording)
    found = []
    for spec, robots in groups:
        if isinstance(robots[0], AlignedFlight):
            left_out |= {robot.name: _FLOWN for robot in robots}
        elif rows := _rows(spec, robots, horizons_s):
            reference = " and ".join(dict.fromkeys(robot.report.reference for robot in robots))
            found.append(OpenLoopGap.of(reference, spec, horizons_s, rows))
        else:
            why = f"no stretch with known commands is as long as {min(horizons_s)} s"
            left_out |= {robot.name: why for robot in robots}
    if not found:
        raise _none_left(recording, left_out)
    return found, left_out


def _replayable(robot: AlignedRobot) -> AlignedRobot:
    robot.needed_commands()
    if robot.trajectory.valid.sum() < 2:
        raise RecordingError("no stretch of poses is long enough to take a velocity from")
    return replace(robot, trajectory=robot.trajectory.take(robot.trajectory.valid))


def _none_left(recording: TeamRecording, left_out: dict[str, str]) -> TestudoError:
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    return TestudoError(f"{recording.folder}: no robot can be replayed: {reasons}")


def _rows(spec: RobotSpec, robots: Sequence[AlignedRobot], horizons_s: Sequence[float]) -> list[GapRow]:
    outs = [out for out in roll_out_all(robots, [spec], horizons_s) if out.windows.valid.any()]
    errors = [errors_of(spec, out.robot.trajectory, out.windows, out.predicted[0]) for out in outs]
    return rows_of([out.robot.name for out in outs], errors, horizons_s) if errors else []
