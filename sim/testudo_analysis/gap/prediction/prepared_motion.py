"""A recorded robot as a track and its commands, ready for replay: aligned, with velocities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testudo_analysis.replay.command_timeline import CommandTimeline
from testudo_hardware.links.wire import WORLD_FRAME
from testudo_hardware.motion import MotionModel
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import heading, interpolated, on_recorder_clock, smooth_velocity, tidy
from testudo_runs.recording import RobotRecording, Series
from testudo_runs.recording.recording import RecordingError
from testudo_runs.run_reader import Track

LONGEST_HOLD_S = 0.5
"""A command that was not followed by another one for longer is not known to have acted until then."""


@dataclass(frozen=True)
class Commands:
    """What a robot was told, each command once: it holds until the next one."""

    begin_s: np.ndarray
    """(M,) rising [s]."""
    values: np.ndarray
    """(D, M), as the motion model takes them."""
    known: np.ndarray
    """(M,) bool: False where the recording does not tell what acted."""


@dataclass(frozen=True)
class PreparedMotion:
    """One robot, ready for replay."""

    robot: str
    track: Track
    commands: Commands
    notes: tuple[str, ...] = ()
    """What alignment did to its series."""


def motion_of(robot: RobotRecording, spec: RobotSpec, *, dead_man_s: float | None = None) -> PreparedMotion:
    """Return a recorded robot as replay wants it.

    Args:
        robot: with poses and commands.
        spec: says of which kind it is.
        dead_man_s: the driver brakes after this time without a command, as those of ours do; None for drivers of
            which nothing is known: then a command holds, and after `LONGEST_HOLD_S` nothing is known.

    Raises:
        RecordingError: a series is missing, or too short.
    """
    (poses, pose_notes), (commands, command_notes) = (_aligned(robot, role) for role in ("pose", "command"))
    yaw = heading(poses.values[:, 3:7])
    columns = np.column_stack([poses.values[:, : spec.dimension], yaw])
    rates = smooth_velocity(poses.stamp_s, columns).rates
    has = np.isfinite(rates).all(axis=1)
    if has.sum() < 2:
        raise RecordingError("no stretch of poses is long enough to take a velocity from")
    velocity = rates[:, :-1]
    if spec.kind == DIFFERENTIAL_DRIVE:
        velocity = np.stack([rates[:, 0] * np.cos(yaw) + rates[:, 1] * np.sin(yaw), rates[:, -1]], axis=1)
    track = Track(poses.stamp_s[has], poses.stamp_s[has], poses.values[has, : spec.dimension], yaw[has], velocity[has])
    lonely = [f"{np.sum(~has)} poses too far from others to have a velocity"] if not has.all() else []
    return PreparedMotion(
        robot.name, track, _commands(commands, spec, track, dead_man_s), (*pose_notes, *lonely, *command_notes)
    )


def timeline_of(model: MotionModel, commands: Commands) -> CommandTimeline:
    """Return the effective commands of a model with its delay; what acted before the first one is not known."""
    effective = effective_command(model, commands.values)
    return CommandTimeline(
        np.append(-np.inf, commands.begin_s + model.spec.command_delay_s),
        np.concatenate([np.zeros_like(effective[:, :1]), effective], axis=1),
        np.append(False, commands.known),
    )


def _aligned(robot: RobotRecording, role: str) -> tuple[Series, list[str]]:
    """Return a series in order on the recorder's clock, and what that took in words."""
    moved, clock = on_recorder_clock(robot.find(role))
    clean, report = tidy(moved)
    counts = (
        (report.not_finite, "not finite"),
        (report.duplicate, "doubles"),
        (report.backward, "out of order"),
        (report.gap_count, "gaps"),
    )
    notes = [f"{role}: {', '.join(f'{count} {what}' for count, what in counts if count)}"]
    if clock is not None and clock.corrected:
        notes.append(
            f"{role}: stamps of another clock, moved by {clock.offset_s:.3f} s with a drift of "
            f"{1e6 * clock.drift:.0f} ppm"
        )
    return clean, [note for note in notes if not note.endswith(": ")]


def _commands(series: Series, spec: RobotSpec, track: Track, dead_man_s: float | None) -> Commands:
    stamps, twist = series.stamp_s, series.values
    values = twist[:, [0, 5]] if spec.kind == DIFFERENTIAL_DRIVE else twist[:, : spec.dimension]
    if spec.kind == HOLONOMIC and series.frame != WORLD_FRAME:
        yaw = np.interp(stamps, track.stamp_s, track.yaw)
        cosine, sine = np.cos(yaw), np.sin(yaw)
        values = np.stack(
            [cosine * values[:, 0] - sine * values[:, 1], sine * values[:, 0] + cosine * values[:, 1]], axis=1
        )
    limit, brakes = (LONGEST_HOLD_S, False) if dead_man_s is None else (dead_man_s, True)
    # where the next command is late, something else follows: braking, or what nobody knows
    late = np.flatnonzero(np.append(np.diff(stamps), np.inf) > limit)
    begin = np.insert(stamps, late + 1, stamps[late] + limit)
    values = np.insert(values, late + 1, 0.0, axis=0)
    known = np.insert(np.ones(len(stamps), bool), late + 1, brakes)
    known[-1] = False
    fresh = np.append(True, np.any(np.diff(values, axis=0) != 0, axis=1) | (np.diff(known) != 0))
    return Commands(begin[fresh], values[fresh].T, known[fresh])


def measured_poses(track: Track, times_s: np.ndarray, gap_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return position and yaw (T, D + 1), and velocity (T, D), at given times; NaN where no pose is near."""
    columns = np.column_stack([track.position_world, track.yaw, track.velocity])
    found = interpolated(track.stamp_s, columns, times_s, gap_s=gap_s)
    size = track.position_world.shape[1] + 1
    return found[:, :size], found[:, size:]
