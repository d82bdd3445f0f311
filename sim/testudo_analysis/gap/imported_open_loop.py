"""Open-loop replay of imported runs: the recorded commands, through the robot file's model, against what happened."""

from __future__ import annotations

from collections.abc import Sequence

from testudo_analysis.gap.prediction.batch_rollout import roll_out_all
from testudo_analysis.gap.prediction.drone_predictions import FlightRecord
from testudo_analysis.gap.prediction.replayed_robots import robots_by_type
from testudo_analysis.replay.open_loop import HORIZONS_S, GapRow, OpenLoopGap, errors_of, rows_of
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, TeamRecording

_FLOWN = "its motor signals were recorded rather than velocity commands: `testudo gap` replays those"


def open_loop_recording(
    recording: TeamRecording, *, horizons_s: Sequence[float] = HORIZONS_S
) -> tuple[list[OpenLoopGap], dict[str, str]]:
    """Replay the recorded commands of an imported run from every pose.

    Args:
        recording: imported.
        horizons_s: how far ahead, rising [s].

    Returns:
        One for each type of robot, and why robots were left out, by their names.

    Raises:
        TestudoError: no robot can be replayed.
    """
    groups, left_out = robots_by_type(recording)
    found = []
    for spec, robots in groups:
        if isinstance(robots[0], FlightRecord):
            left_out |= {robot.name: _FLOWN for robot in robots}
        elif rows := _rows(spec, robots, horizons_s):
            found.append(
                OpenLoopGap(
                    " and ".join(dict.fromkeys(robot.report.reference for robot in robots)),
                    spec.name,
                    spec.velocity_lag_s,
                    spec.command_delay_s,
                    tuple(horizons_s),
                    tuple(rows),
                )
            )
        else:
            left_out |= {
                robot.name: f"no stretch with known commands is as long as {min(horizons_s)} s" for robot in robots
            }
    if not found:
        raise TestudoError(
            f"{recording.folder}: no robot can be replayed: "
            + "; ".join(f"{name}: {why}" for name, why in left_out.items())
        )
    return found, left_out


def _rows(spec: RobotSpec, robots: Sequence[AlignedRobot], horizons_s: Sequence[float]) -> list[GapRow]:
    outs = [out for out in roll_out_all(robots, [spec], horizons_s) if out.windows.valid.any()]
    errors = [errors_of(spec, out.robot.trajectory, out.windows, out.predicted[0]) for out in outs]
    return rows_of([out.robot.name for out in outs], errors, horizons_s) if errors else []
