"""Imports external recordings as a run folder, completely or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.atomic_folder import whole_folder
from testudo_runs.importing.bag_import import bags_of, import_bags
from testudo_runs.importing.logs.log_discovery import discover, files_of
from testudo_runs.importing.logs.log_reader import Imported, read_logs
from testudo_runs.importing.mapping.import_losses import Loss
from testudo_runs.importing.mapping.mapping_file import ReadMap
from testudo_runs.recording.recording import Recording, RecordingError
from testudo_runs.recording.statistics import SeriesFacts, recording_facts
from testudo_runs.recording.write import write_recording

REPORT_FILE = "import.json"
REPORT_SCHEMA = "testudo/import/1"
_HASH_BYTES = 1 << 20


@dataclass(frozen=True)
class ImportRequest:
    """Sources and options of an import."""

    sources: tuple[Path, ...]
    map: ReadMap | None = None
    robot_types: Mapping[str, str] | None = None
    """By robot; the empty name means all other robots."""
    pick: str | None = None
    """Name of the run, where the files belong to several."""
    msg_path: tuple[Path, ...] = ()
    """Folders with .msg files for messages in bags."""
    offsets: Mapping[str, float] = field(default_factory=dict)
    """Seconds to add to the times of a bag, by its name, or to the logs of a robot, by its name."""


@dataclass(frozen=True)
class ImportResult:
    """Result of an import."""

    folder: Path
    recording: Recording
    facts: Mapping[str, Mapping[str, SeriesFacts]]
    report: dict[str, Any]
    """Content of `import.json`."""
    losses: tuple[Loss, ...]
    notes: tuple[str, ...]
    messages: int


def parse_robot_types(texts: Sequence[str]) -> dict[str, str]:
    """Read ``TYPE`` and ``ROBOT=TYPE``; the empty name means all other robots.

    Raises:
        TestudoError: an unknown type, or two types for one robot.
    """
    found: dict[str, str] = {}
    for text in texts:
        robot, _, kind = text.rpartition("=")
        if robot in found:
            raise TestudoError(f"--robot-type {text}: {robot or 'the type of all robots'} is given twice")
        try:
            load_robot(kind)
        except TestudoError as error:
            raise TestudoError(f"--robot-type: {error}") from error
        found[robot] = str(Path(kind).absolute()) if kind.endswith(".toml") else kind
    return found


def import_run(
    request: ImportRequest, folder: Path, tell: Callable[[str, float], None] = lambda *_: None
) -> ImportResult:
    """Read sources and write a run folder.

    Args:
        request: what to import.
        folder: of the run; absent or empty.
        tell: called with the current step and its completed fraction.

    Raises:
        TestudoError: the folder is not empty, nothing in the sources can be used, or writing fails; no run folder
            is left.
    """
    folder = Path(folder)
    _check_free(folder)
    imported, files, more = read_sources(request, lambda share: tell("reading", share))
    facts = recording_facts(imported.recording)
    report = {
        "schema": REPORT_SCHEMA,
        "sources": [_provenance(file) for file in files],
        "pick": request.pick,
        **more,
        "notes": list(imported.notes),
        "complete": not imported.losses,
        "losses": [loss.to_dict() for loss in imported.losses],
        "start_ns": imported.recording.start_ns,
        "duration_s": imported.recording.duration_s,
        "robots": {
            name: {
                "type": robot.robot_type,
                "roles": {
                    role: {**facts[name][role].to_dict(), "origin": imported.origins.get(name, {}).get(role)}
                    for role in robot.series
                },
            }
            for name, robot in imported.recording.robots.items()
        },
    }
    messages = _write(imported.recording, report, folder, lambda share: tell("writing", share))
    return ImportResult(folder, imported.recording, facts, report, imported.losses, imported.notes, messages)


def read_sources(
    request: ImportRequest, tell: Callable[[float], None] = lambda _: None
) -> tuple[Imported, list[Path], dict[str, Any]]:
    """Return the recording of sources, its files, and further entries of the report.

    Raises:
        TestudoError: nothing in the sources can be used.
    """
    try:
        bags = bags_of(request.sources)
        files = [] if bags else files_of(request.sources)
    except OSError as error:
        raise RecordingError(f"{error.filename}: cannot be read: {error.strerror or error}") from error
    if bags:
        if request.pick is not None:
            raise RecordingError(f"--pick {request.pick}: applies to logs of several runs, not to bags")
        return import_bags(bags, request.map, request.robot_types or {}, request.msg_path, request.offsets, tell)
    source = discover(files, request.map, request.pick)
    imported = read_logs(source.logs, request.robot_types or {}, tell, request.offsets)
    maps = {log.map.name: log.map for log in source.logs}
    more = {
        "maps": [{"name": one.name, "file": Path(one.file).name, "text": one.raw} for one in maps.values()],
        "choices": {
            log.file.name: {"robot": log.robot, "map": log.map.name, "because": log.how} for log in source.logs
        },
        "ignored": [file.name for file in source.ignored],
    }
    return imported, [log.file for log in source.logs], more


def _check_free(folder: Path) -> None:
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise RecordingError(f"{folder}: cannot be used: {error.strerror or error}") from error
    if taken:
        raise RecordingError(f"{folder}: exists already; give a new folder for the run")


def _write(recording: Recording, report: dict[str, Any], folder: Path, tell: Callable[[float], None]) -> int:
    """Write the run folder completely or not at all; return the number of messages."""
    try:
        with whole_folder(folder) as made:
            messages = write_recording(recording, made, {"import": report}, tell)
            (made / REPORT_FILE).write_text(
                json.dumps({**report, "messages": messages}, indent=2, allow_nan=False) + "\n", encoding="utf-8"
            )
    except OSError as error:
        raise RecordingError(f"{folder}: the run cannot be written: {error.strerror or error}") from error
    return messages


def _provenance(file: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    try:
        with file.open("rb") as stream:
            while data := stream.read(_HASH_BYTES):
                digest.update(data)
                size += len(data)
    except OSError as error:
        return {"name": file.name, "path": str(file), "sha256": None, "error": error.strerror or str(error)}
    return {"name": file.name, "path": str(file), "bytes": size, "sha256": digest.hexdigest()}
