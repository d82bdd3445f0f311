"""`testudo demo`: the whole loop, from training to a report."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from testudo_analysis.replay.replay_tables import gap_tables
from testudo_analysis.report.fleet_summary import flown_run
from testudo_analysis.report.report_data import ReportData
from testudo_analysis.report.summary import all_passed, verdicts, write_summary
from testudo_analysis.run_page.build_page import RunContents, run_page
from testudo_analysis.run_page.document import write_page
from testudo_deploy.files.atomic_files import dated_folder
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands.evaluate import evaluation_table
from testudo_policies.commands.export import export_table
from testudo_policies.demo_steps import (
    Demo,
    analysis_step,
    evaluate_step,
    export_step,
    fleet_run_step,
    replay_step,
    report_data,
    run_again,
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
        scenario: registered scenario; default: `swap` for flying robots, `navigation` for ground robots.
        run: the folder to write; default: runs/ and the time.
        episodes: number of held-out episodes.
        fleet_seed: seed of the fleet: starts, goals and the plant's dynamics.
        runs: number of runs over ROS 2, each with other starts and another plant.
        lock_step: run in lock-step with simulated time, for machines that are too busy for real time.
        config: training configuration.
    """
    if runs < 1:
        raise TestudoError(f"--runs: found {runs}, expected at least 1")
    console = Console()
    default_scenario = "swap" if load_robot(config.robot).dimension == 3 else "navigation"
    config = replace(config, scenario=scenario or default_scenario)
    folder = run or dated_folder("runs")
    console.print(devices().text)
    config, hint = suggested(config)
    if hint:
        console.print(hint)
    config = sized(config, console.print)
    state = Demo(folder, console, config, lock_step)
    console.print(f"run folder {folder}")
    data, contents = _run_steps(state, episodes, fleet_seed, runs)
    page = write_page(run_page(replace(contents, report=data), data.title), folder / "report.html")
    write_summary(data, folder / "summary.json")
    _print_checks(state, data, page)
    return 0 if all_passed(verdicts(data)) else 1


def _run_steps(state: Demo, episodes: int, fleet_seed: int, runs: int) -> tuple[ReportData, RunContents]:
    """Run all steps, print their results, and return the contents of the report and of the page of the run."""
    console = state.console
    state.headline(1, "train, with the shield at every control tick")
    components, trained = train_step(state)
    state.headline(2, "evaluate on held-out episodes")
    evaluations = evaluate_step(state, components, trained, episodes)
    console.print(evaluation_table(evaluations, state.config.scenario))
    state.headline(3, "export and verify one artefact")
    export, fleet = export_step(state, components, trained, evaluations, fleet_seed)
    console.print(export_table(export))
    state.headline(4, "drive the fleet over ROS 2, and record it")
    result, recording = fleet_run_step(state, fleet, fleet_seed)
    console.print(
        f"{result.outcome} after {result.time_s:.1f} s, {result.contacts} contacts, "
        f"least separation {result.separation_m:.3f} m"
    )
    state.headline(5, "replay the recording")
    reinference, detected, gap = replay_step(state, components, export, recording)
    for table in gap_tables(gap):
        console.print(table)
    flown = [
        flown_run(fleet_seed, result, recording, export.contract.shield),
        *run_again(state, components, export, range(fleet_seed + 1, fleet_seed + runs)),
    ]
    state.headline(6, "report")
    show_step(state, components, recording)
    contents = analysis_step(state)
    wall_s = time.perf_counter() - state.begin_s - state.further_s
    data = report_data(state, trained, evaluations, export, recording, reinference, detected, gap, wall_s)
    return replace(data, runs=tuple(flown)), contents


def _print_checks(state: Demo, data: ReportData, page: Path) -> None:
    """Print the table of checks and the wall time of each step."""
    table = Table("check", "found", "asked", "verdict")
    for line in verdicts(data):
        verdict = {True: "[green]passed", False: "[red]failed", None: ""}[line.passed]
        late = line.is_timing and line.passed is False  # which depends on the machine, and is no failure
        table.add_row(line.name, line.value, line.bar, "[yellow]slower here" if late else verdict)
    state.console.print(table)
    state.console.print("steps: " + ", ".join(f"{name} {value:.0f} s" for name, value in state.seconds.items()))
    state.console.print(f"report in {page}; numbers in {state.folder / 'summary.json'}")
