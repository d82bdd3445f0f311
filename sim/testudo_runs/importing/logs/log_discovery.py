"""Finds the logs among the files of a source: mapping, robot and run of each file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testudo_runs.importing.logs.crazyflie_sd_log import looks_like_usd
from testudo_runs.importing.logs.ulog_file import looks_like_ulog
from testudo_runs.importing.mapping.mapping_file import (
    BinaryMap,
    ReadMap,
    TextMap,
    UlogMap,
    load_map,
    plain_name,
    shipped_maps,
)
from testudo_runs.recording.recording import RecordingError

_HEAD_BYTES = 8192
_FIELDS = {"robot": "(?P<robot>[A-Za-z0-9-]+)", "run": "(?P<run>.+?)"}


@dataclass(frozen=True)
class LogFile:
    """One log of one robot."""

    file: Path
    map: ReadMap
    part: TextMap | BinaryMap
    robot: str  # its name
    run: str  # text that matched `{run}`; empty where the file name has no run
    how: str  # why this mapping was chosen, as a sentence


_CONVERTED = {
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"\x1f\x8b": "is compressed by gzip; unpack it first",
    b"PAR1": "is a Parquet file; write it as CSV, and give a mapping with --map",
    b"\x89HDF": "is an HDF5 or MATLAB file; write its series as CSV, and give a mapping with --map",
    b"MATLAB": "is a MATLAB file; write its series as CSV, and give a mapping with --map",
}
"""Begins of files that are not read, and what makes them so that they are."""
_LONGEST_MARK = max(map(len, _CONVERTED))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the given files and all files below the given folders, without hidden ones.

    Raises:
        RecordingError: there is no such file or folder, or it is of a format that has to be converted first.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(
                file
                for file in path.rglob("*")
                if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)
            )
        elif path.is_file():
            if remedy := _remedy(path):
                raise RecordingError(remedy)
            found.append(path)
        else:
            raise RecordingError(f"{path}: no such file or folder")
    return list(dict.fromkeys(found))


def _remedy(file: Path) -> str:
    """Return what makes a file readable, if it is of a format that is not read; else nothing."""
    try:
        with file.open("rb") as stream:
            begin = stream.read(_LONGEST_MARK)
    except OSError:
        return ""
    found = (text for mark, text in _CONVERTED.items() if begin.startswith(mark))
    return next((f"{file}: {text.format(name=file.name, stem=file.stem)}" for text in found), "")


def discover(files: Sequence[Path], given: ReadMap | None, pick: str | None) -> tuple[list[LogFile], list[Path]]:
    """Return the logs of one run among files, and the files that are not logs.

    ``given`` is the mapping; None chooses one by the header of each file. ``pick`` is the name of the run, if the files
    belong to several.

    Raises:
        RecordingError: no log, none of the run, or logs of several runs.
    """
    by_run = runs_of(files, given)
    if not by_run:
        raise RecordingError(_nothing(files, given))
    logs = {log.file: log for found in by_run.values() for log in found}
    runs = sorted(run for run in by_run if run)
    if pick is not None and pick not in runs:
        raise RecordingError(
            f"--pick: found {pick!r}, expected one of {', '.join(runs) or 'none: the file names contain no run'}"
        )
    if pick is None and len(runs) > 1:
        raise RecordingError(
            f"the files belong to {len(runs)} runs: {', '.join(runs)}; choose one with --pick {runs[0]}, "
            "or give the files of one run"
        )
    chosen = [logs[file] for file in files if file in logs and (pick is None or logs[file].run == pick)]
    return chosen, [file for file in files if file not in logs]


def runs_of(files: Sequence[Path], given: ReadMap | None) -> dict[str, list[LogFile]]:
    """Return the logs among files by run."""
    maps = [given] if given else [load_map(name) for name in shipped_maps()]
    found: dict[str, list[LogFile]] = {}
    for file in files:
        log = _recognised(file, maps, given is not None)
        if log is not None:
            found.setdefault(log.run, []).append(log)
    return found


def _recognised(file: Path, maps: Sequence[ReadMap], asked: bool) -> LogFile | None:
    """Return mapping, robot and run of a file; None if they are not unique.

    With a given mapping the file name decides, without one the header; the other criterion breaks ties and decides
    where the first gives no result.
    """
    try:
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        head = b""
    by_name, by_head = [], []
    for one in maps:
        for part in one.logs:
            fields = _matched(part.files, file)
            mine = _is_of(part, head)
            log = LogFile(
                file,
                one,
                part,
                _robot(one, file, fields),
                (fields or {}).get("run") or "",
                "its header says so" if mine else "its name fits the mapping",
            )
            if fields is not None:
                by_name.append(log)
            if mine:
                by_head.append(log)
    first, second = (by_name, by_head) if asked else (by_head, by_name)
    candidates = [log for log in first if log in second] or first or second
    return candidates[0] if len(candidates) == 1 or (asked and candidates) else None


def _is_of(part: TextMap | BinaryMap, head: bytes) -> bool:
    """Return whether the first bytes of a file are of a kind of logs."""
    if isinstance(part, TextMap):
        return bool(part.detect) and part.detect.encode() in head
    return looks_like_ulog(head) if isinstance(part, UlogMap) else looks_like_usd(head)


def _matched(pattern: str, file: Path) -> dict[str, str] | None:
    """Return the text that matches each field of a pattern in the last parts of a path; None without a match."""
    wild = {**{f"{{{name}}}": text for name, text in _FIELDS.items()}, "*": "[^/]*", "?": "[^/]"}
    text = "".join(wild.get(part, re.escape(part)) for part in re.split(r"(\{\w+\}|\*|\?)", pattern))
    name = "/".join(file.absolute().parts[-(pattern.count("/") + 1) :])
    found = re.fullmatch(text, name)
    return None if found is None else found.groupdict()


def _robot(one: ReadMap, file: Path, named: dict[str, str] | None) -> str:
    """Return the robot name: from the mapping if the file name matches, else the file name without its suffixes."""
    if named is not None and "robot" in named:
        return plain_name(one.robot_name.replace("{robot}", named["robot"]))
    return plain_name(file.name.partition(".")[0])


def _nothing(files: Sequence[Path], given: ReadMap | None) -> str:
    sizes = [file.stat().st_size if file.is_file() else None for file in files[:4]]
    shown = ", ".join(file.name + " (0 bytes)" * (size == 0) for file, size in zip(files, sizes, strict=False))
    shown += f" and {len(files) - 4} more" if len(files) > 4 else ""
    if not files:
        return "the source holds no file"
    if remedy := next(filter(None, map(_remedy, files)), ""):
        return remedy
    if given is not None:
        patterns = ", ".join(part.files for part in given.logs) or "none: it is for bags"
        return f"{given.file}: no file name matches the mapping: found {shown}, expected {patterns}"
    return (
        f"no file is recognised by its header: found {shown}; write a mapping file and give it with --map; "
        f"Testudo provides {', '.join(shipped_maps())}"
    )
