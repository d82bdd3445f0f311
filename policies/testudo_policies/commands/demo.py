"""`testudo demo`: the whole loop, from nothing to a report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from testudo_analysis.replay.replay_tables import gap_tables
from testudo_analysis.report import ReportData, verdicts, write_html, write_summary
from testudo_analysis.report.run_table import flown_run
from testudo_analysis.report.summary import all_passed
from testudo_deploy.files.atomic_files import dated_folder
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands.evaluate import evaluation_table
from testudo_policies.commands.export import export_table
from testudo_policies.demo.report import report_data
from testudo_policies.demo.runs import run_again
from testudo_policies.demo.steps import (
    Demo,
    evaluate_step,
    export_step,
    fleet_run_step,
    replay_step,
    show_step,
    train_step,
)
from testudo_policies.learning.world_count import sized
from testudo_policies.train_config import TrainConfig, suggested
from testudo_sim.devices import devices


def demo(
    *,
    scenario: str = "",
    run: Path | None = None,
    episodes: int = 1000,
    fleet_seed: int = 0,
    runs: int = 1,
    lock_step: bool = False,
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = TrainConfig(),  # noqa: B008
) -> int:
    """Run the whole loop: train, evaluate, export, drive over ROS 2, record, replay, report.

    Exit status 0 means that every check of the report passed.

    Example:
        testudo demo
        testudo demo --run runs/mine --fleet-seed 3
        testudo demo --robot crazyflie_2x --runs 10      (four drones swap places; ten flights, the first is shown)

    Args:
        scenario: registered scenario; by default `swap` for robots that fly, and `navigation` on the ground.
        run: the folder to write; by default runs/ and the time.
        episodes: held-out episodes.
        fleet_seed: of the fleet: start, goals and the plant's dynamics.
        runs: how often to drive over ROS 2, each time from another start with another plant.
        lock_step: drive in rounds of simulated time, for machines that are too busy for real time.
        config: how to train.
    """
    if runs < 1:
        raise TestudoError(f"--runs: found {runs}, expected at least 1")
    console = Console()
    usual = "swap" if load_robot(config.robot).dimension == 3 else "navigation"
    config = replace(config, scenario=scenario or usual)
    folder = run or dated_folder("runs")
    console.print(devices().text)
    config, hint = suggested(config)
    if hint:
        console.print(hint)
    config = sized(config, console.print)
    state = Demo(folder, console, config, lock_step)
    console.print(f"run folder {folder}")
    state.headline(1, "train, with the shield at every control tick")
    workshop, trained = train_step(state)
    state.headline(2, "evaluate on held-out episodes")
    evaluation = evaluate_step(state, workshop, trained, episodes)
    console.print(evaluation_table([evaluation], config.scenario))
    state.headline(3, "export one artefact and prove it")
    export, fleet = export_step(state, workshop, trained, evaluation, fleet_seed)
    console.print(export_table(export))
    state.headline(4, "drive the fleet over ROS 2, and record it")
    drive, recording = fleet_run_step(state, fleet, fleet_seed)
    console.print(
        f"{drive.outcome} after {drive.time_s:.1f} s, {drive.contacts} contacts, "
        f"least separation {drive.separation_m:.3f} m"
    )
    state.headline(5, "replay what happened")
    again, caught, gap = replay_step(state, workshop, export, recording)
    for table in gap_tables(gap):
        console.print(table)
    driven = [
        flown_run(fleet_seed, drive, recording, export.contract.shield),
        *run_again(state, workshop, export, range(fleet_seed + 1, fleet_seed + runs)),
    ]
    state.headline(6, "report")
    film, view = show_step(state, workshop, recording)
    data = report_data(
        state,
        trained,
        evaluation,
        export,
        recording,
        again,
        caught,
        gap,
        (film, view),
        time.perf_counter() - state.begin_s - state.further_s,
    )
    data = replace(data, runs=tuple(driven))
    page = write_html(data, folder / "report.html")
    write_summary(data, folder / "summary.json")
    _tell(state, data, page)
    return 0 if all_passed(verdicts(data)) else 1


def _tell(state: Demo, data: ReportData, page: Path) -> None:
    """Print the table of checks, and how long each step took."""
    table = Table("check", "found", "asked", "verdict")
    for line in verdicts(data):
        verdict = {True: "[green]passed", False: "[red]failed", None: ""}[line.passed]
        table.add_row(line.name, line.value, line.bar, verdict)
    state.console.print(table)
    state.console.print("steps: " + ", ".join(f"{name} {value:.0f} s" for name, value in state.seconds.items()))
    state.console.print(f"look at {page}; numbers in {state.folder / 'summary.json'}")
