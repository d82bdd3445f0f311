"""Diagnostics of a process: a level, one sentence, and named values; pure.

`diagnostic_msgs/DiagnosticStatus` carries it; the stable code of a stop is the value `code`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """Levels of `diagnostic_msgs/DiagnosticStatus`."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class Status:
    """One status."""

    level: Level
    name: str  # the process: `r0: policy`, `r0: guard`
    hardware_id: str  # the robot
    message: str  # one sentence
    values: Mapping[str, str]  # in the order to show


def diagnostic_text(value: float | str | bool | None) -> str:
    """Return a value as diagnostics show it; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
