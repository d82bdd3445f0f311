"""What a robot's model says was acting at each moment, from the commands that it sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.motion import MotionModel
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import CommandPieces


@dataclass(frozen=True)
class CommandTimeline:
    """Constant effective commands, one after the other; the last one has no end."""

    begin_s: np.ndarray
    """(M,) [s], rising; the first is -inf."""
    effective: np.ndarray
    """(D, M)."""
    known: np.ndarray
    """(M,) bool: False where the record does not tell what was sent."""

    def acting(self, times_s: np.ndarray) -> np.ndarray:
        """Return which command acts at times (...) [s]."""
        return np.searchsorted(self.begin_s, times_s, side="right") - 1

    def all_known(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Return whether all commands are known from one (...) to another (...), both included."""
        unknown = np.concatenate([[0], np.cumsum(~self.known)])
        return unknown[last + 1] == unknown[first]


def timeline_of(model: MotionModel, pieces: CommandPieces, *, from_rest: bool = False) -> CommandTimeline:
    """Return the effective commands of a model with its delay.

    Args:
        model: of the robot.
        pieces: its commands.
        from_rest: nothing acted before the first command; else that is not known.
    """
    effective = effective_command(model, pieces.values)
    return CommandTimeline(
        np.append(-np.inf, pieces.begin_s + model.spec.command_delay_s),
        np.concatenate([np.zeros_like(effective[:, :1]), effective], axis=1),
        np.append(from_rest, pieces.known),
    )


def command_timeline(model: MotionModel, records: Sequence[TickRecord], start_s: float = 0.0) -> CommandTimeline:
    """Return the timeline of the commands that a robot's ticks record; times from ``start_s`` of their clock."""
    return timeline_of(model, tick_pieces(model.spec, records, start_s), from_rest=records[0].sequence == 0)


def tick_pieces(spec: RobotSpec, records: Sequence[TickRecord], start_s: float = 0.0) -> CommandPieces:
    """Return the sent commands of ticks.

    A command acts from its stamp until the next one does, or until the driver's dead-man time is over and zero acts (as
    `testudo_deploy.control.state_prediction`). What acts after a missing tick is not known.
    """
    zero = np.zeros(spec.dimension)
    parts: list[tuple[float, np.ndarray, bool]] = []
    for k, record in enumerate(records):
        begin, sent = record.stamp_s - start_s, np.array(record.sent_command, float)
        if k == len(records) - 1:
            parts += [(begin, sent, True), (begin + spec.control_period_s, zero, False)]
            continue
        follows = records[k + 1].sequence == record.sequence + 1
        parts.append((begin, sent, follows))
        if follows and records[k + 1].stamp_s - record.stamp_s > spec.dead_man_s:
            parts.append((begin + spec.dead_man_s, zero, True))
    begins, commands, known = zip(*parts, strict=True)
    return CommandPieces(np.array(begins), np.stack(commands, axis=1), np.array(known))
