"""The verb `replay`: is the record true, and how far is the training model from what happened?"""

from __future__ import annotations

from importlib.metadata import version
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from testudo_deploy.artefact import Artefact
from testudo_hardware.spec import parse_robot
from testudo_sim.replay import TOLERANCE, Reinference, alter, open_loop, reinfer
from testudo_sim.replay.open_loop import Reference
from testudo_sim.replay.tables import gap_tables, reinference_tables
from testudo_sim.run_reader import Run, read_run


def replay(
    run: Annotated[Path, tyro.conf.Positional],
    policy: Path | None = None,
    mode: Literal["all", "reinference", "open-loop"] = "all",
    reference: Reference = "truth",
    alter: bool = False,
    allow_damage: bool = False,
    json: Path | None = None,
) -> int:
    """Infer a run's commands again from its recorded inputs, and measure the sim-to-real gap.

    Exit status 1 means that re-inference failed, so that the record does not follow from its inputs, or that part of
    the run could not be read: the rest is replayed all the same.

    Example:
        testudo replay runs/latest/run --json replay.json
        testudo replay run --mode reinference --alter    # changes one input; must fail

    Args:
        run: the run folder.
        policy: policy file to use; the copy in the run folder if not given.
        mode: reinference compares commands, open-loop measures the gap by horizon, all does both.
        reference: what open-loop replay starts from and is compared with.
        alter: change one recorded input before, to see re-inference fail.
        allow_damage: a run of which part cannot be read is no failure.
        json: also write the results to this file.
    """
    console = Console()
    recording = read_run(run)
    for warning in recording.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    artefact = _load(recording, policy)
    results: dict[str, Any] = {
        "run": str(run),
        "robots": list(recording.robots),
        "complete": recording.complete,
        "warnings": list(recording.warnings),
        "policy_sha256": artefact.sha256,
        "is_recorded_policy": artefact.sha256 == recording.policy_sha256,
    }
    status = 0 if recording.complete or allow_damage else 1
    if mode != "open-loop":
        inferred = _reinfer(recording, artefact, alter, console)
        results |= {"reinference": inferred.to_dict(), "altered": alter}
        status = status if inferred.passed else 1
    if mode != "reinference":
        spec = parse_robot(artefact.contract.robot_spec, f"{artefact.path}: contract")
        gap = open_loop(recording, spec, reference=reference)
        for table in gap_tables(gap):
            console.print(table)
        results |= {"open_loop": gap.to_dict()}
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        json.write_text(dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        console.print(f"written: {json}", highlight=False)
    if not recording.complete and not allow_damage:
        console.print("[red]part of the run could not be read[/]; --allow-damage takes the rest for good")
    return status


def _load(recording: Run, policy: Path | None) -> Artefact:
    if policy is None:
        return Artefact.load(recording.policy_path, sha256=recording.policy_sha256)
    return Artefact.load(policy)


def _reinfer(recording: Run, artefact: Artefact, altered: bool, console: Console) -> Reinference:
    if artefact.sha256 != recording.policy_sha256:
        console.print("[yellow]note:[/] this is not the policy that was recorded")
    recorded, here = recording.info.get("versions", {}).get("testudo"), version("testudo")
    if recorded not in (None, here):
        console.print(f"[yellow]note:[/] recorded with testudo {recorded}, this is {here}")
    if altered:
        recording, robot, sequence = alter(recording)
        console.print(f"[yellow]altered:[/] the position estimate of {robot} at tick {sequence}")
    inferred = reinfer(recording, artefact)
    for table in reinference_tables(inferred):
        console.print(table)
    verdict = "[green]passed[/]" if inferred.passed else "[red]FAILED[/]"
    console.print(
        f"re-inference {verdict}: {inferred.reinferred} commands of {inferred.ticks} ticks, "
        f"largest error {inferred.error:.1e}, allowed {TOLERANCE:g}"
    )
    return inferred
