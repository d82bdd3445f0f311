"""The verb `recover`: a bag whose recorder was killed, as a whole bag."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from testudo_deploy.commands.report import Report, table
from testudo_deploy.launch.run_folder import POLICY_FILE
from testudo_runs.importing.bags.bag_recovery import Recovered, recover_bag
from testudo_runs.progress_bar import progress_bar
from testudo_runs.recording.summary_tables import text_table

_NO_POLICY = (
    "without policy.onnx, the artefact that drove the robots, nothing can be inferred again: put it into the folder"
)


def recover(
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_BAG")],
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")],
    *,
    msg_path: tuple[Path, ...] = (),
    json: Path | None = None,
) -> int:
    """Rebuild a bag whose recorder was killed or whose file is damaged: every message that can be read.

    The source is only read, and nothing is ever written over. Of a run of ours the fleet file and run.json come back
    from the bag itself, where they stand, too; what was lost is told, and noted in recovered.json.

    Example:
        testudo recover runs/2026-11-21/run rescued
        testudo recover field_0.mcap rescued --json recovered.json
        testudo recover old_bag rescued --msg-path src/lab_msgs

    Args:
        source: run folder, folder of a bag, or one file of a bag.
        out: folder to make.
        msg_path: folders with .msg files, for old bags that hold no definitions of their own messages.
        json: also write the report to this file.
    """
    with progress_bar("reading") as tell:
        found = recover_bag(source, out, msg_path=msg_path, tell=lambda share: tell("reading", share))
    _report(found).show(json)
    return 0


def _report(found: Recovered) -> Report:
    expected = "not known" if found.expected is None else f"{found.expected}, {found.expected - found.messages} lost"
    head = [
        ("rebuilt in", found.folder),
        ("messages", found.messages),
        ("written by the recorder", expected),
        ("time", found.span_text),
        ("files again there", ", ".join(found.files) or "none"),
    ]
    if found.missing:
        head.append(("missing", ", ".join(found.missing)))
    if POLICY_FILE in found.missing:
        head.append(("", _NO_POLICY))
    tables = [
        table(f"{found.source}: recovered", ("", ""), head),
        table("Topics", ("topic", "messages"), sorted(found.topics.items())),
    ]
    tables += [*text_table("Lost", found.lost), *text_table("Notes", found.notes)]
    return Report(found.to_dict(), tuple(tables))
