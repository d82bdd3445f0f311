"""Imports external logs and bags as a run folder, completely or not at all."""

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.bags.bag_contents import BagError
from testudo_runs.bags.bag_source import looks_like_bag
from testudo_runs.importing.bags.bag_reader import read_bags
from testudo_runs.importing.bags.mapping_proposal import Proposal, is_complete_mapping, propose_map
from testudo_runs.importing.logs.log_discovery import discover, files_of
from testudo_runs.importing.logs.log_reader import Imported, read_logs
from testudo_runs.importing.mapping.column_conversion import Loss
from testudo_runs.importing.mapping.mapping_file import ReadMap, check_type
from testudo_runs.importing.mapping.topic_mapping import parse_topics
from testudo_runs.importing.plausibility.checks import implausible
from testudo_runs.progress_bar import progress_bar
from testudo_runs.recording.recording import Recording, RecordingError
from testudo_runs.recording.statistics import SeriesFacts, recording_facts
from testudo_runs.recording.write import whole_folder, write_recording

REPORT_FILE = "import.json"
REPORT_SCHEMA = "testudo/import/1"
_HASH_BYTES = 1 << 20
_NO_POLICY = (
    "a bag holds poses and commands, not the policy: gap, identify, replay --mode open-loop and a "
    "counterfactual of the shield alone work on the run; inferring its commands again would need the "
    "artefact that drove the robots"
)
_REMEDY = "correct the mapping (--map FILE), or write the run as it is with --allow-implausible"


@dataclass(frozen=True)
class ImportRequest:
    """Sources and options of an import."""

    sources: tuple[Path, ...]
    map: ReadMap | None = None
    robot_types: Mapping[str, str] | None = None  # by robot; the empty name means all other robots
    pick: str | None = None  # name of the run, where the files belong to several
    msg_path: tuple[Path, ...] = ()  # folders with .msg files for messages in bags
    offsets: Mapping[str, float] = field(default_factory=dict)
    """Seconds to add to the times of a bag, by its name, or to the logs of a robot, by its name."""
    allow_implausible: bool = False  # write the run also where units or axes cannot be right


@dataclass(frozen=True)
class ImportResult:
    """Result of an import."""

    folder: Path
    recording: Recording
    facts: Mapping[str, Mapping[str, SeriesFacts]]
    report: dict[str, Any]  # content of `import.json`
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
    """Read sources and write a run folder, which must be absent or empty.

    ``tell`` is called with the current step and its completed fraction.

    Raises:
        TestudoError: the folder is not empty, nothing in the sources can be used, units or axes cannot be right, or
            writing fails; no run folder is left.
    """
    folder = Path(folder)
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise RecordingError(f"{folder}: cannot be used: {error.strerror or error}") from error
    if taken:
        raise RecordingError(f"{folder}: exists already; give a new folder for the run")
    imported, files, more = read_sources(request, lambda share: tell("reading", share))
    doubts = _doubts(imported.recording)
    if doubts and not request.allow_implausible:
        raise RecordingError("\n".join([*doubts, _REMEDY]))
    facts = recording_facts(imported.recording)
    report = {
        "schema": REPORT_SCHEMA,
        "sources": [_provenance(file) for file in files],
        "pick": request.pick,
        **more,
        "notes": list(imported.notes),
        "implausible": doubts,
        "complete": not imported.losses,
        "losses": [asdict(loss) for loss in imported.losses],
        "start_ns": imported.recording.start_ns,
        "duration_s": imported.recording.duration_s,
        "robots": {
            name: {
                "type": robot.robot_type,
                "roles": {
                    role: {**asdict(facts[name][role]), "origin": imported.origins.get(name, {}).get(role)}
                    for role in robot.series
                },
            }
            for name, robot in imported.recording.robots.items()
        },
    }
    messages = _write(imported.recording, report, folder, lambda share: tell("writing", share))
    notes = (*doubts, *imported.notes)
    return ImportResult(folder, imported.recording, facts, report, imported.losses, notes, messages)


def _doubts(recording: Recording) -> list[str]:
    """Return a sentence for each series whose units or axes cannot be right."""
    found: list[str] = []
    for robot in recording.robots.values():
        spec = load_robot(robot.robot_type) if robot.robot_type else None
        found += map(str, implausible(robot, spec))
    return found


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
    logs, ignored = discover(files, request.map, request.pick)
    imported = read_logs(logs, request.robot_types or {}, tell, request.offsets)
    maps = {log.map.name: log.map for log in logs}
    more = {
        "maps": [{"name": one.name, "file": Path(one.file).name, "text": one.raw} for one in maps.values()],
        "choices": {log.file.name: {"robot": log.robot, "map": log.map.name, "because": log.how} for log in logs},
        "ignored": [file.name for file in ignored],
    }
    return imported, [log.file for log in logs], more


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


