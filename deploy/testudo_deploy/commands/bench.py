"""`testudo bench`: benchmarks that ship with the project."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import tyro

from testudo_deploy.benchmarking import machine
from testudo_deploy.commands.report import Report, facts, table
from testudo_hardware.errors import TestudoError


def bench(name: Annotated[str, tyro.conf.Positional], *, policy: Path | None = None,
          robot: str | None = None, team_size: int | None = None, worlds: int | None = None,
          repeats: int | None = None, json: Path | None = None) -> None:
    """Run a benchmark, print its table and say on what machine.

    `robot` times one control tick of a policy, `sim` the stepping of shielded worlds. Compilation is
    timed apart, and medians of several runs are given.

    Example:
        testudo bench sim
        testudo bench robot --policy policy.onnx --json robot.json
        testudo bench sim --worlds 1024 --team-size 8

    Args:
        name: the benchmark.
        policy: policy file (robot).
        robot: registered robot (sim).
        team_size: robots in a world (sim), robots of the fleet (robot).
        worlds: worlds at once (sim).
        repeats: timed runs.
        json: file for the numbers.
    """
    points = {point.name: point for point in entry_points(group="testudo.benchmarks")}
    if name not in points:
        raise TestudoError(f"benchmark {name!r} is not known; known are {', '.join(sorted(points))}")
    given = {"policy": policy, "robot": robot, "team_size": team_size, "worlds": worlds, "repeats": repeats}
    result = _call(name, points[name].load(), {key: value for key, value in given.items() if value is not None})
    here = machine()
    report = Report({**result.values, "machine": here},
                    (table(result.title, result.columns, list(result.rows)), facts("Machine", here)))
    report.show(json)


def _call(name: str, function: Any, options: dict[str, Any]) -> Any:
    """Call a benchmark with the options that it has."""
    known = inspect.signature(function).parameters
    for key in options:
        if key not in known:
            flags = ", ".join("--" + item.replace("_", "-") for item in known)
            raise TestudoError(f"testudo bench {name}: --{key.replace('_', '-')}: not an option of this "
                               f"benchmark; it has {flags}")
    missing = [key for key, item in known.items() if item.default is item.empty and key not in options]
    if missing:
        raise TestudoError(f"testudo bench {name}: --{missing[0].replace('_', '-')} is missing")
    return function(**options)
