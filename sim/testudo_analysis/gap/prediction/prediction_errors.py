"""Errors of predictions by channel, and how the robot moved where each of them began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.prediction.batch_rollout import RollOut
from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_state import length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

UNITS = {"position": "m", "along": "m", "across": "m", "up": "m", "yaw": "rad", "speed": "m/s", "attitude": "rad"}
"""The channels: distance; its parts along and across the way that was really driven, and up; heading; velocity; angle
of the rotation between both attitudes."""
_STANDS_M = 0.01
_SIDES_S = 0.05


@dataclass(frozen=True)
class StartFeatures:
    """How one robot moved at each start, (S,)."""

    speed_m_s: np.ndarray
    """Not negative."""
    turn_rad_s: np.ndarray
    acceleration_m_s2: np.ndarray
    """Of the speed, signed."""


def error_channels(spec: RobotSpec, out: RollOut, index: int) -> dict[str, np.ndarray]:
    """Return predicted less real (H, S) by channel, NaN where not valid; positions and speeds as lengths.

    Args:
        spec: of the robot.
        out: the predictions.
        index: of the parameter set.
    """
    predicted, track, end = out.predicted[index], out.robot.trajectory, out.windows.end
    offset = predicted.position_world - _taken(track.position_world, end)
    forward = _way_direction(spec, out)
    values = {
        "position": length(offset),
        "along": offset[0] * forward[0] + offset[1] * forward[1],
        "across": offset[1] * forward[0] - offset[0] * forward[1],
    }
    if spec.dimension == 3:
        values["up"] = offset[2]
    values["yaw"] = wrap_angle(predicted.yaw - track.yaw[end])
    if spec.kind == DIFFERENTIAL_DRIVE:
        values["speed"] = predicted.velocity[0] - track.velocity[:, 0][end]
    else:
        values["speed"] = length(predicted.velocity - _taken(track.velocity, end))
    if out.more:
        values |= out.more[index]
    hidden = ~out.windows.valid
    for value in values.values():
        value[hidden] = np.nan
    return values


def start_features(spec: RobotSpec, out: RollOut) -> StartFeatures:
    """Return how the robot moved at each start; acceleration over a tenth of a second."""
    track, start = out.robot.trajectory, out.windows.start
    wheeled = spec.kind == DIFFERENTIAL_DRIVE
    speed = track.velocity[:, 0] if wheeled else np.linalg.norm(track.velocity, axis=1)
    stamps = track.stamp_s
    sides = [stamps[start] + side for side in (-_SIDES_S, _SIDES_S)]
    before, after = (np.interp(side, stamps, speed) for side in sides)
    if wheeled:
        turn = track.velocity[start, 1]
    else:
        first, last = (np.interp(side, stamps, track.yaw) for side in sides)
        turn = (last - first) / (2 * _SIDES_S)
    return StartFeatures(np.abs(speed[start]), turn, (after - before) / (2 * _SIDES_S))


def travelled(out: RollOut) -> np.ndarray:
    """Return how far each robot really got within each window (H, S) [m]."""
    track, windows = out.robot.trajectory, out.windows
    way = np.linalg.norm(track.position_world[windows.end] - track.position_world[windows.start], axis=2)
    return np.where(windows.valid, way, np.nan)


def predicted_change(out: RollOut, index: int) -> MotionState:
    """Return by how much a parameter set says that the state changes within each window, (D, H, S)."""
    predicted, state = out.predicted[index], out.windows.state
    return MotionState(
        predicted.position_world - state.position_world[:, None],
        predicted.yaw - state.yaw,
        predicted.velocity - state.velocity[:, None],
    )


def _way_direction(spec: RobotSpec, out: RollOut) -> np.ndarray:
    """Return the direction (2, H, S) of the real way: a wheeled robot's heading in the middle, else of its course."""
    track, windows = out.robot.trajectory, out.windows
    # of the half angles of each sample, once: the middle is their sum
    cos, sin = np.cos(0.5 * track.yaw), np.sin(0.5 * track.yaw)
    start, end = (cos[windows.start], sin[windows.start]), (cos[windows.end], sin[windows.end])
    heading = np.stack([start[0] * end[0] - start[1] * end[1], start[1] * end[0] + start[0] * end[1]])
    if spec.kind == DIFFERENTIAL_DRIVE:
        return heading
    moved = (track.position_world[windows.end] - track.position_world[windows.start])[..., :2].transpose(2, 0, 1)
    way = np.linalg.norm(moved, axis=0)
    return np.where(way > _STANDS_M, moved / np.maximum(way, _STANDS_M), heading)


def _taken(columns: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return rows of (T, D) values as (D, ...)."""
    return np.stack([np.ascontiguousarray(column)[index] for column in columns.T])
