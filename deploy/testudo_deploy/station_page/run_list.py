"""The recorded runs in a folder, with the verdict of each; pure reading.

The verdict is that of the report page where there is one. Without, a run on the plant has the plant's own last event,
and a run with a task the last score; anything else is `not judged`, which is no praise.
"""

import itertools
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcap.exceptions import McapError
from mcap.reader import SeekingReader

from testudo_deploy.files.bag_writer import BAG_FILE, CLOSED_KEY, METADATA_FILE
from testudo_deploy.launch.run_folder import INFO_FILE
from testudo_deploy.launch.topic_names import EVENTS_TOPIC, SCORE_TOPIC, SUCCESS

REPORT_FILE = "report.html"
VERDICT_NAME = "testudo-verdict"
"""Name of the `meta` element of a report page that holds severity and words, with a colon between."""
_VERDICT = re.compile(rf'<meta name="{VERDICT_NAME}" content="(good|note|doubt|bad):([^"<>&]*)">')
_IS_CLOSED = re.compile(rf"{CLOSED_KEY}: ['\"]?yes")
_HEAD_BYTES = 4096
_DEPTH, _MOST, _MOST_MESSAGES = 3, 60, 100
_NANO = 1e9


@dataclass(frozen=True)
class RecordedRun:
    """One run folder."""

    name: str  # its path below the folder of all runs
    started_s: float  # Unix time
    severity: str  # good, note, doubt or bad
    verdict: str
    has_report: bool
    advice: str  # the command that makes the report; empty if it is there


class RunList:
    """Reads the runs of a folder; what has not changed is not read again."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of all runs; it need not exist."""
        self._folder = folder
        self._judged: dict[tuple[str, int, int], tuple[str, str]] = {}
        """By file and times of change, of the file and of the metadata: severity and verdict."""

    def runs(self) -> list[RecordedRun]:
        """Return the newest runs, the newest first."""
        found = [run for folder in _run_folders(self._folder) if (run := self._run(folder)) is not None]
        return sorted(found, key=lambda run: -run.started_s)[:_MOST]

    def report(self, name: str) -> Path | None:
        """Return the report of a run, None if the folder of runs has none of that name."""
        return next((folder / REPORT_FILE for folder in _run_folders(self._folder) if self._name(folder) == name), None)

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self._folder).as_posix()

    def _run(self, folder: Path) -> RecordedRun | None:
        try:
            info = json.loads((folder / INFO_FILE).read_text(encoding="utf-8"))
            started_s = float(info["start_wall_ns"]) / _NANO
        except (OSError, ValueError, KeyError, TypeError):
            return None
        report = folder / REPORT_FILE
        has_report = report.is_file()
        severity, verdict = self._judge(report if has_report else folder / BAG_FILE, folder)
        advice = "" if has_report else f"testudo report {folder}"
        return RecordedRun(self._name(folder), started_s, severity, verdict, has_report, advice)

    def _judge(self, file: Path, folder: Path) -> tuple[str, str]:
        try:
            about = folder / METADATA_FILE  # changes last, when the recorder closes the run
            key = (str(file), file.stat().st_mtime_ns, about.stat().st_mtime_ns if about.exists() else 0)
        except OSError as error:
            return "doubt", f"cannot be read: {error.strerror}"
        if key not in self._judged:
            try:
                self._judged[key] = _of_report(file) if file.name == REPORT_FILE else _of_bag(file, folder)
            except (OSError, ValueError, KeyError, TypeError, struct.error, McapError) as error:
                self._judged[key] = "doubt", f"cannot be read: {error or type(error).__name__}"
        return self._judged[key]


def _run_folders(folder: Path) -> Iterator[Path]:
    """Yield the run folders in a folder, at most `_DEPTH` below it; links are not followed."""
    waiting = [(folder, 0)]
    while waiting:
        at, depth = waiting.pop()
        if (at / INFO_FILE).is_file():
            yield at
        elif depth < _DEPTH:
            try:
                waiting += [(one, depth + 1) for one in at.iterdir() if one.is_dir() and not one.is_symlink()]
            except OSError:
                continue


def _of_report(file: Path) -> tuple[str, str]:
    with file.open("rb") as stream:
        found = _VERDICT.search(stream.read(_HEAD_BYTES).decode(errors="replace"))
    return ("note", "a report without a verdict") if found is None else (found[1], found[2])


def _of_bag(file: Path, folder: Path) -> tuple[str, str]:
    if not _IS_CLOSED.search((folder / METADATA_FILE).read_text(encoding="utf-8")):
        return "doubt", "not closed: it is being recorded, or its recorder was killed"
    with file.open("rb") as stream:
        return _of_plant(_newest_first(stream, EVENTS_TOPIC)) or _of_task(_newest_first(stream, SCORE_TOPIC))


def _of_plant(events: Iterator[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the verdict of the plant, whose events count the contacts so far; None without events."""
    end, contacts = None, -1
    for values in events:
        contacts = max(contacts, int(values.get("contacts", 0)))  # the plant goes on after the end
        if values.get("event") == "finished":
            end = str(values.get("outcome", ""))
            break
    if contacts < 0:
        return None
    touched = f"{contacts or 'no'} contact{'s' if contacts > 1 else ''}"
    if end is None:  # it has no end of its own, or was interrupted
        return ("bad" if contacts else "note"), f"{touched}; the recording tells no end"
    is_good = not contacts and end in ("arrived", SUCCESS)
    return ("bad" if contacts else "good" if is_good else "doubt"), f"{end.replace('_', ' ')}, {touched}"


def _of_task(scores: Iterator[dict[str, Any]]) -> tuple[str, str]:
    newest = next(scores, None)
    if newest is None:
        return "note", "not judged"
    state = newest.get("state")
    return ("note" if state == SUCCESS else "doubt"), f"task: {state}; contacts are not measured"


def _newest_first(stream: Any, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the last JSON objects of a topic of strings, the newest first."""
    stream.seek(0)
    reader = SeekingReader(stream)
    summary = reader.get_summary()
    if summary is None or not summary.chunk_indexes:
        return
    messages = reader.iter_messages(topics=[topic], reverse=True)
    for _, _, message in itertools.islice(messages, _MOST_MESSAGES):
        size = int.from_bytes(message.data[4:8], "little")  # CDR: four bytes of header, then length and characters
        yield json.loads(message.data[8 : 7 + size])
