"""The verb `report`: one page on a recorded run."""

from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from testudo_analysis.commands.gap import compared_with
from testudo_analysis.report.report_data import ReportData, TrainingSection
from testudo_analysis.run_page.analyse_run import RunAnalysis, analyse_run, recorded_folder
from testudo_analysis.run_page.build_page import RunContents, run_page
from testudo_analysis.run_page.document import write_page
from testudo_analysis.run_page.foxglove_layout import write_layout
from testudo_analysis.run_page.page_data import RunPage
from testudo_analysis.run_page.rerun_file import rerun_library, write_rerun
from testudo_analysis.run_page.verdict_table import verdict_table
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.progress_bar import Tell, part, progress_bar

PAGE = "report.html"
_METRICS = ("training/metrics.jsonl", "metrics.jsonl")


@dataclass(frozen=True)
class ReportOptions:
    """What the page compares, and how much of it is simulated."""

    robot_type: str | None = None
    """Robot or robot file for all robots; default: that of the run."""
    identified: Path | None = None
    """Robot file from `testudo identify`, compared with that of the run."""
    against: Path | None = None
    """Another run folder, or a robot file (.toml), to compare the gap with."""
    training: Path | None = None
    """Folder of a training run, whose curves go into the page; default: that of the demo which made the run."""
    worst: int = 3
    """Number of worst incidents that are simulated anew with and without the shield; 0 for none."""
    near: float | None = None
    """Distance of two centres [m] that counts as near; default: the separation of shield layer 1."""
    gap: bool = True
    """Compare the run with the model; `--no-gap` takes a third of the time."""


def report(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path | None = None,
    json: Path | None = None,
    rerun: Path | None = None,
    foxglove: Path | None = None,
    allow_damage: bool = False,
    options: Annotated[ReportOptions, tyro.conf.arg(name="")] = ReportOptions(),
) -> int:
    """Write one page on a recorded run: verdict, timeline with the scene, incidents, margins, error of the model.

    The page is one file that needs no network. Its slider moves scene, plots and incidents together; each cause has the
    command that examines or corrects it, and each claim the error of poses or model. Exit status 1 means that
    part of the run could not be read.

    Example:
        testudo report runs/mine/run                      # report.html in the run folder
        testudo report imported --robot-type turtlebot4 --out turtles.html --json turtles.json
        testudo report run --identified create.toml --rerun run.rrd --foxglove layout.json

    Args:
        run: run folder, recorded by `testudo up` or imported, or the folder of a demo.
        out: file of the page; default: report.html in the run folder.
        json: also write the contents of the page to this file.
        rerun: also write poses, plots and incidents as a Rerun recording (.rrd).
        foxglove: also write a Foxglove layout (.json) for the run's run_0.mcap.
        allow_damage: exit status 0 even if part of the run cannot be read.
        options: what the page compares, and how much of it is simulated.
    """
    console = Console()
    if rerun is not None:
        rerun_library()  # refuses a missing library before the work starts
    if options.worst < 0:
        raise TestudoError(f"--worst: found {options.worst}, expected 0 or more")
    folder, training = recorded_folder(run), _training(run, options.training)
    identified = None if options.identified is None else load_robot(options.identified)
    asked = RunAnalysis(options.robot_type, identified, options.worst, near_m=options.near, gap=options.gap)
    with progress_bar(f"reading {run}") as tell:
        contents = analyse_run(folder, asked, part(tell, 0.0, 0.9 if options.against is None else 0.6))
        if options.against is not None:
            contents = _compared(contents, options, part(tell, 0.6, 0.9))
        if training is not None:
            contents = replace(contents, report=ReportData("", training=training))
        tell("writing the page", 0.95)
        page = run_page(contents)
        files = [write_page(page, out or folder / PAGE)]
        files += [] if json is None else [_write_json(page, json)]
        files += [] if rerun is None else [write_rerun(page, rerun)]
        files += [] if foxglove is None else [write_layout(contents.recording, foxglove)]
    console.print(verdict_table(page))
    for file in files:
        console.print(f"written: {file}", highlight=False)
    return 0 if contents.recording.source.complete or allow_damage else 1


def _compared(contents: RunContents, options: ReportOptions, tell: Tell) -> RunContents:
    if contents.gap is None or options.against is None:
        return contents
    found = compared_with(contents.gap, contents.replays, contents.recording, options.against, options.robot_type, tell)
    return replace(contents, gap=found)


def _training(run: Path, folder: Path | None) -> TrainingSection | None:
    """Return the figures of a training run: the one that is asked for, or that of the demo; None without any."""
    place = run if folder is None else folder
    found = next((place / name for name in _METRICS if (place / name).is_file()), None)
    section = None if found is None else TrainingSection.read(found)
    if section is not None and section.rows:
        return section
    if folder is not None:
        raise TestudoError(
            f"--training {folder}: found no metrics.jsonl with figures, expected those of a training run"
        )
    return None


def _write_json(page: RunPage, file: Path) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dumps(page.to_dict(), allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"--json {file}: cannot be written: {error.strerror}") from error
    return file
