"""The verb `incident`: finds incidents of a run, their likely causes and counterfactual outcomes."""

from dataclasses import dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from testudo_analysis.incident.find_incidents import find_incidents
from testudo_analysis.incident.incident import Incident, IncidentThresholds, kept_apart_m
from testudo_analysis.incident.incident_replay import IncidentReplay, merged, replay_incidents, starts_of, worst
from testudo_analysis.incident.incident_table import incident_table
from testudo_analysis.replay.counterfactual import counterfactual_variants
from testudo_analysis.replay.replay_tables import counterfactual_tables
from testudo_analysis.replay.replayed_team import load_team
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import TeamRecording
from testudo_runs.progress_bar import progress_bar
from testudo_sim.starts import save_starts

SCHEMA = "testudo/incidents/1"
_READ = 0.7
"""Approximate share of the time to the first table that reading takes."""


@dataclass(frozen=True)
class IncidentSelection:
    """Selection of incidents, and options of their counterfactuals."""

    worst: int = 3
    """Number of worst incidents with counterfactuals; 0 for none."""
    incident: tuple[int, ...] = ()
    """Numbers of the incidents to save or to simulate, instead of the worst."""
    near: float | None = None
    """Distance of two centres [m] that counts as near; default: the separation of shield layer 1."""
    robot: str = ""
    """Robot or robot file, for imported runs without one."""
    shown: int = 5
    """Incidents of each kind in the table on the terminal."""
    draws: int = 8
    """Worlds of each counterfactual: the first has the dynamics of the robot file, the others random ones."""
    commands: bool = False
    """Simulate the recorded commands instead of the recorded policy."""


def incident(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    policy: Path | None = None,
    json: Path | None = None,
    save_scenario: Path | None = None,
    choice: Annotated[IncidentSelection, tyro.conf.arg(name="")] = IncidentSelection(),
) -> int:
    """List the incidents of a run with likely causes and with counterfactual outcomes with and without the shield.

    Incidents: contacts and near contacts, deadlocks, stops by code, localisation jumps, stale peers, guard brakes,
    saturation and late ticks; for imported runs those that poses and commands show. `testudo report` shows them on a
    page.

    Example:
        testudo incident runs/mine/run
        testudo incident imported --robot turtlebot4 --worst 0 --json incidents.json
        testudo incident runs/mine/run --save-scenario incident.yaml      (then: testudo evaluate policy.onnx --starts)

    Args:
        run: run folder, recorded by `testudo up` or imported.
        policy: policy file of the counterfactuals, or the name of one that ships; default: that of the run.
        json: also write all results to this file.
        save_scenario: write the states before the worst incident, or before those of --incident, as a start file for
            `train` and `evaluate`.
        choice: selection of incidents, and options of their counterfactuals.
    """
    console = Console()
    policy = None if policy is None else policy_file(policy)
    with progress_bar(f"reading {run}") as show:
        recording = load_team(run, choice.robot or None, lambda done: show(f"reading {run}", _READ * done))
        show("searching for incidents", _READ)
        bounds = IncidentThresholds.of(recording, choice.near)
        incidents = find_incidents(recording, bounds)
    for warning in recording.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    if incidents:
        console.print(incident_table(incidents, choice.shown))
    else:
        console.print("no incidents found in the recording")
    unknown = [number for number in choice.incident if not 0 <= number < len(incidents)]
    if unknown:
        raise TestudoError(
            f"--incident: found {unknown[0]}, expected 0 to {len(incidents) - 1}: {run} has {len(incidents)} incidents"
        )
    selected = [incidents[number] for number in choice.incident] or worst(incidents, max(choice.worst, 1))
    aftermaths = (
        _counterfactuals(recording, selected, policy, choice, bounds, console) if selected and choice.worst else []
    )
    for item in aftermaths:
        console.print(f"[bold]{item.incident.what}[/]", highlight=False)
        for table in counterfactual_tables(item.incident.aftermath):
            console.print(table)
    _write(recording, incidents, aftermaths, bounds, json, console)
    if save_scenario is not None:
        _save(recording, selected, choice, bounds, save_scenario, console)
    return 0


def _counterfactuals(
    recording: TeamRecording,
    selected: list[Incident],
    policy: Path | None,
    choice: IncidentSelection,
    bounds: IncidentThresholds,
    console: Console,
) -> list[IncidentReplay]:
    variants = counterfactual_variants(recording, policy, commands=choice.commands)
    if any(variant.artefact is None for variant in variants) and any(
        robot.commands is None for robot in recording.robots
    ):
        console.print("[yellow]note:[/] no commands are recorded; the recorded motion is used as commands")
    what = "simulating from before the incidents"
    with progress_bar(what) as show:
        return replay_incidents(recording, selected, variants, bounds, choice.draws, partial(show, what))


def _write(
    recording: TeamRecording,
    incidents: list[Incident],
    aftermaths: list[IncidentReplay],
    bounds: IncidentThresholds,
    json: Path | None,
    console: Console,
) -> None:
    if json is not None:
        outcomes = {
            (item.incident.kind, item.incident.robots, item.incident.at_s): item.incident for item in aftermaths
        }
        rows = [outcomes.get((item.kind, item.robots, item.at_s), item).to_dict() for item in incidents]
        values = {
            "schema": SCHEMA,
            "run": str(recording.folder),
            "robot": recording.spec.name,
            "robots": list(recording.names),
            "near_m": bounds.near_m,
            "warnings": list(recording.warnings),
            "incidents": rows,
        }
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        console.print(f"written: {json}", highlight=False)


def _save(
    recording: TeamRecording,
    selected: list[Incident],
    choice: IncidentSelection,
    bounds: IncidentThresholds,
    file: Path,
    console: Console,
) -> None:
    if not selected:
        raise TestudoError(
            f"{recording.folder}: --save-scenario: found no incidents in this run, expected one; to simulate from "
            "another time, use `testudo replay --mode counterfactual --from`"
        )
    chosen = selected if choice.incident else selected[:1]
    starts = merged([starts_of(recording, item, bounds) for item in chosen])
    save_starts(starts, file)
    kept_m, apart_m = kept_apart_m(recording), starts.least_distance_m
    if apart_m < kept_m:
        console.print(
            f"[yellow]note:[/] at the start two robots are only {apart_m:.3f} m apart; the shield keeps "
            f"{kept_m:.3f} m and gives no guarantee from such a start",
            highlight=False,
        )
    console.print(f"written: {file}; next: testudo evaluate POLICY --starts {file}", highlight=False)
