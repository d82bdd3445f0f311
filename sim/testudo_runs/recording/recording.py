"""Series of one robot by role, and a recording of a team: what import, alignment, identification and gap speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from testudo_hardware.errors import TestudoError


class RecordingError(TestudoError):
    """A recording cannot be read, or lacks what is asked of it: the text says what and how to mend it."""


@dataclass(frozen=True)
class Series:
    """Samples of one role, as they were recorded: stamps may repeat, go back and leave gaps before alignment."""

    stamp_s: np.ndarray
    """(T,) time of the sample, since the start of the recording."""
    values: np.ndarray = field(repr=False)
    """(T, C): see `ROLES` for the channels, their units and frames."""
    received_s: np.ndarray | None = field(default=None, repr=False)
    """(T,) time at which it was recorded; None where that is not known."""
    frame: str = ""
    """Frame of the values, as the recording names it."""

    def __len__(self) -> int:
        return len(self.stamp_s)


@dataclass(frozen=True)
class RobotRecording:
    """What is known of one robot."""

    name: str
    robot_type: str
    """A registered robot, or the path of a robot file; empty if nobody said."""
    series: Mapping[str, Series]
    """By role, a key of `ROLES`."""

    def find(self, role: str) -> Series:
        """Return the series of a role.

        Raises:
            RecordingError: the recording has none, or an empty one.
        """
        found = self.series.get(role)
        if found is None or not len(found):
            has = ", ".join(name for name, series in self.series.items() if len(series)) or "nothing"
            raise RecordingError(f"{self.name}: no {role} is recorded; there is {has}")
        return found


@dataclass(frozen=True)
class Recording:
    """What is known of a team; times are seconds since ``start_ns``."""

    robots: Mapping[str, RobotRecording]
    start_ns: int
    """Nanoseconds of the Unix epoch."""
    folder: Path | None = None
    """Where it was read from."""
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """`run.json`."""
    complete: bool = True
    """Every message could be read."""
    warnings: tuple[str, ...] = ()
    """What was damaged or lost."""

    @property
    def duration_s(self) -> float:
        """Return the time from the first to the last sample [s]."""
        stamps = [series.stamp_s for robot in self.robots.values() for series in robot.series.values() if len(series)]
        if not stamps:
            return 0.0
        return float(max(stamp.max() for stamp in stamps) - min(stamp.min() for stamp in stamps))
