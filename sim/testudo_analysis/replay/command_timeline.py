"""What a robot's model says was acting at each moment, from the commands that it sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.motion import MotionModel
from testudo_hardware.motion.motion_model import effective_command


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


def command_timeline(model: MotionModel, records: Sequence[TickRecord]) -> CommandTimeline:
    """Return the timeline of a robot's sent commands.

    A command acts from its stamp plus the nominal delay until the next one does, or until the
    driver's dead-man time is over and zero acts (as `testudo_deploy.control.state_prediction`).
    """
    spec = model.spec
    zero = np.zeros(spec.dimension)
    from_the_start = records[0].sequence == 0
    parts: list[tuple[float, np.ndarray, bool]] = [(-np.inf, zero, from_the_start)]
    sent = np.array([record.sent_command for record in records]).T
    effective = effective_command(model, sent)
    for k, record in enumerate(records):
        begin = record.stamp_s + spec.command_delay_s
        is_last = k == len(records) - 1
        follows = is_last or records[k + 1].sequence == record.sequence + 1
        parts.append((begin, effective[:, k], follows))
        if is_last:
            parts.append((begin + spec.control_period_s, zero, False))
        elif follows and records[k + 1].stamp_s - record.stamp_s > spec.dead_man_s:
            parts.append((begin + spec.dead_man_s, zero, True))
    begins, commands, known = zip(*parts, strict=True)
    return CommandTimeline(np.array(begins), np.stack(commands, axis=1), np.array(known))
