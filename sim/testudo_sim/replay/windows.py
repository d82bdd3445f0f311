"""The starts and ends of open-loop replay, and the roll-out of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_hardware.motion import LagResponse, MotionModel, MotionState
from testudo_sim.replay.timeline import Timeline
from testudo_sim.run_reader import Track


@dataclass(frozen=True)
class Windows:
    """Every start of one robot, and for each horizon the sample at which it ends."""

    start: np.ndarray
    """(S,) int, sample of the track."""
    end: np.ndarray
    """(H, S) int, sample of the track; any where not valid."""
    valid: np.ndarray
    """(H, S) bool: there is such a sample, and all commands until then are known."""
    state: MotionState
    """(D, S): the recorded states at the starts."""
    start_s: np.ndarray
    """(S,) [s]."""
    end_s: np.ndarray
    """(H, S) [s]."""
    segment: np.ndarray
    """(S,) int: command of the timeline that acts at the start."""


def pick_windows(
    timeline: Timeline,
    part: slice,
    track: Track,
    horizons_s: Sequence[float],
    tolerance_s: float | np.ndarray | None = None,
) -> Windows:
    """Return a window for each sample; ends are samples too, so that nothing is interpolated.

    Args:
        timeline: the commands of all robots.
        part: those of this one.
        track: what it did, (T,) samples.
        horizons_s: (H,) [s].
        tolerance_s: how far a sample may be from the horizon at most, of each (H, 1) or all; half of the usual period
            if not given, which is right where poses come evenly.
    """
    stamps = track.stamp_s
    wanted = stamps[None, :] + np.asarray(horizons_s)[:, None]
    after = np.clip(np.searchsorted(stamps, wanted), 1, len(stamps) - 1)
    end = np.where(wanted - stamps[after - 1] <= stamps[after] - wanted, after - 1, after)
    if tolerance_s is None:
        tolerance_s = 0.5 * float(np.median(np.diff(stamps)))
    near = np.abs(stamps[end] - wanted) <= tolerance_s * (1 + 1e-6) + 1e-9
    acting, known = acting_commands(timeline, part, stamps, stamps[end])
    valid = near & (end > np.arange(len(stamps))) & known
    start = np.flatnonzero(valid.any(axis=0))
    return Windows(
        start,
        end[:, start],
        valid[:, start],
        MotionState(track.position_world[start].T, track.yaw[start], track.velocity[start].T),
        stamps[start],
        stamps[end[:, start]],
        acting[start],
    )


def acting_commands(timeline: Timeline, part: slice, start_s: np.ndarray, end_s: np.ndarray
                    ) -> tuple[np.ndarray, np.ndarray]:
    """Return which command acts at the starts (S,), and whether all are known from there to the ends (H, S).

    Args:
        timeline: the commands of all robots.
        part: those of this one.
        start_s: (S,) [s].
        end_s: (H, S) [s].
    """
    begins = timeline.begin_s[part]
    first, last = (np.searchsorted(begins, times, side="right") - 1 for times in (start_s, end_s))
    unknown = np.concatenate([[0], np.cumsum(~timeline.known[part])])
    return first + part.start, unknown[last + 1] == unknown[first]


def roll_windows(
    model: MotionModel, timeline: Timeline, windows: Sequence[Windows]
) -> list[MotionState]:
    """Return for each robot the predicted states (D, H, S) at the ends; any where not valid."""
    states = [window.state for window in windows]
    state = MotionState(
        np.concatenate([s.position_world for s in states], axis=1),
        np.concatenate([s.yaw for s in states]),
        np.concatenate([s.velocity for s in states], axis=1),
    )
    valid = np.concatenate([window.valid for window in windows], axis=1)
    # an end that is not valid lies at the start: nothing has to be rolled out for it
    now_s = np.concatenate([window.start_s for window in windows])
    end_s = np.where(valid, np.concatenate([window.end_s for window in windows], axis=1), now_s)
    segment = np.concatenate([window.segment for window in windows])
    found = _roll(model, timeline, state, now_s, segment, end_s)
    edges = np.cumsum([len(window.start) for window in windows])[:-1]
    return [
        MotionState(*parts)
        for parts in zip(
            np.split(found.position_world, edges, axis=2),
            np.split(found.yaw, edges, axis=1),
            np.split(found.velocity, edges, axis=2),
            strict=True,
        )
    ]


def _roll(
    model: MotionModel,
    timeline: Timeline,
    state: MotionState,
    now_s: np.ndarray,
    segment: np.ndarray,
    end_s: np.ndarray,
) -> MotionState:
    """Return the states (D, H, S) at the ends (H, S), going from command to command."""
    lag = model.spec.velocity_lag_s
    dimension = len(timeline.effective)
    found = MotionState(
        np.zeros((dimension, *end_s.shape)),
        np.zeros(end_s.shape),
        np.zeros((dimension, *end_s.shape)),
    )
    last_s = end_s.max(axis=0, initial=-np.inf)
    next_s = np.append(timeline.begin_s[1:], np.inf)
    while np.any(now_s < last_s):
        command = timeline.effective[:, segment]
        until_s = np.maximum(np.minimum(next_s[segment], last_s), now_s)
        for h, at_s in enumerate(end_s):
            reached = np.flatnonzero((now_s < at_s) & (at_s <= until_s))
            if len(reached):
                here = MotionState(
                    state.position_world[:, reached], state.yaw[reached], state.velocity[:, reached]
                )
                part = LagResponse.create(at_s[reached] - now_s[reached], lag)
                after = model.step(here, command[:, reached], part)
                found.position_world[:, h, reached] = after.position_world
                found.yaw[h, reached] = after.yaw
                found.velocity[:, h, reached] = after.velocity
        state = model.step(state, command, LagResponse.create(until_s - now_s, lag))
        now_s, segment = until_s, np.minimum(segment + 1, len(next_s) - 1)
    return found
