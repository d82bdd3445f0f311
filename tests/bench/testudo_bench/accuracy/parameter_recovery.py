"""Known parameters, found again: many draws of a truth, each kept as soon as it is done, and how well they came out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testudo_hardware.errors import TestudoError

Found = dict[str, tuple[float, float, float, float]]
"""Truth, value, low and high by parameter."""
COLUMNS = ("parameter", "error, median", "error, largest", "95 % interval holds the truth", "width, median")
ERROR_BAR, COVERAGE_BAR = 0.05, 0.9


def recoveries(
    count: int,
    recover: Callable[[int], Found],
    settings: Mapping[str, Any],
    kept: Path | None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Found]:
    """Return what was recovered in so many draws; those that a file holds are not done again.

    Args:
        count: draws.
        recover: makes one, by its number.
        settings: JSON-ready: draws of other settings are others.
        kept: JSON file, written after each draw; None keeps nothing.
        say: is told what is going on.

    Raises:
        TestudoError: the file is something else, of other settings, or cannot be written.
    """
    found = _kept(settings, kept)[:count]
    while len(found) < count:
        say(f"draw {len(found) + 1} of {count}")
        found.append(recover(len(found)))
        if kept is not None:
            _write(kept, kept_values(settings, found))
    return found


def kept_values(settings: Mapping[str, Any], found: Sequence[Found]) -> dict[str, Any]:
    """Return the JSON-ready values from which `recoveries` goes on."""
    return {"settings": dict(settings), "draws": [{name: list(row) for name, row in one.items()} for one in found]}


def recovery_table(found: Sequence[Found], names: Mapping[str, str]) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    """Return rows under `COLUMNS`, and the numbers by parameter.

    Args:
        found: draws.
        names: what each parameter is called in the table.
    """
    rows, values = [], {}
    for name in found[0] if found else ():
        true, value, low, high = np.array([one[name] for one in found]).T
        error, covered, width = np.abs(value / true - 1), (low <= true) & (true <= high), (high - low) / true
        values[name] = {
            "error_median": float(np.median(error)),
            "error_largest": float(error.max()),
            "within_bar": float(np.mean(error <= ERROR_BAR)),
            "bias": float(np.mean(value / true - 1)),
            "coverage": float(covered.mean()),
            "width_median": float(np.median(width)),
        }
        rows.append(
            (
                names.get(name, name),
                f"{np.median(error):.2%}",
                f"{error.max():.2%} (bar {ERROR_BAR:.0%})",
                f"{covered.sum()} of {len(covered)} (bar {COVERAGE_BAR:.0%})",
                f"{np.median(width):.2%}",
            )
        )
    return rows, values


def _kept(settings: Mapping[str, Any], kept: Path | None) -> list[Found]:
    if kept is None or not kept.exists():
        return []
    try:
        values = json.loads(kept.read_text(encoding="utf-8"))
        known, draws = (
            values["settings"],
            [{name: tuple(map(float, row)) for name, row in one.items()} for one in values["draws"]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TestudoError(f"--json {kept}: holds no draws that could go on; give another file") from error
    if known != dict(settings):
        raise TestudoError(f"--json {kept}: settings: found {known}, expected {dict(settings)}; give another file")
    return draws


def _write(file: Path, values: Mapping[str, Any]) -> None:
    try:
        file.write_text(json.dumps(values) + "\n", encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"--json {file}: cannot be written: {error.strerror}") from error