def bags_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the bags among paths, of a folder all bags in it; an empty tuple if no path is a bag.

    Raises:
        BagError: only some of the paths are bags.
    """
    found: list[Path] = []
    others: list[Path] = []
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else []
        inner = [path] if looks_like_bag(path) else [one for one in inside if looks_like_bag(one)]
        found += inner
        others += [] if inner else [path]
    if found and others:
        raise BagError(f"{others[0]}: is not a bag, but {found[0]} is one; import logs and bags separately")
    return tuple(found)


def import_bags(
    bags: Sequence[Path],
    mapping: ReadMap | None,
    robot_types: Mapping[str, str],
    msg_path: Sequence[Path],
    offsets: Mapping[str, float],
    tell: Callable[[float], None],
) -> tuple[Imported, list[Path], dict[str, Any]]:
    """Return the recording of bags of one run, their files, and further entries of the report.

    Without ``mapping`` the proposed one is used, which must not be ambiguous; the other arguments are those of
    `ImportRequest`.

    Raises:
        TestudoError: nothing in them can be used, or the mapping is incomplete.
    """
    mapping = mapping or is_complete_mapping(propose_map(bags, msg_path=msg_path))
    # refuse unknown robot types of a mapping, unless others are given at import
    for index, entry in enumerate(parse_topics(mapping)):
        if entry.robot not in robot_types and "" not in robot_types:
            own = bool(entry.robot_type)
            check_type(
                entry.robot_type or mapping.robot_type,
                f"{mapping.file}: {f'topics[{index}].' if own else ''}robot_type",
            )
    damage: list[str] = []
    recording = read_bags(bags, mapping, tell, damage, msg_path=msg_path, offsets=offsets)
    named = dict.fromkeys(entry.robot for entry in parse_topics(mapping))
    unknown = sorted(set(robot_types) - set(named) - {""})
    if unknown:
        raise BagError(f"--robot-type {unknown[0]}=...: no such robot; there are {', '.join(named)}")
    robots = {
        name: replace(robot, robot_type=robot_types.get(name, robot_types.get("", robot.robot_type)))
        for name, robot in recording.robots.items()
    }
    info = recording.info
    notes = (*info["notes"], *info["clock_sentences"], _NO_POLICY)
    losses = tuple(Loss(name, why or text, 1, "") for text in damage for name, _, why in [text.partition(": ")])
    recording = Recording(robots, recording.start_ns, None, {}, not damage, recording.warnings)
    more = {
        "maps": [{"name": mapping.name, "file": Path(mapping.file).name, "text": mapping.raw}],
        "choices": {},
        "ignored": [],
        "clocks": info["clocks"],
        "clock_steps": info["clock_steps"],
    }
    return Imported(recording, losses, notes, info["origins"]), [Path(file) for file in info["files"]], more


def proposed(paths: Sequence[Path], msg_path: Sequence[Path], *, accept: bool) -> ReadMap | None:
    """Return the proposed mapping of bags; None if the paths are not bags.

    Raises:
        BagError: the proposal was not accepted or is ambiguous; it is printed.
    """
    bags = bags_of(paths)
    if not bags:
        return None
    proposal = propose(bags, msg_path)
    if accept and not proposal.ambiguous:
        return is_complete_mapping(proposal)
    sys.stdout.write(proposal.text)
    if accept:
        is_complete_mapping(proposal)
    raise BagError(
        f"{bags[0]}: a bag needs a mapping: the one above is proposed; accept it with --yes, or save it, "
        "check it and give it with --map FILE"
    )


def parse_offsets(texts: Sequence[str]) -> dict[str, float]:
    """Read ``NAME=SECONDS``.

    Raises:
        BagError: another form, or a repeated name.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, sign, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not sign or not name or name in found or not math.isfinite(value):
            raise BagError(f"--offset {text}: expected NAME=SECONDS, each bag once, such as robot2_bag=-1.5")
        found[name] = value
    return found


def propose(bags: Sequence[Path], msg_path: Sequence[Path], damage: list[str] | None = None) -> Proposal:
    """Return the proposed mapping of bags, with a progress bar; ``damage`` takes a sentence for each loss."""
    what = "identifying the topics"
    with progress_bar(what) as tell:
        return propose_map(bags, tell=lambda share: tell(what, share), damage=damage, msg_path=msg_path)
