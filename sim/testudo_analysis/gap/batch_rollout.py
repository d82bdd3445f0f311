"""Predictions from every start of all robots of one type by several parameter sets, and their errors by channel."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from testudo_analysis.replay.batched_rollout import rollout
from testudo_analysis.replay.rollout_inputs import CommandTimeline, OpenLoopWindows, pick_windows, timeline_of
from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_state import length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot

_FARTHEST_S, _SHARE = 0.02, 0.1  # largest distance [s] of a sample from a horizon, and largest share of the horizon


@dataclass(frozen=True)
class RollOut:
    """Predictions from every start of one robot."""

    robot: AlignedRobot
    windows: OpenLoopWindows  # valid for every parameter set
    predicted: tuple[MotionState, ...]  # (D, H, S) at the ends by parameter set; arbitrary where not valid
    more: tuple[Mapping[str, np.ndarray], ...] = ()
    """Errors (H, S) of channels that the states do not contain, by parameter set."""


def roll_out_all(
    robots: Sequence[AlignedRobot], specs: Sequence[RobotSpec], horizons_s: Sequence[float]
) -> list[RollOut]:
    """Return the predictions of each parameter set from every pose of every robot.

    ``specs`` are parameter sets of the robots' type, which share the windows; ``horizons_s`` rise [s].
    """
    made = []
    for spec in specs:
        model = motion_model(spec)
        timelines = by_robot(partial(timeline_of, model), [robot.pieces for robot in robots])
        like = made[0][2] if made else [None] * len(robots)
        made.append((model, timelines, by_robot(partial(_windows, horizons_s), timelines, robots, like)))
    valid = [
        np.logical_and.reduce([windows.valid for windows in of_robot])
        for of_robot in zip(*(windows for _, _, windows in made), strict=True)
    ]
    predicted = [
        rollout(model, timelines, [replace(own, valid=both).starts for own, both in zip(windows, valid, strict=True)])
        for model, timelines, windows in made
    ]
    return [
        RollOut(robot, replace(windows, valid=both), of_robot)
        for robot, windows, both, of_robot in zip(robots, made[0][2], valid, zip(*predicted, strict=True), strict=True)
    ]


def _windows(
    horizons_s: Sequence[float], timeline: CommandTimeline, robot: AlignedRobot, like: OpenLoopWindows | None
) -> OpenLoopWindows:
    """Return the windows of a robot, from windows ``like`` that differ only in the known commands."""
    if like is None:
        return pick_windows(timeline, robot.trajectory, horizons_s, _tolerance(robot, horizons_s))
    acting = timeline.acting(robot.trajectory.stamp_s)
    first, last = acting[like.start], acting[like.end]
    return replace(like, valid=like.valid & timeline.all_known(first, last), segment=first, end_segment=last)


def by_robot(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return the results of a function for each robot, on all cores: NumPy releases the interpreter lock."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, *columns))


def _tolerance(robot: AlignedRobot, horizons_s: Sequence[float]) -> np.ndarray:
    """Return the largest distance of an end from each horizon (H, 1) [s]: poses of real trackers are uneven."""
    half = 0.5 * float(np.median(np.diff(robot.trajectory.stamp_s)))
    return np.maximum(half, np.minimum(_SHARE * np.asarray(horizons_s), _FARTHEST_S))[:, None]


UNITS = {"position": "m", "along": "m", "across": "m", "up": "m", "yaw": "rad", "speed": "m/s", "attitude": "rad"}
"""Channels: distance; its parts along and across the real path, and up; heading; velocity; angle between attitudes."""
_STANDS_M = 0.01
_SIDES_S = 0.05


@dataclass(frozen=True)
class StartFeatures:
    """Motion of one robot at each start, (S,)."""

    speed_m_s: np.ndarray  # not negative
    turn_rad_s: np.ndarray
    acceleration_m_s2: np.ndarray  # of the speed, signed


def error_channels(spec: RobotSpec, out: RollOut, index: int) -> dict[str, np.ndarray]:
    """Return predicted less real (H, S) by channel, NaN where not valid; positions and speeds as lengths.

    ``index`` is that of the parameter set of ``out``.
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
    """Return the motion of the robot at each start; acceleration over 0.1 s."""
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
    """Return the recorded displacement within each window (H, S) [m]."""
    track, windows = out.robot.trajectory, out.windows
    way = np.linalg.norm(track.position_world[windows.end] - track.position_world[windows.start], axis=2)
    return np.where(windows.valid, way, np.nan)


def predicted_change(out: RollOut, index: int) -> MotionState:
    """Return the predicted change of the state within each window (D, H, S)."""
    predicted, state = out.predicted[index], out.windows.state
    return MotionState(
        predicted.position_world - state.position_world[:, None],
        predicted.yaw - state.yaw,
        predicted.velocity - state.velocity[:, None],
    )


def _way_direction(spec: RobotSpec, out: RollOut) -> np.ndarray:
    """Return the direction (2, H, S) of the real path: a wheeled robot's middle heading, otherwise its course."""
    track, windows = out.robot.trajectory, out.windows
    # half angles of each sample: the middle heading is their sum
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
