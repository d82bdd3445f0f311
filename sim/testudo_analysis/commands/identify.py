"""The verb `identify`: fits robot parameters to a recorded run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from testudo_analysis.identify.estimation.identification_result import (
    ANGLES,
    HALF,
    ROBOTS,
    Coverage,
    HeldOut,
    Identification,
)
from testudo_analysis.identify.identify_run import identify_run
from testudo_analysis.identify.robot_file_writer import write_identified
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_deploy.commands.report import Report, facts, table
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import load
from testudo_runs.progress_bar import part, progress_bar

_READ = 0.1
"""Approximate share of the time that reading takes."""
_SPLITS = {HALF: "fitted to the first half, measured on the second", ROBOTS: "fitted to the other robots"}


def identify(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    robot: tuple[str, ...] = (),
    robot_type: str = "",
    out: Path | None = None,
    hold_out: Literal["both", "half", "robots", "none"] = "both",
    residual: bool = False,
    allow_damage: bool = False,
    json: Path | None = None,
) -> int:
    """Fit robot parameters to a run, with intervals, and list the parameters that the run cannot determine.

    Poses and commands are sufficient. The fit is validated on held-out data: the second half of the run, and each robot
    in turn. Exit status 1 means that part of the run could not be read; the rest is still used.

    Example:
        testudo identify run --out create.toml --json identified.json
        testudo identify run --robot robot1 robot2 --robot-type irobot_create --hold-out half

    Args:
        run: run folder, imported or recorded.
        robot: robots to fit; default: all.
        robot_type: registered robot or robot file to start from; default: that of the run.
        out: write the identified robot file to this path.
        hold_out: held-out data for the validation.
        residual: also fit a residual model of a differential drive, and report its benefit on held-out data.
        allow_damage: exit status 0 even if part of the run cannot be read.
        json: also write all results to this file.
    """
    if out is not None and out.suffix != ".toml":
        raise TestudoError(f"--out: found {out}, expected a file that ends in .toml")
    console = Console(stderr=True)
    with progress_bar(f"reading {run}", console) as tell:
        team = load(
            run,
            robot_type=robot_type or None,
            as_measured=False,
            share=lambda done: tell(f"reading {run}", _READ * done),
        )
        splits = {"both": (HALF, ROBOTS), "half": (HALF,), "robots": (ROBOTS,), "none": ()}[hold_out]
        found, source = identify_run(
            team,
            robots=robot,
            hold_out=splits,
            residual=residual,
            tell=part(tell, _READ, 1.0),
        )
    for warning in team.source.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    Report(found.to_dict(), identification_tables(found)).show(json)
    if out is not None:
        write_identified(source, found, out)
        console.print(f"wrote {out}", highlight=False)
    return 0 if team.source.complete or allow_damage else 1


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
    tables += coverage_tables(found.coverage)
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


def coverage_tables(rows: Sequence[Coverage]) -> list[Table]:
    """Return a table of the coverage of held-out motions for each kind of held-out data."""
    found = []
    for split, words in _SPLITS.items():
        own = [row for row in rows if row.split == split]
        shown = [
            (
                row.robot or "all robots",
                f"{row.horizon_s:g} s",
                row.channel,
                f"{row.inside:.1%}",
                f"{row.without_noise:.1%}",
                "{:.1f} {}".format(*_shown_width(row)),
                str(row.count),
            )
            for row in own
            if not row.robot or len({row.robot for row in own}) == 1
        ]
        if split == ROBOTS:  # each robot has a process of its own, fitted to the others
            shown = [(f"{len({row.robot for row in own})} robots", *cells) for cells in _pooled(own)]
        if shown:
            columns = ("robot", "after", "channel", "inside", "without the process", "width", "motions")
            found.append(table(f"Held-out motions inside the 95 % bands of sampled futures, {words}", columns, shown))
    return found


def _pooled(rows: Sequence[Coverage]) -> list[tuple[str, ...]]:
    """Return cells of horizon and channel: shares of all robots' motions, and the median width."""
    found = []
    for horizon, channel in dict.fromkeys((row.horizon_s, row.channel) for row in rows):
        own = [row for row in rows if (row.horizon_s, row.channel) == (horizon, channel)]
        count = sum(row.count for row in own)
        inside, without = (
            sum(getattr(row, name) * row.count for row in own) / count for name in ("inside", "without_noise")
        )
        width, unit = _shown_width(sorted(own, key=lambda row: row.width)[len(own) // 2])
        found.append((f"{horizon:g} s", channel, f"{inside:.1%}", f"{without:.1%}", f"{width:.1f} {unit}", str(count)))
    return found


def _shown_width(row: Coverage) -> tuple[float, str]:
    unit, factor = SHOWN_UNITS["rad" if row.channel in ANGLES else "m"]
    return row.width * factor, unit


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
