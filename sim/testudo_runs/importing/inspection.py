"""Builds the report of `testudo inspect` for a run folder, or for logs and bags before import."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from testudo_deploy.commands.report import Report, table
from testudo_deploy.files.bag_writer import BAG_FILE, METADATA_FILE
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.bag_import import BagReport, bags_of, inspect_bags
from testudo_runs.importing.logs.draft_mapping import Draft, draft_of
from testudo_runs.importing.logs.log_discovery import files_of, runs_of
from testudo_runs.importing.mapping.mapping_file import load_map, parse_map
from testudo_runs.importing.run_import import ImportRequest, read_sources
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording
from testudo_runs.recording.statistics import recording_facts
from testudo_runs.recording.summary_tables import SeriesByRobot, head_table, series_table, text_table, trouble_tables

_DRAFTS = 4
"""Most logs of a folder for which a mapping is drafted."""
_NO_DRAFT = """# No mapping is proposed: no increasing time, or no columns with usual names (x y yaw, vx wz).
# Describe the columns in a mapping file (docs/replay.md, Import), and give it with --map."""


def inspect_recording(
    path: Path, map_name: str | None = None, pick: str | None = None, msg_path: Sequence[Path] = ()
) -> Report:
    """Report the content of a recording: topics and roles, rates, gaps, clocks, robots, damage.

    Args:
        path: a run folder, or the source of an import.
        map_name: mapping of a source.
        pick: name of the run, where the source has several.
        msg_path: folders with .msg files for message types that a bag does not define.

    Raises:
        TestudoError: nothing can be read.
    """
    if path.is_dir() and (path / INFO_FILE).is_file() and (path / BAG_FILE).is_file():
        recording = load_recording(path)
        kind = "recorded by testudo up" if (path / FLEET_FILE).is_file() else "imported"
        notes = tuple(recording.info.get("import", {}).get("notes", ()))
        lost = tuple(_loss_text(loss) for loss in recording.info.get("import", {}).get("losses", ()))
        return _report(recording, kind, path, notes, lost, topics=_topics(path))
    given = load_map(map_name) if map_name else None
    if bags_of([path]) and given is None:
        return _with_series(path, inspect_bags(path, msg_path), msg_path)
    runs = {} if bags_of([path]) else runs_of(files_of([path]), given)
    if len(runs) > 1 and pick is None:
        return _several(path, runs)
    drafts = (
        []
        if runs or given or bags_of([path])
        else [one for file in files_of([path])[:_DRAFTS] if (one := draft_of(file)) is not None]
    )
    if drafts:
        return _drafted(path, drafts)
    imported, _, more = read_sources(ImportRequest((path,), given, None, pick, tuple(msg_path)))
    kind = "not imported yet; " + ", ".join(f"mapping {one['name']}" for one in more["maps"])
    return _report(
        imported.recording,
        kind,
        path,
        imported.notes,
        (),
        ignored=more["ignored"],
        clock_steps=more.get("clock_steps", []),
    )


def _with_series(path: Path, report: Report, msg_path: Sequence[Path]) -> Report:
    """Add rates, gaps and clocks to the report of bags by the proposed mapping, if it is not ambiguous."""
    if report.values["ambiguous"]:
        return report
    try:
        mapping = parse_map(report.values["proposal"], "the proposed mapping")
        imported, _, more = read_sources(ImportRequest((path,), mapping, msg_path=tuple(msg_path)))
    except TestudoError:  # no usable topic: the report lists the topics
        return report
    recording, steps = imported.recording, more["clock_steps"]
    found = recording_facts(recording)
    values = {
        "duration_s": recording.duration_s,
        "start_ns": recording.start_ns,
        "clock_steps": steps,
        "robots": _robots(recording, found),
    }
    return replace(
        report,
        values={**report.values, **values},
        tables=(*report.tables, series_table(found), *trouble_tables(found, steps)),
    )


def _robots(recording: Recording, found: SeriesByRobot) -> dict[str, Any]:
    return {
        name: {"type": robot.robot_type, "roles": {role: one.to_dict() for role, one in found[name].items()}}
        for name, robot in recording.robots.items()
    }


