"""`testudo bench tasks`: five tasks of teams on the fleet over ROS 2, beside the same policies in simulation."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.fleet_tasks.fleet_runs import run_task
from testudo_bench.fleet_tasks.task_case import CASES, PreparedCase, TaskCase, messages_in
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError

_BAR = 1e-5
_COLUMNS = ("scenario", "runs", "contacts", "figure", "on the fleet", "simulation", "within", "worst re-inference")


def bench_tasks(
    *,
    scenario: str | None = None,
    repeats: int = 10,
    real_time: bool = False,
    trained: Path | None = None,
    policy: Path | None = None,
    saved: Path | None = None,
    say: Callable[[str], None] = print,
) -> BenchResult:
    """Play five tasks of teams on the fleet with the plant and all nodes, and compare them with simulation.

    Each run has another start. Contacts are those of the plant. The mean figure of the runs is compared with the middle
    95 % of the means of as many simulated episodes, whose ticks and messages are timed as those of the runs: exactly in
    lock-step, drawn in real time. Every command of every run is inferred again from the recording.

    Args:
        scenario: one scenario; default: all five.
        repeats: runs of each scenario.
        real_time: in real time; default: in lock-step on simulated time.
        trained: folder with a training run of each scenario, of its name; default: policies written by hand.
        policy: a policy file of the one scenario, or the name of one that ships.
        saved: file of partial results: runs in it are not repeated, and those of other scenarios are kept.
        say: called with progress messages.

    Raises:
        TestudoError: an unknown scenario, a number of runs below 1, results of the other clock, or a training run
            or policy file that cannot be read.
    """
    if policy is not None and (scenario is None or trained is not None):
        raise TestudoError("--policy: is of one scenario; give --scenario with it, and no --trained")
    if repeats < 1:
        raise TestudoError(f"--repeats: found {repeats}, expected at least 1")
    clock = "real time" if real_time else "lock-step"
    found = _partial(saved, clock)

    def keep(values: dict[str, Any]) -> None:
        found[values["scenario"]] = values
        if saved is not None:
            write_whole(saved, json.dumps({"clock": clock, "tasks": list(found.values())}) + "\n")

    for case in _chosen(scenario):
        with tempfile.TemporaryDirectory() as folder:
            prepared = PreparedCase(case, Path(folder), None if trained is None else trained / case.scenario, policy)
            _play(prepared, repeats, found.get(case.scenario, {}), keep, say, lock_step=not real_time)
    whole = [values for values in found.values() if "mean" in values]
    kinds = ", ".join(dict.fromkeys(values["policy"].partition(",")[0] for values in whole))
    title = f"tasks on the fleet over ROS 2 in {clock}; policies: {kinds}"
    return BenchResult(title, _COLUMNS, [_row(values) for values in whole], {"clock": clock, "tasks": whole})


def _chosen(scenario: str | None) -> tuple[TaskCase, ...]:
    known = {case.scenario: case for case in CASES}
    if scenario is not None and scenario not in known:
        raise TestudoError(f"--scenario: found {scenario!r}, expected one of {', '.join(known)}")
    return CASES if scenario is None else (known[scenario],)


def _partial(saved: Path | None, clock: str) -> dict[str, dict[str, Any]]:
    """Return the partial results of a file by scenario."""
    if saved is None or not saved.is_file():
        return {}
    try:
        values = json.loads(saved.read_text(encoding="utf-8"))
        before, tasks = values["clock"], {one["scenario"]: one for one in values["tasks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {saved}: is no output of `testudo bench tasks`: {error!r}") from error
    if before != clock:
        raise TestudoError(f"--json {saved}: found results in {before}, expected those in {clock}")
    return tasks


def _play(
    prepared: PreparedCase,
    repeats: int,
    before: Mapping[str, Any],
    keep: Callable[[dict[str, Any]], None],
    say: Callable[[str], None],
    *,
    lock_step: bool,
) -> None:
    """Play the runs of a scenario that are missing, and simulate it; ``keep`` takes the figures so far."""
    case, runs = prepared.case, list(before.get("runs", ()))
    values = {
        "scenario": case.scenario,
        "robots": case.team_size,
        "figure": case.metric,
        "policy": prepared.policy_kind,
        "runs": runs,
    }
    for number in range(len(runs), repeats):
        say(f"{case.scenario}: run {number + 1} of {repeats}")
        with tempfile.TemporaryDirectory() as folder:
            runs.append(run_task(prepared, number, Path(folder), lock_step=lock_step))
        keep(values)
    simulated = before.get("simulation", {})
    of_these_runs = (simulated.get("episodes_in_a_mean"), simulated.get("messages"))
    if of_these_runs != (len(runs), messages_in(lock_step=lock_step)):
        say(f"{case.scenario}: {case.episodes} episodes in simulation")
        simulated = prepared.simulated(len(runs), lock_step=lock_step)
    keep({**values, "simulation": simulated, **summary(runs, simulated)})


def summary(runs: Sequence[Mapping[str, Any]], simulated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums of runs; without a figure or a re-inference of one run, that of all is None and not met."""
    figures = [run["figure"] for run in runs]
    errors = [run["reinference_error"] for run in runs]
    mean = None if None in figures else float(np.mean(figures))
    worst = None if None in errors else max(errors)
    return {
        "contacts": sum(run["contacts"] for run in runs),
        "runs_with_contact": sum(run["contacts"] > 0 for run in runs),
        "mean": mean,
        "within": mean is not None and simulated["low"] <= mean <= simulated["high"],
        "runs_within_episodes": sum(
            figure is not None and simulated["least"] <= figure <= simulated["most"] for figure in figures
        ),
        "reinference_error": worst,
        "reinference_holds": worst is not None and worst <= _BAR,
    }


def _row(values: Mapping[str, Any]) -> tuple[str, ...]:
    runs, simulated = values["runs"], values["simulation"]
    mean, worst = values["mean"], values["reinference_error"]
    return (
        f"{values['scenario']}, {values['robots']} robots",
        str(len(runs)),
        str(values["contacts"]),
        values["figure"],
        "-" if mean is None else f"{mean:.3g}",
        f"{simulated['mean']:.3g} ({simulated['low']:.3g} to {simulated['high']:.3g})",
        f"{'yes' if values['within'] else 'no'}; {values['runs_within_episodes']} of {len(runs)} runs",
        "-" if worst is None else f"{worst:.1e}",
    )
