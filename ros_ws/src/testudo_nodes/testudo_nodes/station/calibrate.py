"""`testudo calibrate`: drives a robot inside a free rectangle and writes its robot file with what the drive tells."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.text import Text

from testudo_analysis.identify.robot_file_writer import write_identified
from testudo_deploy.calibration.area import Area, drive_room
from testudo_deploy.calibration.calibration_drive import Outcome
from testudo_deploy.calibration.excitation import LONGEST_S, Segment, excitation_plan
from testudo_deploy.commands.report import Report, facts
from testudo_deploy.files.atomic_files import dated_folder
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_hardware.errors import TestudoError
from testudo_policies.calibrating.calibration_fleet import write_calibration_fleet
from testudo_policies.calibrating.calibration_run import (
    DriveOptions,
    DriveResult,
    area_of_run,
    drive_calibration,
    driven_before,
)
from testudo_policies.calibrating.calibration_verdict import (
    Verdict,
    careful,
    identify_drives,
    verdict_table,
    verdict_values,
    verdicts,
)
from testudo_runs.progress_bar import progress_bar

_FAILED = 1
_WAIT_S = 10.0  # for the first pose of the robot
_LEAST_S = 5.0  # less robot time is not identified


def calibrate(
    robot: tyro.conf.Positional[str],
    *,
    fleet: Path = Path("fleet.yaml"),
    area: str = "2x2",
    at: tuple[float, ...] = (),
    out: Path | None = None,
    run: Path | None = None,
    resume: tuple[Path, ...] = (),
    backend: Literal["hw", "sim"] = "hw",
    domain: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    json: Path | None = None,
) -> int:
    """Drive a robot inside a free rectangle, at most five minutes, and write its robot file with what the drive tells.

    Clear the rectangle first: the robot drives at full speed in it, and its sides are walls for shield and guard. Run
    it on the computer of the robot, while no other process of its fleet runs. The drive is recorded and identified;
    what it does not tell keeps the value of the robot file. Ctrl-C brakes and keeps the run. Exit status 0: the whole
    drive was made, and all is told but turn slip.

    Example:
        testudo calibrate tb1 --area 2x2
        testudo calibrate tb1 --fleet lab.yaml --area 3x2.5 --at 0.5 -1.0 --out tb1.toml
        testudo calibrate tb1 --resume runs/today    (goes on where that drive ended)

    Args:
        robot: the robot, by its name in the fleet file.
        fleet: the fleet file; its policies are not used.
        area: sides of the free rectangle along x and y of the fleet's frame [m].
        at: its centre in that frame [m]; by default the present place of the robot.
        out: robot file to write; by default ROBOT.toml in this folder.
        run: run folder to write; by default a dated folder in runs/.
        resume: run folders of earlier drives of this calibration, the first one first; they are identified, too.
        backend: hw is the robot, sim the plant in its place.
        domain: ROS_DOMAIN_ID; by default that of the environment; sim takes a free one.
        json: also write the results to this file.
    """
    console, loaded = Console(), load_fleet(fleet)
    one, target = loaded.robot(robot), out or Path(f"{robot}.toml")
    if target.suffix != ".toml":
        raise TestudoError(f"--out: found {target}, expected a file that ends in .toml")
    before, used_s = driven_before(resume)
    domain_id = None if backend == "sim" and domain is None else ros_domain_id(domain)
    place = hear(one, _WAIT_S, domain_id) if backend == "hw" else one.initial_position_world[:2]
    free = area_of_run(resume[0]) if resume else Area.parse(area, _centre(at) or (place[0], place[1]))
    plan = excitation_plan(one.spec, drive_room(one.spec, free))
    folder = run or dated_folder("runs")
    with tempfile.TemporaryDirectory() as scratch:
        alone = write_calibration_fleet(loaded, robot, free, Path(scratch))
        _say(console, f"{robot} drives within {free.size_m[0]:g} x {free.size_m[1]:g} m about {free.centre_world}")
        options = DriveOptions(backend, domain_id=domain_id, driven=before, longest_s=LONGEST_S - used_s)
        result = drive_calibration(alone, folder, options, _Shown(console).show)
    _tell_end(console, result, fleet, resume)
    if result.used_s < _LEAST_S and not resume:
        return _FAILED
    plans = plan, plan[: before + len(result.done)]
    rows = _write(result, [*resume, folder], one, robot_source(loaded, one), plans, target, json)
    _say(console, f"wrote {target}; name it as `type: {target}` of {robot} in {fleet}")
    return 0 if result.is_complete and all(row.told or row.is_optional for row in rows) else _FAILED


def _write(
    result: DriveResult,
    runs: Sequence[Path],
    robot: FleetRobot,
    source: str,
    plans: tuple[Sequence[Segment], Sequence[Segment]],
    target: Path,
    json: Path | None,
) -> tuple[Verdict, ...]:
    """Identify the runs, write the robot file, show and return the verdicts; ``plans``: the whole, and what is driven.

    Raises:
        TestudoError: too little motion, an identification that is worse than its baseline, or a file is refused.
    """
    with progress_bar("identifying", Console(stderr=True)) as tell:
        found = identify_drives(runs, robot, source, tell=tell)
    plan, driven = plans
    rows = verdicts(found, plan, [segment.name for segment in driven])
    write_identified(source, careful(found), target, "calibrate")
    head = {
        "run": str(result.run),
        "outcome": result.outcome,
        "segments": len(driven),
        "robot time [s]": result.used_s,
    }
    values = {"schema": "testudo/calibration_result/1", "robot": robot.name, **head, "reason": result.reason}
    values |= {"parameters": verdict_values(rows), "identification": found.to_dict()}
    Report(values, (facts("Drive", head), verdict_table(rows))).show(json)
    return rows


def hear(robot: FleetRobot, wait_s: float, domain_id: int | None) -> tuple[float, ...]:
    """Return the present place of a robot; an error text where ROS 2 is not installed."""
    try:
        from testudo_nodes.station.pose_probe import hear_place  # noqa: PLC0415 -- an error text without ROS
    except ImportError as error:
        raise TestudoError(f"calibrate: ROS 2 is not within reach ({error}): source its setup file") from error
    return hear_place(robot, wait_s, domain_id or 0)


def robot_source(fleet: Fleet, robot: FleetRobot) -> str:
    """Return the registered name of a robot's type, or the path of its file."""
    return str(fleet.file.parent / robot.type) if robot.type.endswith(".toml") else robot.type


