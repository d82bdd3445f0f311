"""Every start of every robot of one type, through any number of parameter sets at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import RobotSpec
from testudo_sim.gap.motion import Motion, timeline_of
from testudo_sim.replay.batch import roll_batch
from testudo_sim.replay.timeline import joined
from testudo_sim.replay.windows import Windows, acting_commands, pick_windows

_FARTHEST_S, _SHARE = 0.02, 0.1
"""A sample stands for a horizon if it is off by no more than this, and by no more than this share of it."""
_NO_LIMIT = 1e9


@dataclass(frozen=True)
class RollOut:
    """What was predicted from every start of one robot."""

    motion: Motion
    windows: Windows
    """Valid for every parameter set."""
    predicted: tuple[MotionState, ...]
    """(D, H, S) at the ends by parameter set; any where not valid."""
    more: tuple[Mapping[str, np.ndarray], ...] = ()
    """Errors (H, S) by further channel that the states do not show, by parameter set."""


def roll_out_all(motions: Sequence[Motion], specs: Sequence[RobotSpec], horizons_s: Sequence[float]
                 ) -> list[RollOut]:
    """Return the predictions of each parameter set from every pose of every robot.

    Args:
        motions: robots of one type.
        specs: that type with one or more sets of parameters; what they share are the windows.
        horizons_s: rising [s].
    """
    picked: list[Windows] = []
    predicted: list[list[MotionState]] = [[] for _ in motions]
    edges = np.zeros(0, int)
    segments = []
    for k, spec in enumerate(specs):
        model = motion_model(spec)
        timeline, first = joined([timeline_of(model, motion.commands) for motion in motions])
        parts = [slice(*ends) for ends in zip(first, np.append(first[1:], len(timeline.begin_s)), strict=True)]
        if k == 0:
            picked = by_robot(lambda part, motion, timeline=timeline: pick_windows(
                timeline, part, motion.track, horizons_s, _tolerance(motion, horizons_s)), parts, motions)
            edges = np.cumsum([len(windows.start) for windows in picked])[:-1]
            start_s, end_s = (np.concatenate(column, axis=-1) for column in zip(
                *((windows.start_s, windows.end_s) for windows in picked), strict=True))
            state = _joined_states([windows.state for windows in picked])
        found = [acting_commands(timeline, part, windows.start_s, windows.end_s)
                 for part, windows in zip(parts, picked, strict=True)]
        picked = [replace(windows, valid=windows.valid & known)
                  for windows, (_, known) in zip(picked, found, strict=True)]
        segments.append((model, timeline, np.concatenate([acting for acting, _ in found])))
    valid = np.concatenate([windows.valid for windows in picked], axis=1)
    ends = np.where(valid, end_s, -np.inf)
    for model, timeline, segment in segments:
        made = roll_batch(model, timeline, state, start_s, ends, segment)
        for own, part in zip(predicted, _split_states(made, edges), strict=True):
            own.append(part)
    return [RollOut(motion, windows, tuple(own)) for motion, windows, own in zip(motions, picked, predicted,
                                                                                 strict=True)]


def by_robot(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return what a function makes of each robot, on all cores: NumPy lets go of the interpreter meanwhile."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, *columns))


def dead_reckoning(spec: RobotSpec) -> RobotSpec:
    """Return a robot that does at once what it is told: the prediction that any model has to beat."""
    plain = {"turn_slip_s_rad": 0.0} if hasattr(spec, "turn_slip_s_rad") else {}
    return replace(spec, velocity_lag_s=1e-6, command_delay_s=0.0, speed_scale=1.0, turn_scale=1.0,
                   acceleration_limit_m_s2=_NO_LIMIT, turn_acceleration_limit_rad_s2=_NO_LIMIT, **plain)


def _tolerance(motion: Motion, horizons_s: Sequence[float]) -> np.ndarray:
    """Return by how much an end may miss each horizon (H, 1) [s]: poses of real trackers do not come evenly."""
    half = 0.5 * float(np.median(np.diff(motion.track.stamp_s)))
    return np.maximum(half, np.minimum(_SHARE * np.asarray(horizons_s), _FARTHEST_S))[:, None]


def _joined_states(states: Sequence[MotionState]) -> MotionState:
    return MotionState(np.concatenate([s.position_world for s in states], axis=-1),
                       np.concatenate([s.yaw for s in states], axis=-1),
                       np.concatenate([s.velocity for s in states], axis=-1))


def _split_states(state: MotionState, edges: np.ndarray) -> list[MotionState]:
    columns = (np.split(values, edges, axis=-1) for values in (state.position_world, state.yaw, state.velocity))
    return [MotionState(*parts) for parts in zip(*columns, strict=True)]
