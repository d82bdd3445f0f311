"""Further runs of the demo's policy over ROS 2: other starts, other plants, each recorded."""

from __future__ import annotations

import time

from rich.table import Table

from testudo_analysis.report import FlownRun
from testudo_analysis.report.run_table import COLUMNS, flown_row, flown_run
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_policies.demo.steps import Demo
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.starting_fleet import write_fleet
from testudo_policies.learning.builder import TrainingComponents
from testudo_runs.run_reader import read_run


def run_again(demo: Demo, workshop: TrainingComponents, export: ExportReport, seeds: range) -> list[FlownRun]:
    """Drive a fleet for each seed, record it in ``runs/<seed>``, and print a line for each."""
    begin = time.perf_counter()
    table, driven = Table(*COLUMNS), []
    for seed in seeds:
        folder = demo.folder / "runs" / str(seed)
        fleet = write_fleet(workshop, export, folder / "fleet.yaml", seed)
        with demo.console.status(f"seed {seed}: driving"):
            state = run_fleet(load_fleet(fleet), run_folder=folder / "run", seed=seed, lock_step=demo.lock_step)
        driven.append(flown_run(seed, state, read_run(folder / "run"), export.contract.shield))
        table.add_row(*flown_row(driven[-1]))
    if driven:
        demo.console.print(table)
    demo.further_s = time.perf_counter() - begin
    return driven