def _centre(at: tuple[float, ...]) -> tuple[float, float] | None:
    if at and len(at) != 2:
        raise TestudoError(f"--at: found {list(at)}, expected x and y [m]")
    return (at[0], at[1]) if at else None


def _tell_end(console: Console, result: DriveResult, fleet: Path, resume: tuple[Path, ...]) -> None:
    for line in result.lines:
        _say(console, line, "yellow")
    if result.is_complete:
        return
    again = " ".join(map(str, (*resume, result.run)))
    why = {
        Outcome.POSE_LOST: "the robot braked because its pose was lost",
        Outcome.STOPPED: "the robot was stopped",
        Outcome.NOT_STARTED: "the robot was never active",
        Outcome.OFF_PLACE: "the robot does not reach a start",
        "interrupted": "stopped by Ctrl-C; the robot braked",
    }.get(result.outcome, f"{result.outcome} ended")
    _say(
        console,
        f"the drive ended early: {why}: {result.reason}; what was recorded is kept in {result.run}; to go on: "
        f"testudo calibrate ... --fleet {fleet} --resume {again}",
        "yellow",
    )


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)


class _Shown:
    """Prints one line for each segment that is driven."""

    def __init__(self, console: Console) -> None:
        self._console, self._count = console, 0

    def show(self, result: DriveResult) -> None:
        """Print what is new."""
        for name in result.done[self._count :]:
            _say(self._console, f"{result.used_s:5.0f} s  {name}")
        self._count = len(result.done)
