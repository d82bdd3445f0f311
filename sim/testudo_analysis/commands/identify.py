"""The verb `identify`: fits robot parameters to a recorded run."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from testudo_analysis.identify.estimation.identification_result import (
    HALF,
    ROBOTS,
    RUNS,
    Coverage,
    HeldOut,
    Identification,
)
from testudo_analysis.identify.held_out_verdict import refuse_worse
from testudo_analysis.identify.identify_run import identify_run
from testudo_analysis.identify.identify_runs import FLEET, identify_runs
from testudo_analysis.identify.residual_motion.coverage_table import coverage_table
from testudo_analysis.identify.robot_file_writer import write_identified
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_deploy.commands.report import Report, facts, table
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import TeamRecording, load
from testudo_runs.progress_bar import Tell, part, progress_bar

_READ = 0.1
"""Approximate share of the time that reading takes."""
_SPLITS = {
    HALF: "fitted to the first half, measured on the second",
    ROBOTS: "fitted to the other robots",
    RUNS: "fitted to the other runs",
}


def identify(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    robot: tuple[str, ...] = (),
    robot_type: str = "",
    out: Path | None = None,
    hold_out: Literal["both", "half", "robots", "none"] = "both",
    residual: bool = False,
    allow_damage: bool = False,
    json: Path | None = None,
) -> int:
    """Fit robot parameters to runs, with intervals, and list the parameters that the runs cannot determine.

    Poses and commands are sufficient. The fit is validated on held-out data: of one run the second half, and each robot
    in turn; of several runs each run in turn. An identification that is worse than its baseline there is not written.
    Exit status 1 means that part of a run could not be read; the rest is still used.

    Example:
        testudo identify run --out create.toml --json identified.json
        testudo identify run --robot robot1 robot2 --robot-type irobot_create --hold-out half
        testudo identify monday tuesday friday --out robots/

    Args:
        runs: run folders, imported or recorded.
        robot: robots to fit; default: all.
        robot_type: registered robot or robot file to start from; default: that of the run.
        out: write the identified robot file to this path (.toml), or to this folder one file for each robot, named
            after it, and fleet.toml, whose intervals cover them all; several runs need a folder.
        hold_out: held-out data for the validation of one run.
        residual: also fit a residual model of a differential drive, and report its benefit on held-out data.
        allow_damage: exit status 0 even if part of a run cannot be read.
        json: also write all results to this file.
    """
    console = Console(stderr=True)
    names, each = _named(runs), out is not None and out.suffix != ".toml"
    if not runs:
        raise TestudoError("identify: found no run, expected at least one run folder")
    if len(runs) > 1 and not each and out is not None:
        raise TestudoError(f"--out: found {out} for {len(runs)} runs, expected a folder")
    if residual and (each or len(runs) > 1):
        raise TestudoError("--residual: found several runs or a folder for --out, expected one run and one file")
    with progress_bar(f"reading {names[0]}", console) as tell:
        teams = _read(dict(zip(names, runs, strict=True)), robot_type, tell)
        rest, singles = part(tell, _READ, 1.0), {}
        if each or len(runs) > 1:
            whole = identify_runs(teams, robots=robot, tell=rest)
            found, source, singles = whole.fleet, whole.source, whole.robots
        else:
            splits = {"both": (HALF, ROBOTS), "half": (HALF,), "robots": (ROBOTS,), "none": ()}[hold_out]
            (one,) = teams.values()
            found, source = identify_run(one, robots=robot, hold_out=splits, residual=residual, tell=rest)
    for team in teams.values():
        for warning in team.source.warnings:
            console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    document = found.to_dict() | ({"robot_files": {n: one.to_dict() for n, one in singles.items()}} if singles else {})
    Report(document, identification_tables(found) + _single_tables(singles)).show(json)
    if out is not None:
        results = {out / f"{name}.toml": one for name, one in singles.items()}
        _write({out / f"{FLEET}.toml" if each else out: found} | results, source, teams, console)
    return 0 if all(team.source.complete for team in teams.values()) or allow_damage else 1


def _read(runs: Mapping[str, Path], robot_type: str, tell: Tell) -> dict[str, TeamRecording]:
    """Return the aligned recordings by name."""
    found = {}
    for k, (name, run) in enumerate(runs.items()):
        own = part(tell, _READ * k / len(runs), _READ * (k + 1) / len(runs))
        share = partial(own, f"reading {run}")
        found[name] = load(run, robot_type=robot_type or None, as_measured=False, share=share)
    return found


def _write(
    results: Mapping[Path, Identification], source: str, teams: Mapping[str, TeamRecording], console: Console
) -> None:
    """Write robot files, all or none of them."""
    for one in results.values():
        refuse_worse(one, list(teams.values()), load_robot(source))
    for target, one in results.items():
        write_identified(source, one, target)
        console.print(f"wrote {target}", highlight=False)


def _named(runs: Sequence[Path]) -> list[str]:
    """Return a name for each run: that of its folder, if need be with a number."""
    names: list[str] = []
    for run in runs:
        name = run.resolve().name
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def _single_tables(singles: Mapping[str, Identification]) -> tuple[Table, ...]:
    """Return one table of the held-out errors of the files of single robots."""
    rows = []
    for name, one in singles.items():
        horizon = max((row.horizon_s for row in one.held_out), default=0.0)
        last = dict.fromkeys((row.split, row.channel) for row in one.held_out if row.horizon_s == horizon)
        for split, channel in last:
            median, p90 = one.reductions(channel, horizon, split)
            rows.append((f"{name}.toml", _SPLITS[split], channel, f"{-median:+.1%} / {-p90:+.1%}"))
    columns = ("file", "held out", "channel", "against the baseline, median / p90")
    return (table("Files of single robots: error at the longest horizon", columns, rows),) if rows else ()


def identification_tables(found: Identification) -> tuple[Table, ...]:
    """Return tables of the parameters, of undetermined ones, and of the held-out errors at the longest horizon."""
    names = ("run", "recorded", "duration_s", "fitted", "left_out", "reference", "windows", "delay_at_start_s")
    head = {name: found.facts[name] for name in names if found.facts.get(name)}
    tables = [facts(f"Identified: {found.robot_type}", head), _parameters(found)]
    missing = [(one.key, one.note) for one in found.estimates if not one.determined]
    if missing:
        title = "Not determined by this run: the robot file keeps its values"
        tables.append(table(title, ("parameter", "why"), missing))
    for split, words in _SPLITS.items():
        rows = [row for row in found.held_out if row.split == split]
        if rows:
            tables.append(_held_out(found, rows, words))
    tables += _coverage_tables(found.coverage)
    if found.facts.get("residual"):
        # benefit of a residual model, and the verdict
        residual = found.facts["residual"]
        shares = [
            (_SPLITS[split], f"{-median:+.1%}", f"{-p90:+.1%}") for split, (median, p90) in residual["lower_by"].items()
        ]
        needed = f"{residual['worth']:.0%}"
        verdict = (
            f"reduces the error by {needed} or more, but simulation does not support it: not used"
            if residual["helps"]
            else f"does not reduce all errors by {needed}: not used"
        )
        title = f"Residual model, position against the identified model: {verdict}"
        tables.append(table(title, ("measured", "median", "p90"), shares))
    return tuple(tables)


def _parameters(found: Identification) -> Table:
    rows = []
    for one in (one for one in found.estimates if one.determined):
        robots = ", ".join(f"{value:.4g}" for value, _, _ in one.by_robot.values())
        rows.append((one.key, f"{one.value:.4g}", f"[{one.low:.4g}, {one.high:.4g}]", one.unit, robots))
    return table("Parameters with 95 % intervals", ("parameter", "value", "interval", "unit", "robots"), rows)


def _coverage_tables(rows: Sequence[Coverage]) -> list[Table]:
    """Return a table of the coverage of held-out motions for each kind of held-out data."""
    found = []
    for split, words in _SPLITS.items():
        own = [row for row in rows if row.split == split]
        if own:
            title = f"Held-out motions inside the 95 % bands of sampled futures, {words}"
            found.append(coverage_table(title, own))
    return found


def _held_out(found: Identification, rows: list[HeldOut], words: str) -> Table:
    horizon = max(row.horizon_s for row in rows)
    last = [row for row in rows if row.horizon_s == horizon]
    shown = []
    for row in last:
        unit, factor = SHOWN_UNITS[row.unit]
        cells = [f"{q.median * factor:.2f} / {q.p90 * factor:.2f}" for q in (row.baseline, row.nominal, row.identified)]
        median, p90 = row.reduction()
        shown.append((row.robot, f"{row.channel} ({unit})", *cells, f"{-median:+.1%} / {-p90:+.1%}"))
    for channel in dict.fromkeys(row.channel for row in last):
        median, p90 = found.reductions(channel, horizon, last[0].split)
        shown.append(("median of robots", channel, "", "", "", f"{-median:+.1%} / {-p90:+.1%}"))
    return table(
        f"Error after {horizon:g} s, {words}: median / p90",
        ("robot", "channel", "dead reckoning", "robot file", "identified", "against dead reckoning"),
        shown,
    )
