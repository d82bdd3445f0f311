"""Runs trials on a fleet one after another, and keeps what was done."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testudo_deploy.files.atomic_files import write_whole
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.fleet_run import FleetRunState, run_fleet
from testudo_deploy.launch.launch_plan import ProcessPlan, with_trial
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.launch.station_session import StationSession
from testudo_deploy.launch.topic_names import SUCCESS, TIMEOUT
from testudo_hardware.errors import TestudoError
from testudo_policies.trials.trial_draw import Pose, Trial, TrialTeam
from testudo_runs.run_reader import RecordedRun, read_run

SCHEMA = "testudo/trials/1"
FILE = "trials.json"
STARTING_S = 30.0  # beside the ways to the start and the task: start of the processes, end of the recording


@dataclass(frozen=True)
class TrialOptions:
    """What all trials of a folder have in common."""

    seed: int
    backend: str  # sim or hw
    lock_step: bool
    patience_s: float  # longest time until all robots stand at their starts
    policy_sha256: str
    robots: tuple[str, ...]


class TrialFolder:
    """The results of trials in a folder; each is written as soon as it is there."""

    def __init__(self, folder: Path, options: TrialOptions) -> None:
        """Read what was done before.

        Raises:
            TestudoError: the folder holds something else, or trials with other options.
        """
        self.folder, self._file, self.seed = folder, folder / FILE, options.seed
        self.options: dict[str, Any] = json.loads(json.dumps(asdict(options)))
        self.results: dict[int, dict[str, Any]] = {}
        if not self._file.exists():
            if folder.exists() and any(folder.iterdir()):
                raise TestudoError(f"{folder}: holds files, but no {FILE}; give a new folder, or one of trials")
            return
        try:
            values = json.loads(self._file.read_text(encoding="utf-8"))
            before, results = values["options"], {one["number"]: one for one in values["trials"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(f"{self._file}: is no result of `testudo trial`: {error!r}") from error
        for key, value in self.options.items():
            if before.get(key) != value:
                raise TestudoError(
                    f"{self._file}: found trials with {key} {before.get(key)!r}, expected {value!r}; give a new folder"
                )
        self.results = results

    def keep(self, result: dict[str, Any]) -> None:
        """Add a result, with what became of earlier tries of this trial, and write the file."""
        before = self.results.get(result["number"])
        tried = [] if before is None else [*before["earlier"], {key: before[key] for key in ("outcome", "reasons")}]
        self.results[result["number"]] = result | {"earlier": tried}
        trials = [self.results[number] for number in sorted(self.results)]
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps({"schema": SCHEMA, "options": self.options, "trials": trials}) + "\n")

    def is_scored(self, number: int) -> bool:
        """Return whether a trial is done; one that could not be counted is tried again."""
        return number in self.results and bool(self.results[number]["scored"])

    def new_run(self, number: int) -> Path:
        """Return a new run folder for a trial; what an interrupted trial recorded stays beside it."""
        name = f"run_{number:03d}"
        tries = (self.folder / (name if k == 1 else f"{name}_{k}") for k in range(1, 1000))
        return next(path for path in tries if not path.exists())

    def stand(self, number: int, begins: Sequence[Pose]) -> tuple[Pose, ...]:
        """Return where the robots stand before a trial: where the last one before it left them."""
        ends = next((one["ends"] for k in range(number - 1, 0, -1) if (one := self.results.get(k)) and one["ends"]), ())
        return tuple(Pose(tuple(place), yaw) for place, yaw in ends) if ends else tuple(begins)


@dataclass(frozen=True)
class Reach:
    """Where the robots are."""

    domain_id: int | None  # of ROS; None: a free one on this machine with the plant, else that of the environment
    local: bool = False  # real robots' processes run on this machine


def station_of(team: TrialTeam, options: TrialOptions, reach: Reach) -> Any:
    """Return the station of real robots, a context manager; one of None with the plant.

    Raises:
        TestudoError: the robots would not listen to the task node.
    """
    if options.backend == "sim":
        return nullcontext()
    if team.fleet.task is None:
        raise TestudoError(f"{team.fleet.file}: orders: found false, expected true, so that the robots take goals")
    return StationSession(team.fleet, ros_domain_id(reach.domain_id), local=reach.local)


def run_trial(
    team: TrialTeam,
    trial: Trial,
    kept: TrialFolder,
    options: TrialOptions,
    show: Callable[[FleetRunState], None],
    reach: Reach,
    station: StationSession | None = None,
) -> dict[str, Any]:
    """Run one trial, on the plant from where the robots stand, and return its result, JSON-ready.

    Raises:
        TestudoError: a node refused or died before the start.
        FleetRunInterruptedError: Ctrl-C.
    """
    kept.folder.mkdir(parents=True, exist_ok=True)
    run = kept.new_run(trial.number)
    file = kept.folder / f"fleet_{trial.number:03d}.yaml"
    stand = team.begins if station is not None else kept.stand(trial.number, team.begins)
    fleet = team.fleet_of(trial, stand, file)
    duration_s = options.patience_s + team.horizon_s + STARTING_S

    def adapt(planned: Sequence[ProcessPlan]) -> tuple[ProcessPlan, ...]:
        return with_trial(planned, start_order(fleet, trial, options.patience_s))

    if station is not None:
        return result_of(trial, station.run(fleet, run, adapt, duration_s, show), read_run(run))
    state = run_fleet(
        fleet,
        run_folder=run,
        seed=trial.seed,
        duration_s=duration_s,
        adapt=adapt,
        lock_step=options.lock_step,
        domain_id=reach.domain_id,
        show=show,
    )
    return result_of(trial, state, read_run(run))


def start_order(fleet: Fleet, trial: Trial, patience_s: float) -> dict[str, Any]:
    """Return what the task node reads of a trial."""
    return {"starts": dict(zip(fleet.names, trial.starts_world, strict=True)), "patience_s": patience_s}


def result_of(trial: Trial, state: FleetRunState, recorded: RecordedRun) -> dict[str, Any]:
    """Return the result of a trial: figures of the scenario's own scores, or why it is not counted."""
    said = [score for score in recorded.task_scores if "decision" in score]
    last: Mapping[str, Any] = said[-1] if said else {}
    ended = state.outcome in (SUCCESS, TIMEOUT) and bool(last) and last["state"] == state.outcome
    missing = last["decision"] - last["scored"] if last else 0
    reasons = list(state.task_result.get("reasons", ()))
    if ended and missing:
        reasons = [f"{missing} of {last['decision']} decisions could not be scored: a robot was not measured"]
    apart = [score["separation_m"] for score in said if score["separation_m"] is not None]
    return {
        "number": trial.number,
        "seed": trial.seed,
        "scored": ended and not missing,
        "outcome": state.outcome,
        "reasons": reasons or ([] if ended else state.lines[-3:]),
        "success": state.outcome == SUCCESS,
        "time_s": last.get("time_s", 0.0),
        "return": sum(last["total"].values()) / len(last["total"]) if last else None,
        "metrics": dict(last.get("metrics", {})),
        "contacts": sum(event.kind == "contact" for event in recorded.events) if recorded.events else None,
        "separation_m": min(apart, default=None),
        "run": str(recorded.folder),
        "hash": state.chain_hash,
        "ends": _ends(recorded),
    }


def _ends(recorded: RecordedRun) -> list[tuple[list[float], float]]:
    """Return where the robots stand at the end of a run on the plant; empty for real robots."""
    tracks = [recorded.truth.get(name) for name in recorded.robots]
    if any(track is None or not len(track.yaw) or not math.isfinite(track.yaw[-1]) for track in tracks):
        return []
    return [([float(x) for x in t.position_world[-1]], float(t.yaw[-1])) for t in tracks if t is not None]
