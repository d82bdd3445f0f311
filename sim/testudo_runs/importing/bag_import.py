"""Imports bags for the verb `import`, and shows bags for the verb `inspect`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from testudo_deploy.commands.report import Report, facts, table
from testudo_runs.bags.bag_contents import BagError, clock_time
from testudo_runs.bags.bag_source import BagSource, looks_like_bag
from testudo_runs.importing.bags.bag_reader import read_bags
from testudo_runs.importing.bags.mapping_proposal import Proposal, is_complete_mapping, propose_map
from testudo_runs.importing.logs.log_reader import Imported
from testudo_runs.importing.mapping.import_losses import Loss
from testudo_runs.importing.mapping.mapping_file import ReadMap, check_type
from testudo_runs.importing.mapping.topic_mapping import parse_topics
from testudo_runs.progress_bar import progress_bar
from testudo_runs.recording.recording import Recording
from testudo_runs.recording.summary_tables import text_table

_NO_POLICY = (
    "a bag holds poses and commands, not the policy: gap, identify, replay --mode open-loop and a "
    "counterfactual of the shield alone work on the run; inferring its commands again would need the "
    "artefact that drove the robots"
)


@dataclass(frozen=True)
class BagReport(Report):
    """Content of bags, followed by the proposed mapping, ready to be saved."""

    text: str = field(default="")

    def show(self, json_path: Path | None) -> None:
        """Print the tables and the mapping; write the values to ``json_path`` if given."""
        super().show(json_path)
        sys.stdout.write(self.text)  # plain, as a table would break its lines


def bags_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the bags among paths, of a folder all bags in it; an empty tuple if no path is a bag.

    Raises:
        BagError: only some of the paths are bags.
    """
    found: list[Path] = []
    others: list[Path] = []
    for path in paths:
        inner = [path] if looks_like_bag(path) else _inside(path)
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
    """Return the recording of bags, their files, and further entries of the report.

    Args:
        bags: of one run.
        mapping: of their topics; None for the proposed one, which must not be ambiguous.
        robot_types: type by robot; the empty name means all others.
        msg_path: folders with .msg files.
        offsets: seconds to add to the times of a bag, by its name.
        tell: called with the completed fraction.

    Raises:
        TestudoError: nothing in them can be used, or the mapping is incomplete.
    """
    mapping = mapping or is_complete_mapping(propose_map(bags, msg_path=msg_path))
    _check_types(mapping, robot_types)
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
    proposal = _proposal(bags, msg_path)
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


def inspect_bags(path: Path, msg_path: Sequence[Path] = ()) -> Report:
    """Show the content of bags before import and propose a mapping.

    Args:
        path: a bag, or a folder of them.
        msg_path: folders with .msg files of messages that a bag does not define.

    Raises:
        BagError: nothing in them can be read.
    """
    damage: list[str] = []
    bags = bags_of([path])
    proposal = _proposal(bags, msg_path, damage)
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
        "metadata.yaml": f"version {source.folder.version}" if source.folder.version else "none that holds",
        "start": clock_time(contents.first_ns or 0),
        "duration": f"{span_s:.3f} s",
        "messages": contents.count,
    }
    rows = [
        (
            topic.name,
            topic.type,
            contents.counts.get(topic.name, 0),
            f"{(contents.counts.get(topic.name, 0) - 1) / span_s:.1f} Hz"
            if contents.counts.get(topic.name, 0) > 1 and span_s > 0
            else "-",
        )
        for topic in contents.topics.values()
    ]
    tables = [facts("Bag, not imported yet", head), table("Topics", ("topic", "type", "messages", "rate"), rows)]
    return tables, {
        **head,
        "start_ns": contents.first_ns,
        "duration_s": span_s,
        "notes": source.folder.notes,
        "topics": [{"topic": row[0], "type": row[1], "messages": row[2]} for row in rows],
    }


def _check_types(mapping: ReadMap, given: Mapping[str, str]) -> None:
    """Refuse unknown robot types of a mapping, unless others are given at import."""
    for index, entry in enumerate(parse_topics(mapping)):
        if entry.robot not in given and "" not in given:
            own = bool(entry.robot_type)
            check_type(
                entry.robot_type or mapping.robot_type,
                f"{mapping.file}: {f'topics[{index}].' if own else ''}robot_type",
            )


def _proposal(bags: Sequence[Path], msg_path: Sequence[Path], damage: list[str] | None = None) -> Proposal:
    what = "looking for what the topics mean"
    with progress_bar(what) as tell:
        return propose_map(bags, tell=lambda share: tell(what, share), damage=damage, msg_path=msg_path)


def _inside(path: Path) -> list[Path]:
    return sorted(inner for inner in path.iterdir() if looks_like_bag(inner)) if path.is_dir() else []
