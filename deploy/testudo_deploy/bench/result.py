"""What every benchmark returns: a table for people and numbers for machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class BenchResult:
    """The outcome of one benchmark."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    values: dict[str, Any]
    """JSON-ready, the keys that `docs/results.md` names."""
    more: tuple[BenchResult, ...] = ()
    """Further tables, below."""


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
