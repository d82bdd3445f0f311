"""The verb `identify`: fits robot parameters to a recorded run."""

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
"""Approximate share of the time that reading takes."""


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
    """Fit robot parameters to a run, with intervals, and list the parameters that the run cannot determine.

    Poses and commands are sufficient. The fit is validated on held-out data: the second half of the run, and each robot
    in turn. Exit status 1 means that part of the run could not be read; the rest is still used.

    Example:
        testudo identify run --out create.toml --json identified.json
        testudo identify run --robot robot1 robot2 --robot-type irobot_create --hold-out half

    Args:
        run: run folder, imported or recorded.
        robot: robots to fit; default: all.
        robot_type: registered robot or robot file to start from; default: that of the run.
        out: write the identified robot file to this path.
        hold_out: held-out data for the validation.
        residual: also fit a residual model of a differential drive, and report its benefit on held-out data.
        allow_damage: exit status 0 even if part of the run cannot be read.
        json: also write all results to this file.
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
