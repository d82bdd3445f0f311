"""A recorded robot as a track and its commands, ready for replay: in order, each stamp once, with velocities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import savgol_filter

from testudo_hardware.frames import wrap_angle
from testudo_hardware.links.wire import WORLD_FRAME
from testudo_hardware.motion import MotionModel
from testudo_hardware.motion.model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_sim.recording import RobotRecording, Series
from testudo_sim.recording.types import RecordingError
from testudo_sim.replay.timeline import Timeline
from testudo_sim.run_reader import Track

LONGEST_GAP_S = 0.15
"""No velocity is taken across poses that are further apart."""
LONGEST_HOLD_S = 0.5
"""A command that was not followed by another one for longer is not known to have acted until then."""
_HALF_WIDTH_S, _GRID_S = 0.1, 0.01


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
class Motion:
    """One robot, ready for replay."""

    robot: str
    track: Track
    commands: Commands
    left_out: int
    """Poses that were not used: doubles, out of order, not finite, or too lonely to have a velocity."""


def motion_of(robot: RobotRecording, spec: RobotSpec, *, dead_man_s: float | None = None) -> Motion:
    """Return a recorded robot as replay wants it.

    Args:
        robot: with poses and commands.
        spec: says of which kind it is.
        dead_man_s: the driver brakes after this time without a command, as those of ours do; None for drivers of
            which nothing is known: then a command holds, and after `LONGEST_HOLD_S` nothing is known.

    Raises:
        RecordingError: a series is missing, or too short.
    """
    poses = robot.find("pose")
    stamps, values = _in_order(poses)
    yaw = np.unwrap(_yaw(values[:, 3:7]))
    track = _with_velocity(stamps, values[:, : spec.dimension], yaw, wheeled=spec.kind == DIFFERENTIAL_DRIVE)
    if len(track.stamp_s) < 2:
        raise RecordingError(f"{robot.name}: no stretch of poses is long enough to take a velocity from; a pose at "
                             f"least every {LONGEST_GAP_S} s for {2 * _HALF_WIDTH_S} s is needed")
    commands = _commands(robot.find("command"), spec, track, dead_man_s)
    return Motion(robot.name, track, commands, len(poses) - len(track.stamp_s))


def timeline_of(model: MotionModel, commands: Commands) -> Timeline:
    """Return the effective commands of a model with its delay; what acted before the first one is not known."""
    effective = effective_command(model, commands.values)
    return Timeline(np.append(-np.inf, commands.begin_s + model.spec.command_delay_s),
                    np.concatenate([np.zeros_like(effective[:, :1]), effective], axis=1),
                    np.append(False, commands.known))


def _in_order(series: Series) -> tuple[np.ndarray, np.ndarray]:
    good = np.isfinite(series.stamp_s) & np.isfinite(series.values).all(axis=1)
    stamps, index = np.unique(series.stamp_s[good], return_index=True)
    return stamps, series.values[good][index]


def _yaw(quaternion_xyzw: np.ndarray) -> np.ndarray:
    x, y, z, w = quaternion_xyzw.T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def _with_velocity(stamps: np.ndarray, position: np.ndarray, yaw: np.ndarray, *, wheeled: bool) -> Track:
    """Return the samples that have neighbours, with the slope of a parabola through those within `_HALF_WIDTH_S`."""
    rates = np.full((len(stamps), position.shape[1] + 1), np.nan)
    columns = np.column_stack([position, yaw])
    edges = np.flatnonzero(np.diff(stamps) > LONGEST_GAP_S) + 1
    width = 2 * round(_HALF_WIDTH_S / _GRID_S) + 1
    for part in np.split(np.arange(len(stamps)), edges):
        times = np.arange(stamps[part[0]], stamps[part[-1]], _GRID_S) if len(part) > 2 else ()
        if len(times) > width:
            even = np.stack([np.interp(times, stamps[part], column) for column in columns[part].T])
            slopes = savgol_filter(even, width, 2, deriv=1, delta=_GRID_S)
            rates[part] = np.stack([np.interp(stamps[part], times, slope) for slope in slopes], axis=1)
    has = np.isfinite(rates).all(axis=1)
    stamps, position, yaw, rates = stamps[has], position[has], yaw[has], rates[has]
    velocity = rates[:, :-1]
    if wheeled:
        forward = rates[:, 0] * np.cos(yaw) + rates[:, 1] * np.sin(yaw)
        velocity = np.stack([forward, rates[:, -1]], axis=1)
    return Track(stamps, stamps, position, yaw, velocity)


def _commands(series: Series, spec: RobotSpec, track: Track, dead_man_s: float | None) -> Commands:
    stamps, twist = _in_order(series)
    values = twist[:, [0, 5]] if spec.kind == DIFFERENTIAL_DRIVE else twist[:, : spec.dimension]
    if spec.kind == HOLONOMIC and series.frame != WORLD_FRAME:
        yaw = wrap_angle(np.interp(stamps, track.stamp_s, track.yaw))
        cosine, sine = np.cos(yaw), np.sin(yaw)
        values = np.stack([cosine * values[:, 0] - sine * values[:, 1], sine * values[:, 0] + cosine * values[:, 1]],
                          axis=1)
    limit, brakes = (LONGEST_HOLD_S, False) if dead_man_s is None else (dead_man_s, True)
    # where the next command is late, something else follows: braking, or what nobody knows
    late = np.flatnonzero(np.append(np.diff(stamps), np.inf) > limit)
    begin = np.insert(stamps, late + 1, stamps[late] + limit)
    values = np.insert(values, late + 1, 0.0, axis=0)
    known = np.insert(np.ones(len(stamps), bool), late + 1, brakes)
    known[-1] = False
    fresh = np.append(True, np.any(np.diff(values, axis=0) != 0, axis=1) | (np.diff(known) != 0))
    return Commands(begin[fresh], values[fresh].T, known[fresh])
