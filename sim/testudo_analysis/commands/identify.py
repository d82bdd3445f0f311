"""The verb `identify`: what a run says about the robots in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS
from testudo_analysis.identify.identify_run import identify_run
from testudo_analysis.identify.result_tables import identification_tables
from testudo_analysis.identify.robot_file_writer import write_identified
from testudo_deploy.commands.report import Report
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import load
from testudo_runs.progress_bar import part, progress_bar

_READ = 0.1
"""About the share of the time that reading takes."""


def identify(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    robot: tuple[str, ...] = (),
    robot_type: str = "",
    out: Path | None = None,
    hold_out: Literal["both", "half", "robots", "none"] = "both",
    residual: bool = False,
    allow_damage: bool = False,
    json: Path | None = None,
) -> int:
    """Fit the parameters of a robot to a run, with intervals, and say which ones the run cannot determine.

    Poses and commands are enough. The fit is measured on what it has not seen: the second half of the run, and each
    robot in turn left out. Exit status 1 means that part of the run could not be read: the rest is used all the same.

    Example:
        testudo identify run --out create.toml --json identified.json
        testudo identify run --robot robot1 robot2 --robot-type irobot_create --hold-out half

    Args:
        run: the run folder, imported or recorded.
        robot: robots to fit; all of them if none is named.
        robot_type: registered robot or robot file to improve; what the run says if not given.
        out: write the robot file with what was found to this path.
        hold_out: what to measure the fit on.
        residual: also try a residual model of a differential drive, and tell what it is worth on what is held out.
        allow_damage: a run of which part cannot be read is no failure.
        json: also write everything that was found to this file.
    """
    if out is not None and out.suffix != ".toml":
        raise TestudoError(f"--out: found {out}, expected a file that ends in .toml")
    console = Console(stderr=True)
    with progress_bar(f"reading {run}", console) as tell:
        team = load(
            run,
            robot_type=robot_type or None,
            as_measured=False,
            share=lambda done: tell(f"reading {run}", _READ * done),
        )
        splits = {"both": (HALF, ROBOTS), "half": (HALF,), "robots": (ROBOTS,), "none": ()}[hold_out]
        found, source = identify_run(
            team,
            robots=robot,
            hold_out=splits,
            residual=residual,
            tell=part(tell, _READ, 1.0),
        )
    for warning in team.source.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    Report(found.to_dict(), identification_tables(found)).show(json)
    if out is not None:
        write_identified(source, found, out)
        console.print(f"wrote {out}", highlight=False)
    return 0 if team.source.complete or allow_damage else 1
