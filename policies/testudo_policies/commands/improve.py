"""`testudo improve`: a better policy out of a real run, in one command."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testudo_deploy.files.atomic_files import dated_folder
from testudo_deploy.launch.run_folder import FLEET_FILE, POLICY_FILE
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import parse_robot
from testudo_policies.commands.export import export_table
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.improve.comparison import arrivals_table, comparison_table
from testudo_policies.improve.components import FineTuningComponents
from testudo_policies.improve.identification import identify_step
from testudo_policies.improve.steps import (
    MODEL,
    POLICY,
    Improvement,
    ImproveSettings,
    Method,
    components_step,
    counterfactual_step,
    evaluate_step,
    export_step,
    identified_spec,
    open_improvement,
    robot_changes,
    train_step,
)
from testudo_runs.run_reader import read_run
from testudo_sim.devices import devices

_WORSE = 1


def improve(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    policy: Path,
    out: Path | None = None,
    minutes: float = 5.0,
    method: Method = "finetune",
    robot: Path | None = None,
    episodes: int = 500,
    decisions: int | None = None,
    json: Path | None = None,
) -> int:
    """Make a better policy out of a real run: identify, randomise, fine-tune, compare with the old one, export.

    Every step is kept in the folder: after Ctrl-C the same command goes on. The new policy is exported only if it is
    not worse than the old one, on the identified model and from the moments of the run; else the exit status is 1.

    Example:
        testudo improve runs/mine --policy policy.onnx
        testudo improve runs/mine --policy policy.onnx --out better --minutes 10
        testudo improve runs/mine --policy policy.onnx --method h2o
        testudo improve runs/mine --policy policy.onnx --robot identified.toml

    Args:
        run: run folder, recorded or imported.
        policy: the policy to go on from.
        out: folder for what comes of it; by default improved/ and the time.
        minutes: longest time of fine-tuning, compilation apart.
        method: `finetune` learns in the identified simulation; `h2o` also learns from the run's own transitions, and
            trusts simulated ones as far as they look real.
        robot: identified robot file; by default the run is identified here.
        episodes: held-out episodes of each comparison.
        decisions: simulated decisions of fine-tuning; by default as many as the old policy was trained for.
        json: file for all numbers.
    """
    console = Console()
    check_output(json)
    begin = time.perf_counter()
    _check(run, minutes, episodes, decisions)
    folder = out or dated_folder("improved")
    console.print(devices().text)
    ours = all((run / name).is_file() for name in (FLEET_FILE, POLICY_FILE))
    state = open_improvement(
        ImproveSettings(run, policy, folder, method, minutes, episodes, decisions),
        console,
        read_run(run) if ours else None,
    )
    console.print(f"folder {folder}; after Ctrl-C the same command with --out {folder} goes on")
    if not ours:
        console.print(
            "the run holds no artefact of ours: its own starts and goals are unknown, so that old and new "
            "are compared on the identified model alone"
        )
    state.headline(1, "identify the robots of the run")
    identify_step(state, robot)
    console.print(_changes_table(state))
    state.headline(2, f"fine-tune in worlds drawn from the identified intervals ({method})")
    workshop = components_step(state)
    trained = train_step(state, workshop)
    state.headline(3, "compare old and new")
    comparisons = evaluate_step(state, workshop, trained)
    console.print(comparison_table(comparisons))
    complaints = [text for item in comparisons for text in item.complaints()]
    state.keep("comparisons", [item.to_dict() for item in comparisons])
    state.headline(4, "export what is not worse")
    if not complaints:
        report = export_step(state, workshop, trained, next(c.new for c in comparisons if c.name == MODEL))
        complaints += _tried(state, workshop, report)
    if complaints:
        console.print(Text("the new policy is worse, the old one stays:\n  " + "\n  ".join(complaints)))
    state.keep("worse", complaints)
    console.print(f"{time.perf_counter() - begin:.0f} s; numbers in {folder / 'improve.json'}")
    write_output(json, state.values, console)
    return _WORSE if complaints else 0


def _tried(state: Improvement, workshop: FineTuningComponents, report: ExportReport) -> tuple[str, ...]:
    """Give the candidate its name if the counterfactual of the run does not speak against it; returns what does."""
    console, target = state.console, state.order.folder / POLICY
    complaints = counterfactual_step(state, workshop, report.path)
    if state.run is not None:
        console.print(arrivals_table(state.values["counterfactual"]))
    if complaints:
        report.path.unlink()
        return complaints
    report.path.replace(target)
    console.print(export_table(replace(report, path=target)))
    state.keep("exported", {"path": POLICY, "sha256": report.sha256})
    console.print(f"next: testudo up --policy {target} --fleet FLEET.yaml")
    return ()


def _check(run: Path, minutes: float, episodes: int, decisions: int | None) -> None:
    if not run.is_dir():
        raise TestudoError(f"{run}: no such run folder")
    if not 0 < minutes < float("inf"):
        raise TestudoError(f"--minutes: found {minutes}, expected a positive number")
    if episodes < 1:
        raise TestudoError(f"--episodes: found {episodes}, expected at least 1")
    if decisions is not None and decisions < 1:
        raise TestudoError(f"--decisions: found {decisions}, expected at least 1")


def _changes_table(state: Improvement) -> Table:
    """Return what the run has changed in the robot's description, and note it."""
    old = parse_robot(state.old.contract.robot_spec, str(state.order.policy))
    changes = robot_changes(old, identified_spec(state))
    state.keep("identified", changes)
    table = Table("quantity", "old policy's robot", "identified", title="What the worlds are drawn from")
    for key, change in changes.items():
        table.add_row(key, _interval(change["old"], change["unit"]), _interval(change["new"], change["unit"]))
    if not changes:
        table.add_row("nothing", "is known better", "than before")
    return table


def _interval(values: list[float] | None, unit: str) -> str:
    if values is None:
        return "not known"
    value, low, high = values
    return rf"{value:.4g} \[{low:.4g}, {high:.4g}] {unit}"
