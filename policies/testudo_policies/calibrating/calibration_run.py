"""One calibration drive over ROS 2, from the start of the processes to its end, with the robot braked."""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testudo_deploy.calibration.area import Area
from testudo_deploy.calibration.calibration_drive import Outcome
from testudo_deploy.calibration.excitation import LONGEST_S
from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses, ProcessEvent
from testudo_deploy.launch.fleet_run import FleetRunError
from testudo_deploy.launch.launch_plan import ProcessPlan, plan, with_calibration
from testudo_deploy.launch.run_folder import FLEET_FILE
from testudo_hardware.errors import TestudoError

DRIVE_FILE = "calibration.json"
_SCHEMA = "testudo/calibration/1"
_LISTEN_S = 0.1
_LEAST_S = 5.0  # of robot time for another drive
_SILENCE_S = 90.0  # without any event for this time the processes hang
_AFTER_S = 1.0  # of events after the processes were stopped
_ENDS_RUN = ("calibration", "policy", "guard", "plant", "recorder", "station")


@dataclass
class DriveResult:
    """What was driven."""

    run: Path
    outcome: str = ""  # an `Outcome`, interrupted by Ctrl-C, or the label of a process that ended
    reason: str = ""
    done: list[str] = field(default_factory=list)
    """Names of the segments that were driven in this run."""
    before: int = 0  # segments that earlier runs had driven
    used_s: float = 0.0
    lines: list[str] = field(default_factory=list)  # that the processes wrote on standard error

    @property
    def is_complete(self) -> bool:
        """Return whether the whole plan was driven, or all of it that the time permits."""
        return self.outcome == Outcome.COMPLETE

    def save(self) -> None:
        """Write the result beside the run, for `--resume`."""
        values = {"schema": _SCHEMA, "outcome": self.outcome, "reason": self.reason, "used_s": self.used_s}
        values |= {"before": self.before, "done": self.done}
        with contextlib.suppress(OSError):  # without it a later drive begins at the first segment
            (self.run / DRIVE_FILE).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def driven_before(runs: Sequence[Path]) -> tuple[int, float]:
    """Return how many segments of the plan earlier runs have driven, and their robot time [s].

    Raises:
        TestudoError: a folder holds no calibration, or no time is left.
    """
    count, used_s = 0, 0.0
    for run in runs:
        try:
            values: dict[str, Any] = json.loads((run / DRIVE_FILE).read_text(encoding="utf-8"))
            count, used_s = values["before"] + len(values["done"]), used_s + float(values["used_s"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(
                f"--resume {run}: found no {DRIVE_FILE}, expected the run folder of a calibration drive"
            ) from error
    if used_s >= LONGEST_S - _LEAST_S:
        raise TestudoError(f"--resume: found {used_s:.0f} s of driving already, expected less than {LONGEST_S:g} s")
    return count, used_s


def area_of_run(run: Path) -> Area:
    """Return the free area of an earlier drive.

    Raises:
        TestudoError: the run folder cannot be read, or has no area.
    """
    fleet = load_fleet(run / FLEET_FILE)
    arena = read_policy_contract(fleet.policy, fleet.policy_sha256).arena
    if arena is None:
        raise TestudoError(
            f"--resume {run}: found a policy file without an arena, expected that of a calibration drive"
        )
    return Area.of(arena)


@dataclass(frozen=True)
class DriveOptions:
    """How the drive runs."""

    backend: str = "hw"  # of `launch_plan.BACKENDS`
    lock_step: bool = False
    seed: int = 0
    domain_id: int | None = None
    driven: int = 0
    longest_s: float = LONGEST_S
    change: Callable[[tuple[ProcessPlan, ...]], Sequence[ProcessPlan]] = lambda processes: processes
    """Changes the processes, for tests: a plant whose robot is not as in the file."""


def drive_calibration(
    fleet: Fleet, run: Path, options: DriveOptions, show: Callable[[DriveResult], None] = lambda _: None
) -> DriveResult:
    """Drive the robot of a fleet of `write_calibration_fleet`, and record the run; Ctrl-C ends it, braked.

    Raises:
        TestudoError: a process refused or died before the drive began.
    """
    (name,) = fleet.names
    processes = plan(
        fleet,
        run_folder=run,
        backend=options.backend,
        seed=options.seed,
        duration_s=10 * LONGEST_S,
        lock_step=options.lock_step,
    )
    processes = with_calibration(processes, name, driven=options.driven, longest_s=options.longest_s)
    result = DriveResult(run, before=options.driven)
    children = FleetProcesses(options.change(processes), domain_id=options.domain_id, local=options.backend == "sim")
    try:
        with children:
            _listen(children, result, show)
    except KeyboardInterrupt:
        result.outcome, result.reason = "interrupted", "Ctrl-C"
    _take_rest(children, result)
    if result.run.is_dir():
        result.save()
    show(result)
    return result


def _listen(children: FleetProcesses, result: DriveResult, show: Callable[[DriveResult], None]) -> None:
    heard_s = time.monotonic()
    while not result.outcome:
        event = children.next_event(_LISTEN_S)
        if event is None:
            if time.monotonic() - heard_s > _SILENCE_S:
                result.outcome, result.reason = "silent", f"no process reported anything for {_SILENCE_S:g} s"
            continue
        heard_s = time.monotonic()
        _take(event, result)
        if event.kind == "ended" and event.process.rpartition("/")[2] in _ENDS_RUN:
            lines = [line for line in result.lines if line.startswith(f"{event.process}: ")]
            why = lines[-1] if lines else f"{event.process}: no reason was written"
            if not result.used_s:
                raise FleetRunError(f"{event.process} ended before the drive: {why.partition(': ')[2]}")
            result.outcome, result.reason = event.process, why
        show(result)


def _take(event: ProcessEvent, result: DriveResult) -> None:
    values = event.values
    if event.kind == "error_line":
        result.lines = [*result.lines, f"{event.process}: {values['text']}"][-50:]
    elif event.kind == "calibration":
        result.done, result.used_s = list(values["done"]), values["used_s"]
        if values["ended"]:
            result.outcome, result.reason = values["outcome"], values["reason"]
    elif event.kind == "finished" and event.process == "plant" and not result.outcome:
        result.outcome, result.reason = values["outcome"], "the plant ended the run"


def _take_rest(children: FleetProcesses, result: DriveResult) -> None:
    end_s = time.monotonic() + _AFTER_S
    while (event := children.next_event(_LISTEN_S)) is not None and time.monotonic() < end_s:
        if event.kind == "calibration":
            result.done, result.used_s = list(event.values["done"]), event.values["used_s"]
