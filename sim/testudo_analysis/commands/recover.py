"""The verb `recover`: rebuilds a bag whose recorder was killed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from testudo_deploy.commands.report import Report, table
from testudo_deploy.launch.run_folder import POLICY_FILE
from testudo_runs.importing.bags.bag_recovery import Recovered, recover_bag
from testudo_runs.progress_bar import progress_bar
from testudo_runs.recording.statistics import text_table

_NO_POLICY = "re-inference needs policy.onnx, the artefact that drove the robots: copy it into the folder"


def recover(
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_BAG")],
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")],
    *,
    msg_path: tuple[Path, ...] = (),
    json: Path | None = None,
) -> int:
    """Rebuild a bag whose recorder was killed or whose file is damaged, with every readable message.

    The source is not changed, and no file is overwritten. For a run recorded by Testudo, fleet file and run.json are
    restored from copies in the bag; lost data are reported and noted in recovered.json.

    Example:
        testudo recover runs/2026-11-21/run rescued
        testudo recover field_0.mcap rescued --json recovered.json
        testudo recover old_bag rescued --msg-path src/lab_msgs

    Args:
        source: run folder, folder of a bag, or one file of a bag.
        out: folder to create.
        msg_path: folders with .msg files, for old bags without message definitions.
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
        ("restored files", ", ".join(found.files) or "none"),
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
    return Report(asdict(found), tuple(tables))