def _report(
    recording: Recording, kind: str, path: Path, notes: tuple[str, ...], lost: tuple[str, ...], **more: Any
) -> Report:
    found = recording_facts(recording)
    steps = more.setdefault("clock_steps", recording.info.get("import", {}).get("clock_steps", []))
    values = {
        "source": str(path),
        "kind": kind,
        "start_ns": recording.start_ns,
        "duration_s": recording.duration_s,
        "complete": recording.complete,
        "damage": list(recording.warnings),
        "lost_in_import": list(lost),
        "notes": list(notes),
        **more,
        "robots": _robots(recording, found),
    }
    return Report(
        values,
        (
            head_table(recording, kind, str(path)),
            series_table(found),
            *trouble_tables(found, steps),
            *_topic_tables(more.get("topics", ())),
            *text_table("Choices of the import", notes),
            *text_table("Lost in the import", lost),
            *text_table("Damage", recording.warnings),
        ),
    )


def _topics(folder: Path) -> list[dict[str, Any]]:
    """Return topic, type and number of messages in `metadata.yaml`; an empty list if it is unreadable."""
    try:
        tables = yaml.safe_load((folder / METADATA_FILE).read_text(encoding="utf-8"))
        return [
            {
                "topic": str(one["topic_metadata"]["name"]),
                "type": str(one["topic_metadata"]["type"]),
                "messages": int(one["message_count"]),
            }
            for one in tables["rosbag2_bagfile_information"]["topics_with_message_count"]
        ]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return []


def _topic_tables(topics: Sequence[dict[str, Any]]) -> tuple[Table, ...]:
    rows = [(one["topic"], one["type"], one["messages"]) for one in topics]
    return (table("Topics in metadata.yaml", ("topic", "type", "messages"), rows),) if rows else ()


def _several(path: Path, runs: dict[str, list[Any]]) -> Report:
    """Report the runs of a folder with logs of several."""
    rows = [
        (
            run or "-",
            ", ".join(sorted({log.robot for log in logs})),
            len(logs),
            ", ".join(sorted({log.map.name for log in logs})),
        )
        for run, logs in sorted(runs.items())
    ]
    values = {
        "source": str(path),
        "kind": "logs of several runs",
        "runs": {
            run: {
                "robots": sorted({log.robot for log in logs}),
                "files": [log.file.name for log in logs],
                "maps": sorted({log.map.name for log in logs}),
            }
            for run, logs in sorted(runs.items())
        },
    }
    return Report(
        values,
        (table(f"{path}: logs of several runs; choose one with --pick", ("run", "robots", "files", "mapping"), rows),),
    )


def _drafted(path: Path, drafts: Sequence[Draft]) -> Report:
    """Show the columns of logs that no mapping knows, and a mapping to begin with."""
    tables, kinds = [], []
    for draft in drafts:
        tables.append(table(f"{draft.file}: columns", ("number", "name", "least", "largest"), draft.columns))
        kinds += [draft] if draft.text and not any(draft.same(other) for other in kinds) else []
    texts = [draft.text for draft in kinds]
    values = {
        "source": str(path),
        "kind": "text logs that no mapping knows",
        "drafts": texts,
        "columns": {
            draft.file: [
                {"number": number, "name": name, "least": _json(least), "largest": _json(largest)}
                for number, name, least, largest in draft.columns
            ]
            for draft in drafts
        },
    }
    served = [", ".join(one.file for one in drafts if one.text and one.same(draft)) for draft in kinds]
    said = [
        f"# A mapping to begin with for {files}: look over units, frames and time, save it, and give it with "
        f"--map\n{text}"
        for files, text in zip(served, texts, strict=True)
    ]
    if not texts:
        said = [_NO_DRAFT]
    return BagReport(values, tuple(tables), "\n".join(said) + "\n")


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _loss_text(loss: Any) -> str:
    places = f" {loss['places']}:" if loss.get("places") else ""
    return f"{loss['file']}:{places} {loss['why']}"
