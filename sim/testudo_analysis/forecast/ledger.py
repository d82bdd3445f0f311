"""The ledger of forecasts and their scores: JSON lines, each with the hash of the line before it.

An entry that was changed, removed from the middle, inserted or moved is found. Entries cut off at the end are found
only by a reader who kept the last hash, which the verb prints.
"""

import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testudo_analysis.forecast.forecast import ForecastError, content_hash

LEDGER_FILE = "ledger.jsonl"
FORECAST, SCORE = "forecast", "score"
_CHAIN = ("number", "previous", "sha256")


@dataclass(frozen=True)
class LedgerEntry:
    """One line of a ledger."""

    kind: str  # `forecast` or `score`
    sha256: str  # of the line, with the hash of the one before it
    content: Mapping[str, Any]


def read_ledger(file: Path) -> tuple[LedgerEntry, ...]:
    """Return the entries of a ledger that nobody has changed; none where there is no file.

    Raises:
        ForecastError: unreadable, or a line that is not as it was written, or not in its place.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ForecastError(f"{file}: cannot be read as a ledger of forecasts: {error}") from error
    return _verified(file, text)


def append_entry(file: Path, kind: str, content: Mapping[str, Any]) -> LedgerEntry:
    """Verify a ledger, add one entry to it, and return it; the file is made if there is none.

    Raises:
        ForecastError: the ledger was changed, or cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+", encoding="utf-8") as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)  # two forecasts at once must not have the same place
            ledger.seek(0)
            entries = _verified(file, ledger.read())
            values = {
                "number": len(entries) + 1,
                "previous": entries[-1].sha256 if entries else "",
                "kind": kind,
                **content,
            }
            values["sha256"] = content_hash(values)
            ledger.write(json.dumps(values, allow_nan=False) + "\n")
    except OSError as error:
        raise ForecastError(f"{file}: cannot be written: {error.strerror}") from error
    return _entry(values)


def check_listed(entries: Sequence[LedgerEntry], forecast_sha256: str, where: Path) -> None:
    """Refuse a forecast that is not in the ledger.

    Raises:
        ForecastError: it is not.
    """
    if not any(entry.kind == FORECAST and entry.content["forecast"] == forecast_sha256 for entry in entries):
        raise ForecastError(f"{where}: does not list the forecast {forecast_sha256[:12]}, expected its entry")


def _verified(file: Path, text: str) -> tuple[LedgerEntry, ...]:
    """Return the entries of the text of a ledger."""
    entries: list[LedgerEntry] = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{file}: line {number}"
        try:
            values = json.loads(line)
            said = values.pop("sha256")
            found, place = content_hash(values), (values["number"], values["previous"], str(values["kind"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ForecastError(f"{where}: found no entry of a ledger, expected one of `testudo forecast`") from error
        if said != found:
            raise ForecastError(f"{where}: was changed: its content has the hash {found[:12]}, it says {said[:12]}")
        if place[:2] != (number, entries[-1].sha256 if entries else ""):
            raise ForecastError(f"{where}: does not follow the line before it: a line was removed, inserted or moved")
        entries.append(_entry(values | {"sha256": said}))
    return tuple(entries)


def _entry(values: Mapping[str, Any]) -> LedgerEntry:
    content = {key: value for key, value in values.items() if key not in (*_CHAIN, "kind")}
    return LedgerEntry(str(values["kind"]), str(values["sha256"]), content)
