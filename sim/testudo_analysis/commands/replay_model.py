"""The parts of `testudo replay` that need JAX and SciPy, which take seconds to start.

These are imported runs, whose drones have a model of their rotors, and counterfactuals.
"""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from testudo_analysis.commands.replay_output import CounterfactualOptions, show_warnings, write_results
from testudo_analysis.gap.replayed_robots import open_loop_recording
from testudo_analysis.replay.counterfactual import HorizonSettings, counterfactual_variants, simulate_from
from testudo_analysis.replay.gap_names import ALL_ROBOTS, Reference
from testudo_analysis.replay.replay_tables import counterfactual_tables, gap_tables
from testudo_analysis.replay.replayed_team import load_team
from testudo_analysis.replay.variants import recorded_outcome
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import load
from testudo_runs.progress_bar import part, progress_bar


def replay_imported(
    run: Path,
    mode: str,
    reference: Reference,
    robot: str | None,
    allow_damage: bool,
    json: Path | None,
    console: Console,
) -> int:
    """Replay the recorded commands of an imported run open loop."""
    with progress_bar(f"reading {run}") as show:
        recording = load(run, robot_type=robot, seen=reference, share=partial(show, f"reading {run}"))
        show_warnings(recording.source.warnings, console)
        show("replaying the commands from every pose", 0.5)
        gaps, left_out = open_loop_recording(recording)
    for gap in gaps:
        for table in gap_tables(gap):
            console.print(table)
    for name, why in left_out.items():
        console.print(f"[yellow]{name} could not be replayed:[/] {why}", highlight=False)
    if mode == "all":
        why = "an imported run has neither the policy artefact nor its inputs"
        console.print(f"[yellow]re-inference skipped:[/] {why}", highlight=False)
    results = [
        {"robots": [name for name in gap.robots if name != ALL_ROBOTS], "open_loop": gap.to_dict()} for gap in gaps
    ]
    source = recording.source
    whole = {"run": str(run), "complete": source.complete, "warnings": list(source.warnings), "left_out": left_out}
    write_results(json, whole | (results[0] if len(results) == 1 else {"teams": results}), console)
    return 0 if recording.source.complete or allow_damage else 1


def replay_counterfactual(
    folder: Path, policy: Path | None, branch: CounterfactualOptions, json: Path | None, console: Console
) -> int:
    """Simulate a run from moments of it, and compare with the recording; return the exit status."""
    if not branch.start:
        raise TestudoError("--from: found nothing, expected a start time [s]")
    with progress_bar(f"reading {folder}") as show:
        recording = load_team(folder, branch.robot or None, partial(show, f"reading {folder}"))
    show_warnings(recording.warnings, console)
    everyone, recording = recording, recording.seen_at(branch.start)
    if len(recording.robots) < 2:
        spans = ", ".join(
            f"{one.name} {one.trajectory.stamp_s[0]:.1f} to {one.trajectory.stamp_s[-1]:.1f} s"
            for one in everyone.robots
        )
        raise TestudoError(
            f"{folder}: --from: found {', '.join(f'{time_s:g}' for time_s in branch.start)} s, expected "
            f"times at which at least two robots are recorded: {spans}"
        )
    if len(recording.robots) < len(everyone.robots):
        absent = ", ".join(sorted(set(everyone.names) - set(recording.names)))
        console.print(f"[yellow]note:[/] {absent}: not recorded at these times, so not simulated")
    ahead = HorizonSettings(branch.horizon, branch.draws, branch.seed)
    variants = counterfactual_variants(recording, policy, commands=branch.commands, shield=branch.shield)
    outcomes = [recorded_outcome(recording, time_s, branch.horizon)[0] for time_s in branch.start]
    task = variants[-1].task
    if task is not None:
        outcomes = [
            replace(one, task_return=task.return_between(one.from_s, one.from_s + one.horizon_s)) for one in outcomes
        ]
    with progress_bar("simulating") as show:
        for k, variant in enumerate(variants):
            own = part(show, k / len(variants), (k + 1) / len(variants))
            own(variant.name, 0.0)
            outcomes += simulate_from(recording, branch.start, variant, ahead, partial(own, variant.name)).outcomes
    for table in counterfactual_tables(outcomes):
        console.print(table)
    if any(robot.commands is None for robot in recording.robots) and any(
        variant.artefact is None for variant in variants
    ):
        console.print("[yellow]note:[/] no commands are recorded; the recorded motion is used as commands")
    rows = [outcome.to_dict() for outcome in outcomes]
    whole = {"run": str(folder), "robots": list(recording.names), "ahead": asdict(ahead), "counterfactual": rows}
    write_results(json, whole, console)
    return 0
