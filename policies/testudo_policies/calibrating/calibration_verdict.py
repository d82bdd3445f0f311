"""What a calibration drive tells of each parameter: estimate, interval, and what would tell the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from testudo_analysis.identify.estimation.identification_result import HALF, Estimate, Identification
from testudo_analysis.identify.held_out_verdict import refuse_worse
from testudo_analysis.identify.identify_run import identify_run
from testudo_analysis.identify.identify_runs import identify_runs
from testudo_deploy.calibration.excitation import BRAKE, DELAY, LAG, SLIP, SPEED, TURN, TURN_BRAKE, Segment, told_by
from testudo_deploy.commands.report import table
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_hardware.schema import QUANTITIES
from testudo_runs.alignment import TeamRecording, prepare
from testudo_runs.progress_bar import Tell, quiet
from testudo_runs.recording.load import recording_of_run
from testudo_runs.run_reader import read_run

KEYS = (LAG, DELAY, SPEED, TURN, SLIP, BRAKE, TURN_BRAKE)
_LIMITS = (BRAKE, TURN_BRAKE)
SURE = 0.1  # largest half interval, as a share of the value, with which a limit counts as determined
WHEELS = "odom+initial"  # poses of the wheels alone


@dataclass(frozen=True)
class Verdict:
    """One parameter."""

    key: str
    value: float  # what the new robot file holds
    low: float
    high: float
    unit: str
    told: bool
    note: str = ""  # why it is not told, and which segment would tell it

    @property
    def is_optional(self) -> bool:
        """Return whether a calibration is whole without it: turn slip that is too small to be seen."""
        return self.key == SLIP

    @property
    def half_share(self) -> float:
        """Return half of the interval over the value."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else float("inf")


def team_of_drive(run: Path, robot: FleetRobot, robot_type: str) -> TeamRecording:
    """Return the recording of a drive by the robot's own poses, never by the truth of a plant.

    Poses that come from the wheels alone count as odometry: they cannot tell what the robot does on the floor.
    """
    recording = recording_of_run(read_run(run), seen="odometry")
    own = recording.robots[robot.name]
    hidden = ("pose",) if robot.pose.source == WHEELS else ()
    # stamps of one run are on one clock: when the recorder heard a message tells nothing about the delay
    series = {role: replace(one, received_s=None) for role, one in own.series.items() if role not in hidden}
    return prepare(replace(recording, robots={robot.name: replace(own, series=series)}), robot_type)


def identify_drives(
    runs: Sequence[Path],
    robot: FleetRobot,
    robot_type: str,
    *,
    held_out: bool = True,
    tell: Tell = quiet,
) -> Identification:
    """Return the identification of the drives of one robot.

    Raises:
        TestudoError: unreadable runs, too little motion, or one that predicts held-out motion worse than its baseline.
    """
    teams = {run.resolve().name: team_of_drive(run, robot, robot_type) for run in runs}
    if len(teams) == 1:
        (team,) = teams.values()
        found = identify_run(team, robots=(robot.name,), hold_out=(HALF,) if held_out else (), tell=tell)[0]
    else:
        found = identify_runs(teams, robots=(robot.name,), tell=tell).robots[robot.name]
    refuse_worse(found, list(teams.values()), robot.spec)
    return found


def _is_wide(row: Estimate) -> bool:
    """Return whether the interval of a limit is too wide for the shield, which has no margin for it."""
    return row.key in _LIMITS and (row.high - row.low) / 2 > SURE * row.value


def careful(found: Identification) -> Identification:
    """Return what is written to the robot file: a limit that is not told well is not larger than it surely is.

    The shield brakes by `limits.acceleration` and has no margin for its interval. Where the interval is wider than
    `SURE` its lower end is written; where nothing is told the file keeps its value.
    """
    rows: list[Estimate] = []
    for row in found.estimates:
        if row.determined and _is_wide(row):
            rule = QUANTITIES[row.key]
            low = max(row.low, rule.low)
            note = f"told within {(row.high - row.low) / 2 / row.value:.0%} only: the lower end is written"
            rows.append(replace(row, value=low, low=low, high=max(row.high, low), note=note, by_robot={}))
        else:
            rows.append(row)
    return replace(found, estimates=tuple(rows))


def verdicts(found: Identification, plan: Sequence[Segment], driven: Sequence[str]) -> tuple[Verdict, ...]:
    """Return a verdict for each parameter of a drive; ``driven`` are the names of its segments."""
    rows: list[Verdict] = []
    estimates: Mapping[str, Estimate] = {row.key: row for row in found.estimates}
    for key in KEYS:
        row = estimates.get(key)
        if row is None:
            continue
        told = row.determined and not _is_wide(row)
        note = row.note
        if not told:
            missing = [name for name in told_by(plan, key) if name not in driven]
            names = told_by(plan, key)
            by = f"not driven yet: {', '.join(missing)}" if missing else f"more of: {', '.join(names)}"
            note = f"{row.note.partition('; to find it')[0]}; {by}".strip("; ")
        rows.append(Verdict(key, row.value, row.low, row.high, row.unit, told, note))
    return tuple(rows)


def verdict_table(rows: Sequence[Verdict]) -> Table:
    """Return the table for the terminal."""
    shown = [
        (
            row.key,
            f"{row.value:.4g}",
            f"[{row.low:.4g}, {row.high:.4g}]",
            row.unit,
            "told" if row.told else "not told by this drive",
            row.note,
        )
        for row in rows
    ]
    return table("Calibration", ("parameter", "value", "95 % interval", "unit", "", "note"), shown)


def verdict_values(rows: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the verdicts as JSON values."""
    return [asdict(row) for row in rows]
