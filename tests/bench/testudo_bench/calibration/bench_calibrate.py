"""`testudo bench calibrate`: the whole calibration of emulated robots in lock-step, against their hidden parameters."""

import json
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.calibration.emulated_robot import EMULATIONS, HIDDEN, NAME, EmulatedRobot, emulated_robot
from testudo_deploy.calibration.area import Area, drive_room
from testudo_deploy.calibration.excitation import LONGEST_S, excitation_plan
from testudo_deploy.commands.report import BenchResult, machine
from testudo_deploy.fleet.fleet import Fleet
from testudo_hardware.errors import TestudoError
from testudo_policies.calibrating.calibration_fleet import write_calibration_fleet
from testudo_policies.calibrating.calibration_run import DriveOptions, DriveResult, drive_calibration
from testudo_policies.calibrating.calibration_verdict import identify_drives, verdict_values, verdicts
from testudo_runs.run_reader import read_run

BARS = dict.fromkeys(HIDDEN[:4], 0.05) | dict.fromkeys(HIDDEN[4:], 0.10)
_COLUMNS = (
    "localisation",
    "parameter",
    "error, median",
    "error, largest",
    "within the bar",
    "interval, median",
    "holds the truth",
)
_QUICK_S = 90.0


def bench_calibrate(
    *,
    repeats: int = 3,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Calibrate emulated robots with hidden parameters end to end, over ROS 2 in lock-step.

    Lag, delay and scales are drawn from the intervals of `turtlebot4`, the limits of acceleration up to 40 % above
    those of its file. The plant moves by the hidden file; policy, guard and calibration know the file that is to be
    corrected. Localisation is by a tracking system (60 Hz, sigma 5 mm, 20 to 60 ms old, 2 x 2 m), or as noisy as that
    of a TurtleBot 4 (20 Hz, sigma 5 cm, 100 to 150 ms old, 3 x 3 m).

    Args:
        repeats: number of hidden robots with each localisation.
        quick: one robot with each, for 90 s.
        saved: JSON file with the result of each robot, so that the same command resumes.
        say: called with progress messages.
    """
    count, longest_s = (1, _QUICK_S) if quick else (repeats, LONGEST_S)
    settings: dict[str, Any] = {"longest_s": longest_s}
    found = _read_saved(settings, saved)
    for number, name in product(range(count), EMULATIONS):
        if len(found[name]) > number:
            continue
        say(f"{name}: robot {number + 1} of {count}")
        with tempfile.TemporaryDirectory() as folder:
            hidden = emulated_robot(EMULATIONS[name], number, Path(folder))
            found[name].append(calibrated(hidden, Path(folder), longest_s))
        if saved is not None:
            saved.write_text(json.dumps({"settings": settings, "robots": found}) + "\n", encoding="utf-8")
    rows = [row for name in EMULATIONS for row in _rows(name, found[name][:count])]
    values: dict[str, Any] = {"settings": settings, "robots": found, "bars": BARS, "machine": machine()}
    return BenchResult(f"Calibration of {count} hidden robots with each localisation", _COLUMNS, rows, values)


def _rows(localisation: str, found: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows = [_row(localisation, key, found) for key in HIDDEN]
    used, far = [one["used_s"] for one in found], max(one["farthest_m"] for one in found)
    times = (f"{np.median(used):.0f} s", f"{max(used):.0f} s", f"bar {LONGEST_S:.0f} s")
    rows.append((localisation, "robot time", *times, "", ""))
    rows.append((localisation, "body from the centre", "", f"{far:.3f} m", f"side at {found[0]['half_m']:g} m", "", ""))
    return rows


def calibrated(hidden: EmulatedRobot, folder: Path, longest_s: float = LONGEST_S) -> dict[str, Any]:
    """Return what the calibration of one robot finds, with the truth."""
    robot = hidden.fleet.robot(NAME)
    area = Area.parse(hidden.emulation.area, (0.0, 0.0))
    plan = excitation_plan(robot.spec, drive_room(robot.spec, area))
    alone = write_calibration_fleet(hidden.fleet, NAME, area, folder / "drive")
    result = drive(hidden, alone, folder / "run", longest_s)
    kind = str(hidden.fleet.file.parent / robot.type)
    identification = identify_drives([folder / "run"], robot, kind)
    rows = verdicts(identification, plan, result.done)
    truth = read_run(folder / "run").truth[NAME].position_world
    return {
        "outcome": result.outcome,
        "reason": result.reason,
        "used_s": result.used_s,
        "segments": result.done,
        "truth": hidden.truth,
        "verdicts": verdict_values(rows),
        "farthest_m": float(np.abs(truth).max()) + robot.spec.body_radius_m,
        "half_m": min(area.size_m) / 2,
    }


def drive(hidden: EmulatedRobot, fleet: Fleet, run: Path, longest_s: float) -> DriveResult:
    """Return the drive of a hidden robot in lock-step."""
    options = DriveOptions("sim", lock_step=True, seed=hidden.seed, longest_s=longest_s, change=hidden.change)
    return drive_calibration(fleet, run, options)


def _row(localisation: str, key: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the row of a parameter; what a drive does not tell is no estimate, and not within the bar."""
    estimates = [(one["truth"][key], next(row for row in one["verdicts"] if row["key"] == key)) for one in found]
    told = [(true, row) for true, row in estimates if row["told"]]
    errors = np.array([abs(row["value"] / true - 1) for true, row in told])
    widths = np.array([(row["high"] - row["low"]) / 2 / true for true, row in told])
    holds = sum(row["low"] <= true <= row["high"] for true, row in told)
    figures = (f"{np.median(errors):.1%}", f"{errors.max():.1%}") if told else ("not told", "")
    return (
        localisation,
        key,
        *figures,
        f"{np.count_nonzero(errors <= BARS[key])} of {len(found)} (bar {BARS[key]:.0%})",
        f"± {np.median(widths):.1%}" if told else "",
        f"{holds} of {len(told)}",
    )


def _read_saved(settings: dict[str, Any], saved: Path | None) -> dict[str, list[dict[str, Any]]]:
    empty: dict[str, list[dict[str, Any]]] = {name: [] for name in EMULATIONS}
    if saved is None or not saved.exists():
        return empty
    try:
        values = json.loads(saved.read_text(encoding="utf-8"))
        known, robots = values["settings"], {name: list(values["robots"][name]) for name in EMULATIONS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {saved}: found no robots to go on from; give another file") from error
    if known != settings:
        raise TestudoError(f"--json {saved}: settings: found {known}, expected {settings}; give another file")
    return robots
