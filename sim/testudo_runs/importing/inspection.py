"""Builds the report of `testudo inspect` for a run folder, or for logs and bags before import."""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from testudo_deploy.commands.report import Report, facts, table
from testudo_deploy.files.bag_writer import BAG_FILE, METADATA_FILE
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.bags.bag_contents import clock_time
from testudo_runs.bags.bag_source import BagSource
from testudo_runs.importing.logs.draft_mapping import Draft, draft_of
from testudo_runs.importing.logs.log_discovery import files_of, runs_of
from testudo_runs.importing.mapping.mapping_file import load_map, parse_map
from testudo_runs.importing.run_import import ImportRequest, bags_of, propose, read_sources
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording
from testudo_runs.recording.statistics import (
    SeriesByRobot,
    head_table,
    recording_facts,
    series_table,
    text_table,
    trouble_tables,
)

_DRAFTS = 4  # most logs of a folder for which a mapping is drafted
_NO_DRAFT = """# No mapping is proposed: no increasing time, or no columns with usual names (x y yaw, vx wz).
# Describe the columns in a mapping file (docs/replay.md, Import), and give it with --map."""


def inspect_recording(
    path: Path, map_name: str | None = None, pick: str | None = None, msg_path: Sequence[Path] = ()
) -> Report:
    """Report the content of a run folder or of the source of an import: roles, rates, gaps, clocks, robots, damage.

    ``path`` is a run folder or the source of an import; ``map_name`` is the mapping of a source, ``pick`` the run if
    the source has several, ``msg_path`` folders with .msg files for types that a bag does not define.

    Raises:
        TestudoError: nothing can be read.
    """
    if path.is_dir() and (path / INFO_FILE).is_file() and (path / BAG_FILE).is_file():
        recording = load_recording(path)
        kind = "recorded by testudo up" if (path / FLEET_FILE).is_file() else "imported"
        facts = recording.info.get("import", {})
        lost = []
        for loss in facts.get("losses", ()):
            places = f" {loss['places']}:" if loss.get("places") else ""
            lost.append(f"{loss['file']}:{places} {loss['why']}")
        return _report(recording, kind, path, facts.get("notes", ()), lost, topics=_topics(path))
    given, bags = load_map(map_name) if map_name else None, bags_of([path])
    if bags and given is None:
        return _with_series(path, inspect_bags(path, bags, msg_path), msg_path)
    runs = {} if bags else runs_of(files_of([path]), given)
    if len(runs) > 1 and pick is None:
        # report the runs of a folder with logs of several
        found = {
            run: {
                "robots": sorted({log.robot for log in logs}),
                "files": [log.file.name for log in logs],
                "maps": sorted({log.map.name for log in logs}),
            }
            for run, logs in sorted(runs.items())
        }
        rows = [
            (run or "-", ", ".join(one["robots"]), len(one["files"]), ", ".join(one["maps"]))
            for run, one in found.items()
        ]
        title = f"{path}: logs of several runs; choose one with --pick"
        values = {"source": str(path), "kind": "logs of several runs", "runs": found}
        return Report(values, (table(title, ("run", "robots", "files", "mapping"), rows),))
    files = [] if runs or given or bags else files_of([path])[:_DRAFTS]
    if drafts := [one for file in files if (one := draft_of(file)) is not None]:
        return _drafted(path, drafts)
    imported, _, more = read_sources(ImportRequest((path,), given, None, pick, tuple(msg_path)))
    kind = "not imported yet; " + ", ".join(f"mapping {one['name']}" for one in more["maps"])
    extra = {"ignored": more["ignored"], "clock_steps": more.get("clock_steps", [])}
    return _report(imported.recording, kind, path, imported.notes, (), **extra)


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
        name: {"type": robot.robot_type, "roles": {role: asdict(one) for role, one in found[name].items()}}
        for name, robot in recording.robots.items()
    }


def _report(
    recording: Recording, kind: str, path: Path, notes: Sequence[str], lost: Sequence[str], **more: Any
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
    topics = [tuple(topic.values()) for topic in more.get("topics", ())]
    return Report(
        values,
        (
            head_table(recording, kind, str(path)),
            series_table(found),
            *trouble_tables(found, steps),
            *([table("Topics in metadata.yaml", ("topic", "type", "messages"), topics)] if topics else ()),
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


def _drafted(path: Path, drafts: Sequence[Draft]) -> Report:
    """Report the columns of logs that match no mapping, with a draft mapping."""
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
                {"number": number, "name": name}
                | {key: one if math.isfinite(one) else None for key, one in (("least", least), ("largest", largest))}
                for number, name, least, largest in draft.columns
            ]
            for draft in drafts
        },
    }
    served = [", ".join(one.file for one in drafts if one.text and one.same(draft)) for draft in kinds]
    parts = [
        f"# Draft of a mapping for {files}: check units, frames and time, save it, and give it with --map\n{text}"
        for files, text in zip(served, texts, strict=True)
    ]
    return BagReport(values, tuple(tables), "\n".join(parts or [_NO_DRAFT]) + "\n")


@dataclass(frozen=True)
class BagReport(Report):
    """Content of bags, followed by the proposed mapping, ready to be saved."""

    text: str = field(default="")

    def show(self, json_path: Path | None) -> None:
        """Print the tables and the mapping; write the values to ``json_path`` if given."""
        super().show(json_path)
        sys.stdout.write(self.text)  # plain, as a table would break its lines


def inspect_bags(path: Path, bags: Sequence[Path], msg_path: Sequence[Path]) -> Report:
    """Show the content of bags before import and propose a mapping.

    Raises:
        BagError: nothing in them can be read.
    """
    damage: list[str] = []
    proposal = propose(bags, msg_path, damage)
    tables, values = [], []
    for bag in bags:
        shown, value = _inspected(bag)
        tables += shown
        values.append(value)
    noticed = [note for one in values for note in one["notes"]]
    for title, texts in (("Damage", damage), ("Noticed", noticed), ("Ambiguous", proposal.ambiguous)):
        tables += text_table(title, texts)
    return BagReport(
        {
            "source": str(path),
            "kind": "bags, not imported yet",
            "bags": values,
            "damage": damage,
            "ambiguous": list(proposal.ambiguous),
            "reasons": proposal.reasons,
            "proposal": proposal.text,
        },
        tuple(tables),
        proposal.text,
    )


def _inspected(bag: Path) -> tuple[list[Table], dict[str, Any]]:
    """Return the tables and the values of one bag."""
    source = BagSource(bag, [])
    for _ in source.messages(lambda _: False):
        pass
    contents = source.contents
    span_s = ((contents.last_ns or 0) - (contents.first_ns or 0)) / 1e9
    head = {
        "bag": str(bag),
        "files": len(source.folder.files),
        "metadata.yaml": f"version {source.folder.version}" if source.folder.version else "none that is valid",
        "start": clock_time(contents.first_ns or 0),
        "duration": f"{span_s:.3f} s",
        "messages": contents.count,
    }
    rows = []
    for topic in contents.topics.values():
        count = contents.counts.get(topic.name, 0)
        rate = f"{(count - 1) / span_s:.1f} Hz" if count > 1 and span_s > 0 else "-"
        rows.append((topic.name, topic.type, count, rate))
    tables = [facts("Bag, not imported yet", head), table("Topics", ("topic", "type", "messages", "rate"), rows)]
    return tables, {
        **head,
        "start_ns": contents.first_ns,
        "duration_s": span_s,
        "notes": source.folder.notes,
        "topics": [{"topic": row[0], "type": row[1], "messages": row[2]} for row in rows],
    }
