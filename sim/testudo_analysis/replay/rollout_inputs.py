"""Inputs of a batched rollout: the effective commands of a robot over time, and starts and ends of predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.motion import MotionModel, MotionState
from testudo_hardware.motion.motion_model import effective_command
from testudo_runs.alignment import CommandPieces, Trajectory


@dataclass(frozen=True)
class CommandTimeline:
    """Consecutive constant effective commands; the last one has no end."""

    begin_s: np.ndarray  # (M,) [s], rising; the first is -inf
    effective: np.ndarray  # (D, M)
    known: np.ndarray  # (M,) bool: False where the sent command is not recorded

    def acting(self, times_s: np.ndarray) -> np.ndarray:
        """Return the index of the command that acts at times (...) [s]."""
        return np.searchsorted(self.begin_s, times_s, side="right") - 1

    def all_known(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return whether all commands are known from one (...) to another (...), both included."""
        unknown = np.concatenate([[0], np.cumsum(~self.known)])
        return unknown[last + 1] == unknown[first]


@dataclass(frozen=True)
class RolloutStarts:
    """Starts and ends of the predictions of one robot."""

    state: MotionState  # (D, S): at the starts
    start_s: np.ndarray  # (S,) [s]
    end_s: np.ndarray  # (H, S) [s], at or after the start
    segment: np.ndarray  # (S,) int: command of the timeline that acts at the start
    end_segment: np.ndarray  # (H, S) int: command that acts just before the end, or at it


@dataclass(frozen=True)
class OpenLoopWindows(RolloutStarts):
    """Recorded samples as starts of one robot, and the sample at which each horizon ends."""

    start: np.ndarray  # (S,) int: sample of the trajectory
    end: np.ndarray  # (H, S) int: sample of the trajectory; arbitrary where not valid
    valid: np.ndarray  # (H, S) bool: there is such a sample, all commands until then are known, and no push

    @property
    def starts(self) -> RolloutStarts:
        """Return the inputs of `rollout`; windows that are not valid end at their start."""
        end_s = np.where(self.valid, self.end_s, self.start_s)
        end_segment = np.where(self.valid, self.end_segment, self.segment)
        return RolloutStarts(self.state, self.start_s, end_s, self.segment, end_segment)


def timeline_of(model: MotionModel, pieces: CommandPieces, *, from_rest: bool = False) -> CommandTimeline:
    """Return the effective commands of a model with its delay.

    With ``from_rest`` nothing acted before the first command; otherwise that is unknown.
    """
    effective = effective_command(model, pieces.values)
    return CommandTimeline(
        np.append(-np.inf, pieces.begin_s + model.spec.command_delay_s),
        np.concatenate([np.zeros_like(effective[:, :1]), effective], axis=1),
        np.append(from_rest, pieces.known),
    )


def command_timeline(model: MotionModel, records: Sequence[TickRecord], start_s: float = 0.0) -> CommandTimeline:
    """Return the timeline of the sent commands of a robot's ticks; times relative to ``start_s`` of their clock."""
    # sent commands of ticks. A command acts from its stamp until the next one, or until the end of the driver's dead-
    # man time, after which zero acts (as in `testudo_deploy.control.state_prediction`). After a missing tick the
    # command is unknown
    zero = np.zeros(model.spec.dimension)
    parts: list[tuple[float, np.ndarray, bool]] = []
    for k, record in enumerate(records):
        begin, sent = record.stamp_s - start_s, np.array(record.sent_command, float)
        if k == len(records) - 1:
            parts += [(begin, sent, True), (begin + model.spec.control_period_s, zero, False)]
            continue
        follows = records[k + 1].sequence == record.sequence + 1
        parts.append((begin, sent, follows))
        if follows and records[k + 1].stamp_s - record.stamp_s > model.spec.dead_man_s:
            parts.append((begin + model.spec.dead_man_s, zero, True))
    begins, commands, known = zip(*parts, strict=True)
    return timeline_of(
        model,
        CommandPieces(np.array(begins), np.stack(commands, axis=1), np.array(known)),
        from_rest=records[0].sequence == 0,
    )


def pick_windows(
    timeline: CommandTimeline,
    track: Trajectory,
    horizons_s: Sequence[float],
    tolerance_s: float | np.ndarray | None = None,
) -> OpenLoopWindows:
    """Return a window for each sample; ends are samples too, so that nothing is interpolated.

    Windows in which the robot may have touched a body that it pushes are not valid.

    ``track`` has T samples; ``horizons_s`` (H,) [s]. ``tolerance_s`` is the largest distance of an end sample from each
    horizon (H, 1), or from all; default: half of the median period, which suits evenly spaced poses.
    """
    stamps = track.stamp_s
    wanted = stamps[None, :] + np.asarray(horizons_s)[:, None]
    after = np.clip(np.searchsorted(stamps, wanted), 1, len(stamps) - 1)
    end = np.where(wanted - stamps[after - 1] <= stamps[after] - wanted, after - 1, after)
    if tolerance_s is None:
        tolerance_s = 0.5 * float(np.median(np.diff(stamps)))
    near = np.abs(stamps[end] - wanted) <= tolerance_s * (1 + 1e-6) + 1e-9
    # the ends are samples too: one search gives the commands at both
    acting = timeline.acting(stamps)
    begin = np.arange(len(stamps))
    valid = near & (end > begin) & timeline.all_known(acting, acting[end])
    valid &= track.free(begin, np.maximum(begin, end))
    start = np.flatnonzero(valid.any(axis=0))
    end = end[:, start]
    state = MotionState(track.position_world[start].T, track.yaw[start], track.velocity[start].T)
    return OpenLoopWindows(state, stamps[start], stamps[end], acting[start], acting[end], start, end, valid[:, start])
