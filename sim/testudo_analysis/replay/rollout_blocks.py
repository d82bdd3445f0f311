"""The starts of a rollout in blocks: each advances from border to border of the pieces of its robot's commands.

All starts of a robot have the same commands. These are cut once into pieces, each with its lag response. Every start
stores its state at each border; each horizon is one step from the last border before it. Here with NumPy in double
precision; `compiled_rollout` runs the same bodies with JAX.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_analysis.replay.rollout_inputs import CommandTimeline, RolloutStarts
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import LagResponse, MotionModel, MotionState

LONGEST_STEP_S = 0.05
"""A model step is exact only for a constant turn rate; a long command is cut into parts."""
QUICKEST_LAG_S = 1e-6
CALL = 1 << 14
"""Starts of one call: one compiled program fits runs of any length."""
STATE = ("position_world", "yaw", "velocity")


@dataclass(frozen=True)
class Pieces:
    """The commands of a robot in P pieces of at most `LONGEST_STEP_S`, from the first start to the last end."""

    first: np.ndarray  # (M,) int: the first piece of each command
    count: np.ndarray  # (M,) int: pieces of each command
    low_s: np.ndarray  # (M,) [s]: begin of the first piece
    length_s: np.ndarray  # (M,) [s]: length of each piece
    table: np.ndarray  # (D + 3, P): effective command, duration [s], gain and mean share of the response

    @classmethod
    def create(
        cls, timeline: CommandTimeline, starts: RolloutStarts, lag_s: float, precision: type[np.floating]
    ) -> "Pieces":
        """Cut the commands between the first start and the last end."""
        low = np.maximum(timeline.begin_s, starts.start_s.min(initial=np.inf))
        high = np.minimum(np.append(timeline.begin_s[1:], np.inf), starts.end_s.max(initial=-np.inf))
        # a command that does not act in this time has one piece of zero length
        span = np.maximum(high - low, 0.0)
        count = np.maximum(np.ceil(span / LONGEST_STEP_S - 1e-9), 1).astype(np.int64)
        length = span / count
        which = np.repeat(np.arange(len(count)), count)
        response = LagResponse.create(length[which], lag_s)
        table = np.concatenate(
            [timeline.effective[:, which], response.duration_s[None], response.gain[None], response.mean_share[None]]
        )
        return cls(np.cumsum(count) - count, count, low, length, table.astype(precision))

    def at(self, segment: np.ndarray, time_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the piece at times within commands (...), and the time since it began [s]."""
        length = self.length_s[segment]
        since = np.maximum(time_s - self.low_s[segment], 0.0)
        index = np.minimum((since / np.maximum(length, 1e-12)).astype(np.int64), self.count[segment] - 1)
        return self.first[segment] + index, since - index * length


@dataclass(frozen=True)
class StartBlock:
    """Some starts of one robot."""

    velocity: np.ndarray  # (D, B)
    yaw: np.ndarray  # (B,) [rad]
    piece: np.ndarray  # (B,) int: piece at the start
    rest_s: np.ndarray  # (B,) [s]: remaining time of that piece
    borders: np.ndarray  # (H, B) int: number of borders until each end
    left_s: np.ndarray  # (H, B) [s]: time from the last border, or from the start, to the end

    @classmethod
    def create(cls, pieces: Pieces, starts: RolloutStarts, part: slice, precision: type[np.floating]) -> "StartBlock":
        """Return the starts of ``part``."""
        segment, end_s = starts.segment[part], starts.end_s[:, part]
        piece, since = pieces.at(segment, starts.start_s[part])
        end, end_since = pieces.at(starts.end_segment[:, part], end_s)
        borders = np.maximum(end - piece, 0)
        left = np.where(borders > 0, end_since, end_s - starts.start_s[part])
        rest = np.maximum(pieces.length_s[segment] - since, 0.0)
        velocity, yaw = starts.state.velocity[:, part], wrap_angle(starts.state.yaw[part])
        velocity, yaw, rest, left = (values.astype(precision) for values in (velocity, yaw, rest, left))
        return cls(velocity, yaw, piece, rest, borders, left)


def step_by_step(model: MotionModel, table: np.ndarray, block: StartBlock, lag_s: np.floating) -> MotionState:
    """Return the states (D, H, B) at the ends, positions relative to the start; border by border."""
    most = int(block.borders.max(initial=0))
    state = MotionState(np.zeros_like(block.velocity), block.yaw, block.velocity)
    states = [state]
    for k in range(most):
        effective, whole = row(tuple(table), block.piece + k)
        state = model.step(state, effective, LagResponse.create(block.rest_s, lag_s) if k == 0 else whole)
        states.append(state)
    kept = MotionState(*(np.stack([getattr(one, name) for one in states]) for name in STATE))
    return to_ends(model, kept, row(tuple(table), block.piece + block.borders), block, lag_s)


def row(table: tuple[Array, ...], piece: Array) -> tuple[Array, LagResponse]:
    """Return effective commands (D, ...) and responses (...) of pieces (...); past the end those of the last piece."""
    xp = array_namespace(table[0])
    index = xp.minimum(piece, len(table[0]) - 1)
    # row by row: gathering from a matrix costs twice as much in XLA
    *effective, duration, gain, share = (values[index] for values in table)
    return xp.stack(effective), LagResponse(duration, gain, share)


def to_ends(
    model: MotionModel, kept: MotionState, acting: tuple[Array, LagResponse], block: StartBlock, lag_s: Any
) -> MotionState:
    """Return the states at the ends from the states (borders + 1, ...) at the borders."""
    index = array_namespace(kept.yaw).arange(block.borders.shape[1])[None]
    velocity = [kept.velocity[block.borders, d, index] for d in range(len(block.velocity))]
    position = [kept.position_world[block.borders, d, index] for d in range(len(block.velocity))]
    xp = array_namespace(kept.yaw)
    here = MotionState(xp.stack(position), kept.yaw[block.borders, index], xp.stack(velocity))
    return model.step(here, acting[0], LagResponse.create(block.left_s, lag_s))
