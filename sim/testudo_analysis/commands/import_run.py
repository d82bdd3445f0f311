"""The verb `import`: recordings of others into the one run format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from testudo_deploy.commands.report import Report
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.bag_import import parse_offsets, proposed
from testudo_runs.importing.mapping.mapping_file import load_map
from testudo_runs.importing.run_import import ImportRequest, ImportResult, import_run, parse_robot_types
from testudo_runs.progress_bar import progress_bar
from testudo_runs.recording.summary_tables import head_table, series_table, text_table, trouble_tables


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
    json: Path | None = None,
) -> int:
    """Make a run folder of recordings of others: text and CSV logs, binary logs of the Crazyflie, bags.

    What the numbers mean is said by a mapping; those that come with Testudo are found by the first lines of a log.
    Damaged sources are read as far as they hold. Exit status 1 means that something was lost: the run is there all the
    same. Bags without a mapping: one is proposed and printed, and with --yes used at once unless it is ambiguous.

    Example:
        testudo import mrclam6 run
        testudo import logs run --pick swap_sss_00
        testudo import cf1.csv cf2.csv run --map own.yaml --robot-type crazyflie_2x --json import.json
        testudo import robot1_bag robot2_bag run --map own.yaml --robot-type turtlebot4
        testudo import bag run --yes

    Args:
        paths: files or folders to read, and last the run folder to make.
        map: mapping file, or the name of one that comes with Testudo.
        robot_type: TYPE for all robots, ROBOT=TYPE for one: a registered robot or a robot file.
        pick: name of the run, where the files are of several.
        msg_path: folders with .msg files, for messages in bags that hold no definitions of their own.
        offset: NAME=SECONDS by which the bag of that name is put forward, where several have nothing in common; of
            logs, by which all that the robot of that name logged is.
        yes: take the mapping that is proposed for bags.
        allow_damage: a source of which part cannot be read is no failure.
        json: also write the report to this file.
    """
    if len(paths) < 2:
        raise TestudoError(
            "import: found one path, expected SOURCE... RUN: what to read, and last the run folder to make"
        )
    given = load_map(map) if map else proposed(paths[:-1], msg_path, accept=yes)
    request = ImportRequest(
        tuple(paths[:-1]), given, parse_robot_types(robot_type), pick, msg_path, parse_offsets(offset)
    )
    with progress_bar("reading") as tell:
        result = import_run(request, paths[-1], tell)
    _report(result).show(json)
    return 0 if allow_damage or not result.losses else 1


def _report(result: ImportResult) -> Report:
    """Return what was imported and lost."""
    kind = ", ".join(f"by the mapping {one['name']}" for one in result.report["maps"])
    return Report(
        {**result.report, "run": str(result.folder), "messages": result.messages},
        (
            head_table(result.recording, f"imported {kind}", str(result.folder), messages=result.messages),
            series_table(result.facts),
            *trouble_tables(result.facts, result.report.get("clock_steps", ())),
            *text_table("Choices", result.notes),
            *text_table("Lost", [str(loss) for loss in result.losses]),
        ),
    )
