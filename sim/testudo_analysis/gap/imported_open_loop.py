"""Open-loop replay of imported runs: the recorded commands, through the robot file's model, against what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.gap.gap_analysis import recorded_motions
from testudo_analysis.gap.prediction.batch_rollout import roll_out_all
from testudo_analysis.gap.prediction.drone_predictions import FlightRecord
from testudo_analysis.gap.prediction.prepared_motion import PreparedMotion
from testudo_analysis.replay.open_loop import ALL_ROBOTS, HORIZONS_S, OpenLoopGap, Reference, errors_of, rows_of
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_runs.recording import Recording

_FLOWN = "its motor signals were recorded rather than velocity commands: `testudo gap` replays those"


def open_loop_recording(
    recording: Recording,
    *,
    robot_type: str | None = None,
    reference: Reference = "truth",
    horizons_s: Sequence[float] = HORIZONS_S,
) -> tuple[list[OpenLoopGap], dict[str, str]]:
    """Replay the recorded commands of an imported run from every pose.

    Args:
        recording: imported.
        robot_type: robot or robot file for all robots; what the recording says if not given.
        reference: `truth` for poses from outside, or odometry where there are none; `odometry` for that alone.
        horizons_s: how far ahead, rising [s].

    Returns:
        One for each type of robot, and why robots were left out, by their names.

    Raises:
        TestudoError: no robot can be replayed.
    """
    if reference == "odometry":
        recording = replace(
            recording,
            robots={
                name: replace(robot, series={role: series for role, series in robot.series.items() if role != "pose"})
                for name, robot in recording.robots.items()
            },
        )
    groups, left_out = recorded_motions(recording, robot_type)
    found = []
    for spec, motions in groups:
        if isinstance(motions[0], FlightRecord):
            left_out |= {motion.robot: _FLOWN for motion in motions}
        elif rows := _rows(spec, motions, horizons_s):
            found.append(
                OpenLoopGap(
                    _reference(recording, motions),
                    spec.name,
                    spec.velocity_lag_s,
                    spec.command_delay_s,
                    tuple(horizons_s),
                    tuple(rows),
                )
            )
        else:
            left_out |= {
                motion.robot: f"no stretch with known commands is as long as {min(horizons_s)} s" for motion in motions
            }
    if not found:
        raise TestudoError(
            f"{recording.folder or 'recording'}: no robot can be replayed: "
            + "; ".join(f"{name}: {why}" for name, why in left_out.items())
        )
    return found, left_out


def _rows(spec: RobotSpec, motions: Sequence[PreparedMotion], horizons_s: Sequence[float]) -> list:
    outs = [out for out in roll_out_all(motions, [spec], horizons_s) if out.windows.valid.any()]
    errors = [errors_of(spec, out.motion.track, out.windows, out.predicted[0]) for out in outs]
    if not errors:
        return []
    pooled: Mapping[str, np.ndarray] = {
        name: np.concatenate([each[name] for each in errors], axis=1) for name in errors[0]
    }
    names = [*(out.motion.robot for out in outs), ALL_ROBOTS]
    return [row for name, each in zip(names, [*errors, pooled], strict=True) for row in rows_of(name, each, horizons_s)]


def _reference(recording: Recording, motions: Sequence[PreparedMotion]) -> str:
    """Return what the poses are, in a word or two."""
    roles = dict.fromkeys(
        "pose" if len(recording.robots[motion.robot].series.get("pose", ())) else "odometry" for motion in motions
    )
    return " and ".join(roles)
