"""Recovery of known parameters in many synthetic runs, each saved when it is done, and its errors and coverage."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testudo_hardware.errors import TestudoError

Found = dict[str, tuple[float, float, float, float]]  # truth, value, low and high by parameter
COLUMNS = ("parameter", "error, median", "error, largest", "95 % interval holds the truth", "width, median")
ERROR_BAR, COVERAGE_BAR = 0.05, 0.9


def recoveries(
    count: int,
    recover: Callable[[int], Found],
    settings: Mapping[str, Any],
    saved: Path | None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Found]:
    """Return the results of ``count`` draws, each made by ``recover`` from its number.

    The JSON file ``saved`` is written after each draw, and draws in it are not repeated; ``settings`` identify them.

    Raises:
        TestudoError: the file has other contents or other settings, or cannot be written.
    """
    found = _read_saved(settings, saved)[:count]
    while len(found) < count:
        say(f"draw {len(found) + 1} of {count}")
        found.append(recover(len(found)))
        if saved is not None:
            try:
                saved.write_text(json.dumps(saved_values(settings, found)) + "\n", encoding="utf-8")
            except OSError as error:
                raise TestudoError(f"--json {saved}: cannot be written: {error.strerror}") from error
    return found


def saved_values(settings: Mapping[str, Any], found: Sequence[Found]) -> dict[str, Any]:
    """Return the JSON-ready values from which `recoveries` resumes."""
    return {"settings": dict(settings), "draws": [{name: list(row) for name, row in one.items()} for one in found]}


def recovery_table(found: Sequence[Found], names: Mapping[str, str]) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    """Return rows under `COLUMNS` and the figures by parameter; ``names`` are the names in the table."""
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


def _read_saved(settings: Mapping[str, Any], saved: Path | None) -> list[Found]:
    if saved is None or not saved.exists():
        return []
    try:
        values = json.loads(saved.read_text(encoding="utf-8"))
        known, draws = (
            values["settings"],
            [{name: tuple(map(float, row)) for name, row in one.items()} for one in values["draws"]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TestudoError(f"--json {saved}: found no draws to resume; give another file") from error
    if known != dict(settings):
        raise TestudoError(f"--json {saved}: settings: found {known}, expected {dict(settings)}; give another file")
    return draws
