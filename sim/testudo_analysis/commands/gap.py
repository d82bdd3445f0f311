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
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import TeamRecording, load, prepare
from testudo_runs.progress_bar import Tell, part, progress_bar


def gap(
    run: Annotated[Path, tyro.conf.Positional],
    against: Path | None = None,
    robot_type: str | None = None,
    identified: Path | None = None,
    json: Path | None = None,
    allow_damage: bool = False,
) -> int:
    """Replay every start of a recorded run open loop, and report the deviation of the model.

    Contents: errors after 0.1 to 2 s by robot and channel with intervals, the robot file compared with dead reckoning
    and an identified file, errors over state space and their kind, latency, residuals compared with the shield's
    margins, predicted and real score. Exit status 1 means that part of the run could not be read.

    `testudo report` shows the same on a page.

    Example:
        testudo gap run --json gap.json
        testudo gap run --identified create.toml
        testudo gap run --against other_run      # or another robot file on the same run

    Args:
        run: run folder, imported or recorded by `testudo up`.
        against: another run folder, or a robot file (.toml), to compare with.
        robot_type: robot or robot file for all robots; default: that of the run.
        identified: robot file from `testudo identify`.
        json: also write the results to this file.
        allow_damage: exit status 0 even if part of the run cannot be read.
    """
    console = Console()
    with progress_bar(f"reading {run}") as tell:
        recording = load(run, robot_type=robot_type, as_measured=False, share=partial(tell, f"reading {run}"))
    for warning in recording.source.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    spec = None if identified is None else load_robot(identified)
    with progress_bar("replaying") as tell:
        share = 1.0 if against is None else 0.5
        report, replays = analyse(recording, identified=spec, tell=part(tell, 0.0, share))
        if against is not None:
            report = compared_with(report, replays, recording, against, robot_type, part(tell, 0.5, 1.0))
    files = [] if json is None else [_write(report, json)]
    _show(console, report, files)
    return 0 if recording.source.complete or allow_damage else 1


def _write(report: GapReport, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dumps(report.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return file


def _show(console: Console, report: GapReport, files: Sequence[Path]) -> None:
    for table in gap_tables(report):
        console.print(table)
    for sentence in findings(report):
        console.print(f"• {sentence}", highlight=False)
    for name, why in report.left_out.items():
        console.print(f"[yellow]{name} could not be replayed:[/] {why}", highlight=False)
    for file in files:
        console.print(f"written: {file}", highlight=False)


def compared_with(
    report: GapReport,
    replays: tuple[TypeReplay, ...],
    recording: TeamRecording,
    against: Path,
    robot_type: str | None,
    tell: Tell,
) -> GapReport:
    """Return the report with a comparison with a second run or another robot file.

    Raises:
        TestudoError: neither can be read, or the file is of another kind of robot.
    """
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
