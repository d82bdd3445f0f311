"""The verbs `import` and `recover`: recordings of other systems as runs, and damaged bags as whole ones."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from testudo_deploy.commands.report import Report, table
from testudo_deploy.launch.run_folder import POLICY_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.bags.bag_recovery import recover_bag
from testudo_runs.importing.mapping.mapping_file import load_map
from testudo_runs.importing.run_import import (
    ImportRequest,
    ImportResult,
    import_run,
    parse_offsets,
    parse_robot_types,
    proposed,
)
from testudo_runs.progress_bar import progress_bar
from testudo_runs.recording.statistics import head_table, series_table, text_table, trouble_tables


def import_verb(
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE... RUN")],
    *,
    map: str | None = None,  # noqa: A002 -- the option's name
    robot_type: tuple[str, ...] = (),
    pick: str | None = None,
    msg_path: tuple[Path, ...] = (),
    offset: tuple[str, ...] = (),
    yes: bool = False,
    allow_damage: bool = False,
    allow_implausible: bool = False,
    json: Path | None = None,
) -> int:
    """Convert recordings to a run folder: text and CSV logs, logs of the Crazyflie and of PX4, bags of ROS 1 and 2.

    A mapping gives the meaning of the data; mappings of Testudo are selected by the first lines of a log. Damaged
    sources are read as far as possible. Exit status 1 means that data were lost; the run is still written. For bags
    without a mapping, one is proposed and printed; --yes uses it immediately unless it is ambiguous.

    Example:
        testudo import mrclam6 run
        testudo import logs run --pick swap_sss_00
        testudo import cf1.csv cf2.csv run --map own.yaml --robot-type crazyflie_2x --json import.json
        testudo import robot1_bag robot2_bag run --map own.yaml --robot-type turtlebot4
        testudo import bag run --yes

    Args:
        paths: files or folders to read; the last path is the run folder to write.
        map: mapping file, or the name of a mapping of Testudo.
        robot_type: TYPE for all robots, ROBOT=TYPE for one: a registered robot or a robot file.
        pick: name of the run, if the files contain several.
        msg_path: folders with .msg files, for bags without message definitions.
        offset: NAME=SECONDS to add to the times of the bag of that name, if several bags share no data; for logs, to
            the times of the robot of that name.
        yes: use the proposed mapping for bags.
        allow_damage: exit status 0 even if part of a source cannot be read.
        allow_implausible: write the run also where its motion shows that units or axes cannot be as the mapping says.
        json: also write the report to this file.
    """
    if len(paths) < 2:
        raise TestudoError(
            "import: found one path, expected SOURCE... RUN: files to read, then the run folder to write"
        )
    given = load_map(map) if map else proposed(paths[:-1], msg_path, accept=yes)
    request = ImportRequest(
        tuple(paths[:-1]),
        given,
        parse_robot_types(robot_type),
        pick,
        msg_path,
        parse_offsets(offset),
        allow_implausible,
    )
    with progress_bar("reading") as tell:
        result = import_run(request, paths[-1], tell)
    _show(result, json)
    return 0 if allow_damage or not result.losses else 1


def _show(result: ImportResult, json: Path | None) -> None:
    """Print what was imported and what was lost."""
    kind = ", ".join(f"by the mapping {one['name']}" for one in result.report["maps"])
    Report(
        {**result.report, "run": str(result.folder), "messages": result.messages},
        (
            head_table(result.recording, f"imported {kind}", str(result.folder), messages=result.messages),
            series_table(result.facts),
            *trouble_tables(result.facts, result.report.get("clock_steps", ())),
            *text_table("Choices", result.notes),
            *text_table("Lost", [str(loss) for loss in result.losses]),
        ),
    ).show(json)


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
    Report(asdict(found), tuple(tables)).show(json)
    return 0
