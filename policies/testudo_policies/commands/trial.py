"""`testudo trial`: repeats a task on a fleet, each time from another start, beside the same starts in simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_run import FleetRunInterruptedError, FleetRunState
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.trials.trial_draw import Trial, TrialTeam
from testudo_policies.trials.trial_runs import Reach, TrialFolder, TrialOptions, run_trial, station_of
from testudo_policies.trials.trial_table import comparison, not_scored_lines, trial_table
from testudo_runs.progress_bar import progress_bar

_FAILED = 1
_LEAST_PATIENCE_S, _MOST_PATIENCE_S = 5.0, 3600.0


@dataclass(frozen=True)
class ReachOptions:
    """Where the robots are."""

    domain: int | None = None
    """ROS_DOMAIN_ID; by default one that is free on this machine, with hw that of the environment."""
    local: bool = False
    """With hw: the robots' processes run on this machine, as `testudo up` starts them."""

    def checked(self, backend: str, *, lock_step: bool) -> Reach:
        """Return it for a backend.

        Raises:
            TestudoError: an option of the other backend, or a domain out of range.
        """
        if backend == "hw" and lock_step:
            raise TestudoError("--lock-step: found with --backend hw, expected sim: real robots do not wait")
        if backend == "sim" and self.local:
            raise TestudoError("--local: found with --backend sim, expected hw: the plant runs on this machine anyway")
        return Reach(None if self.domain is None else ros_domain_id(self.domain), self.local)


def trial(
    fleet: tyro.conf.Positional[Path],
    repeat: int = 20,
    seed: int = 1,
    out: Path = Path("runs/trials"),
    backend: Literal["sim", "hw"] = "sim",
    lock_step: bool = False,
    patience: float = 120.0,
    reach: Annotated[ReachOptions, tyro.conf.arg(name="")] = ReachOptions(),
    json: Path | None = None,
) -> int:
    """Repeat a task on a fleet, each time from another start, and compare it with the same starts in simulation.

    For each trial the reset of the policy's scenario draws starts and goals. The robots drive to the starts through
    their shields, the task begins and ends by itself, its run is recorded, and the scenario's own functions score it.
    A trial whose robots do not come to their starts is named and not counted. The same command goes on where it was
    ended, and repeats what was not counted. The exit status is 0 only if all were counted, and none had a contact.

    Example:
        testudo trial fleet.yaml --repeat 20 --seed 1
        testudo trial fleet.yaml --repeat 20 --lock-step --json trials.json

    Args:
        fleet: the fleet file; its scenario must have a goal for each robot, as for `testudo goal`.
        repeat: number of trials.
        seed: seed of the starts and goals.
        out: folder of the runs and results.
        backend: sim drives on the plant; hw is the station of real robots, whose guards and policies run already
            (`robot.launch.py`); nothing else may be their station meanwhile.
        lock_step: run on simulated time, as fast as the machine allows; only with the plant.
        patience: longest time until all robots stand at their starts [s].
        reach: where the robots are.
        json: also write the figures to this file.
    """
    check_output(json)
    if not _LEAST_PATIENCE_S <= patience <= _MOST_PATIENCE_S:
        raise TestudoError(
            f"--patience: found {patience:g} s, expected {_LEAST_PATIENCE_S:g} to {_MOST_PATIENCE_S:g} s"
        )
    console = Console()
    team = TrialTeam(load_fleet(fleet), lock_step=lock_step)
    options = TrialOptions(seed, backend, lock_step, patience, team.fleet.policy_sha256, team.fleet.names)
    trials, kept = team.trials(seed, repeat), TrialFolder(out, options)
    try:
        _run(team, trials, kept, options, reach.checked(backend, lock_step=lock_step))
    except FleetRunInterruptedError:
        done = sum(kept.is_scored(one.number) for one in trials)
        console.print(Text(f"stopped; {done} of {repeat} trials are kept in {out}; the same command goes on"))
        raise
    values = _show(team, trials, kept, console, json)
    whole = values["scored"] == repeat and not values["contacts"]["fleet"]
    return 0 if whole else _FAILED


def _run(team: TrialTeam, trials: Sequence[Trial], kept: TrialFolder, options: TrialOptions, reach: Reach) -> None:
    """Run the trials that are missing, and keep each."""
    with station_of(team, options, reach) as station, progress_bar("trials") as tell:
        for one in trials:
            if kept.is_scored(one.number):
                continue
            done = (one.number - 1) / len(trials)

            def show(state: FleetRunState, one: Trial = one, done: float = done) -> None:
                tell(f"trial {one.number} of {len(trials)}: {_step(state)}", done)

            kept.keep(run_trial(team, one, kept, options, show, reach, station))


def _step(state: FleetRunState) -> str:
    if not state.started:
        return "the fleet starts"
    return "the task runs" if state.figures else "the robots drive to their starts"


def _show(
    team: TrialTeam, trials: Sequence[Trial], kept: TrialFolder, console: Console, json: Path | None
) -> dict[str, Any]:
    """Simulate the same starts, and show and write the comparison of the trials that are done."""
    results = [kept.results[one.number] for one in trials]
    values = comparison(results, team.simulated(kept.seed, len(trials)))
    console.print(trial_table(values))
    for line in not_scored_lines(values):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    console.print(Text(f"runs: {kept.folder}; one of them: `testudo report {results[-1]['run']}`"), soft_wrap=True)
    write_output(json, {"options": kept.options, **values, "runs": results}, console)
    return values
