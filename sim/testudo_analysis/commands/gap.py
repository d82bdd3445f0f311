"""The verb `gap`: size, place and cause of the model's deviation from recorded motion."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from testudo_analysis.gap.gap_analysis import TypeReplay, analyse, compare
from testudo_analysis.gap.gap_report import GapReport
from testudo_analysis.gap.presentation.findings_text import findings, gap_tables
from testudo_analysis.gap.presentation.gap_page import PageData, write_page
from testudo_analysis.gap.presentation.rerun_file import rerun_library, write_rerun
from testudo_analysis.gap.presentation.top_view import courses
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import TeamRecording, load, prepare
from testudo_runs.progress_bar import Tell, part, progress_bar

_PAGE, _NUMBERS = "gap.html", "gap.json"


def gap(
    run: Annotated[Path, tyro.conf.Positional],
    against: Path | None = None,
    robot_type: str | None = None,
    identified: Path | None = None,
    out: Path | None = None,
    json: Path | None = None,
    rerun: Path | None = None,
    allow_damage: bool = False,
) -> int:
    """Replay every start of a recorded run open loop, and report the deviation of the model.

    Contents: errors after 0.1 to 2 s by robot and channel with intervals, the robot file compared with dead reckoning
    and an identified file, errors over state space and their kind, latency, residuals compared with the shield's
    margins, predicted and real score. Exit status 1 means that part of the run could not be read.

    Example:
        testudo gap run --out report             # gap.html and gap.json in report/
        testudo gap run --identified create.toml --rerun run.rrd
        testudo gap run --against other_run      # or another robot file on the same run

    Args:
        run: run folder, imported or recorded by `testudo up`.
        against: another run folder, or a robot file (.toml), to compare with.
        robot_type: robot or robot file for all robots; default: that of the run.
        identified: robot file from `testudo identify`.
        out: folder for the page and the results; default: `gap` in the run folder.
        json: also write the results to this file.
        rerun: also write poses and errors as a Rerun recording (.rrd).
        allow_damage: exit status 0 even if part of the run cannot be read.
    """
    console = Console()
    with progress_bar(f"reading {run}") as tell:
        recording = load(run, robot_type=robot_type, as_measured=False, share=partial(tell, f"reading {run}"))
    for warning in recording.source.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    if rerun is not None:
        rerun_library()  # refuses a missing library before the work starts
    spec = None if identified is None else load_robot(identified)
    folder = out or run / "gap"
    with progress_bar("replaying") as tell:
        share = 0.8 if against is None else 0.4
        report, replays = analyse(recording, identified=spec, tell=part(tell, 0.0, share))
        if against is not None:
            report = _compare_with(report, replays, recording, against, robot_type, part(tell, 0.4, 0.8))
        tell("drawing", 0.8)
        replayed = tuple(
            () if replay.flown else tuple(courses([out.robot for out in replay.outs], list(replay.models.values())[-1]))
            for replay in replays
        )
        files = [
            write_page(PageData(report, replays, replayed), folder / _PAGE),
            *_write(report, folder / _NUMBERS, json),
        ]
        if rerun is not None:
            tell("writing the Rerun recording", 0.9)
            files.append(write_rerun(rerun, report, replays, replayed))
    _show(console, report, files)
    return 0 if recording.source.complete or allow_damage else 1


def _write(report: GapReport, *files: Path | None) -> list[Path]:
    """Write the numbers to each file that is given, and return those."""
    written = [file for file in files if file is not None]
    for file in written:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dumps(report.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return written


def _show(console: Console, report: GapReport, files: Sequence[Path]) -> None:
    for table in gap_tables(report):
        console.print(table)
    for sentence in findings(report):
        console.print(f"• {sentence}", highlight=False)
    for name, why in report.left_out.items():
        console.print(f"[yellow]{name} could not be replayed:[/] {why}", highlight=False)
    for file in files:
        console.print(f"written: {file}", highlight=False)


def _compare_with(
    report: GapReport,
    replays: tuple[TypeReplay, ...],
    recording: TeamRecording,
    against: Path,
    robot_type: str | None,
    tell: Tell,
) -> GapReport:
    """Return the report with a comparison with a second run or another robot file."""
    if against.suffix == ".toml":
        other = load_robot(against)
        if all(replay.spec.kind != other.kind for replay in replays):
            raise TestudoError(
                f"--against: {against}: found kind {other.kind}, expected "
                f"{', '.join(sorted({replay.spec.kind for replay in replays}))}"
            )
        _, other_replays = analyse(prepare(recording.source, str(against)), horizons_s=report.horizons_s, tell=tell)
    else:
        reading = partial(part(tell, 0.0, 0.2), f"reading {against}")
        other_run = load(against, robot_type=robot_type, as_measured=False, share=reading)
        _, other_replays = analyse(other_run, horizons_s=report.horizons_s, seed=1, tell=part(tell, 0.2, 1.0))
    found = compare(replays, other_replays, ("this", against.name), report.horizons_s)
    return replace(report, against=found, against_name=str(against))
