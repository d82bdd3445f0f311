"""The metrics of a training run: one JSON line for each update, none twice after a resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from testudo_deploy.files.atomic_files import write_whole

NAME = "metrics.jsonl"


class MetricsLog:
    """Appends to ``metrics.jsonl`` of a run folder, from a given update on."""

    def __init__(self, folder: Path, updates: int) -> None:
        """Open the log of a run that stands at ``updates``; later lines, of lost updates, go."""
        path = folder / NAME
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [line for line in before.splitlines() if _update_of(line) <= updates]
        kept = "".join(line + "\n" for line in lines)
        if kept != before:
            write_whole(path, kept)
        self._last = _update_of(lines[-1]) if lines else 0
        self._earlier_s = float(json.loads(lines[-1]).get("seconds", 0.0)) if lines else 0.0
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._file.close()

    def write(self, update: int, decisions: int, seconds: float, values: Mapping[str, Any]) -> None:
        """Append an update, unless it is there; ``seconds`` count from this session's start and add up."""
        if update <= self._last:
            return
        row = {"update": update, "decisions": decisions, "seconds": self._earlier_s + seconds}
        self._file.write(json.dumps({**row, **values}) + "\n")
        self._file.flush()
        self._last = update


def _update_of(line: str) -> float:
    """Return the update of a line; infinity for one that was cut off."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
