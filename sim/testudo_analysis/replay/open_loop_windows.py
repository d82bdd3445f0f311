"""The starts and ends of open-loop replay: from every sample to the samples that are a horizon later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.replay.batched_rollout import RolloutStarts
from testudo_analysis.replay.command_timeline import CommandTimeline
from testudo_hardware.motion import MotionState
from testudo_runs.alignment import Trajectory


@dataclass(frozen=True)
class OpenLoopWindows:
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
    end_segment: np.ndarray
    """(H, S) int: command that acts at the end."""

    @property
    def starts(self) -> RolloutStarts:
        """Return what `rollout` takes; windows that are not valid end where they start."""
        end_s = np.where(self.valid, self.end_s, self.start_s)
        return RolloutStarts(
            self.state, self.start_s, end_s, self.segment, np.where(self.valid, self.end_segment, self.segment)
        )


def pick_windows(
    timeline: CommandTimeline,
    track: Trajectory,
    horizons_s: Sequence[float],
    tolerance_s: float | np.ndarray | None = None,
) -> OpenLoopWindows:
    """Return a window for each sample; ends are samples too, so that nothing is interpolated.

    Args:
        timeline: the commands of the robot.
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
    # the ends are samples, too: what acts at each sample is looked for once
    acting = timeline.acting(stamps)
    valid = near & (end > np.arange(len(stamps))) & timeline.all_known(acting, acting[end])
    start = np.flatnonzero(valid.any(axis=0))
    end = end[:, start]
    return OpenLoopWindows(
        start,
        end,
        valid[:, start],
        MotionState(track.position_world[start].T, track.yaw[start], track.velocity[start].T),
        stamps[start],
        stamps[end],
        acting[start],
        acting[end],
    )
