"""`testudo bench`: runs the benchmarks that are registered as entry points of the group `testudo.benchmarks`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.cli import docstring_of, missing_requirements
from testudo_deploy.commands.report import Report, facts, machine, table
from testudo_hardware.errors import TestudoError

GROUP = "testudo.benchmarks"
_OWN = "robot"
"""The benchmark of this package; all others are in the distribution testudo-bench."""
_INSTALL = (
    "all others are in the distribution testudo-bench, which is not installed; "
    "to install it, run pip install ./tests/bench in a copy of the project"
)


@dataclass(frozen=True)
class BenchmarkExtent:
    """How much is measured."""

    repeats: int | None = None
    """Timed runs; seeds of each training (learning, improve); injections of each fault (faults); kills; known truths
    (identify); runs with each network (lossy)."""
    minutes: float | None = None
    """Time budget (gpu), measured time (fleet), time-out of one run (lossy)."""
    quick: bool = False
    """Fewer episodes, in about three minutes (shield, learning, improve); each fault once (faults); set-points for 5 s
    (radio)."""


@dataclass(frozen=True)
class NetworkConditions:
    """Conditions of the network between robots, or of the radio to drones."""

    delay_ms: float | None = None
    """Delay of each message [ms] (lossy)."""
    loss: float | None = None
    """Share of messages that are lost (lossy)."""
    radio_burst_ms: float | None = None
    """Length of losses of the radio to drones [ms]; in place of the network (lossy)."""
    radio_every_s: float | None = None
    """Mean time between two of them [s] (lossy)."""


_DEFAULT_EXTENT, _DEFAULT_NETWORK = BenchmarkExtent(), NetworkConditions()


def bench(
    name: Annotated[str, tyro.conf.Positional],
    *,
    policy: Path | None = None,
    robot: str | None = None,
    team_size: int | None = None,
    worlds: int | None = None,
    extent: Annotated[BenchmarkExtent, tyro.conf.arg(name="")] = _DEFAULT_EXTENT,
    network: Annotated[NetworkConditions, tyro.conf.arg(name="")] = _DEFAULT_NETWORK,
    plot: Path | None = None,
    json: Path | None = None,
) -> None:
    """Run a benchmark and print its table and the machine; `testudo bench list` shows all benchmarks.

    Figures are medians of several runs; compilation is timed separately.

    Example:
        testudo bench list
        testudo bench robot --policy policy.onnx --json robot.json
        testudo bench shield --robot crazyflie_2x --quick --json shield.json

    Args:
        name: the benchmark, or `list`.
        policy: policy file (robot, tiers).
        robot: registered robot (sim, shield, gpu, tiers, learning, replay, identify, drone_identify, improve, lossy).
        team_size: robots in a world (sim, learning), robots of the fleet (robot, fleet, lossy), recorded robots
            (import, replay).
        worlds: number of parallel worlds (sim).
        extent: how much is measured.
        network: between robots.
        plot: file for the picture (learning).
        json: file for the numbers; `learning`, `identify` and `mutants` continue from it.
    """
    points = _points()
    if name == "list":
        Console().print(table("Benchmarks", ("name", "what it measures"), _descriptions(points)))
        if set(points) == {_OWN}:
            Console().print(Text(_INSTALL), soft_wrap=True)
        return
    options = {"policy": policy, "robot": robot, "team_size": team_size, "worlds": worlds, "plot": plot}
    options |= {**asdict(extent), "quick": extent.quick or None, **asdict(network)}
    function = _load(name, points)
    with Console(stderr=True).status("measuring") as status:
        given = {key: value for key, value in options.items() if value is not None}
        result = _call(name, function, given, status.update, json)
    here = machine()
    tables = [table(one.title, one.columns, list(one.rows)) for one in (result, *result.more)]
    Report({**result.values, "machine": here}, (*tables, facts("Machine", here))).show(json)


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def _load(name: str, points: Mapping[str, EntryPoint]) -> Any:
    """Return the function of a benchmark.

    Raises:
        TestudoError: it is unknown, or a distribution that it needs is not installed.
    """
    if name not in points:
        hint = f"; {_INSTALL}" if set(points) == {_OWN} else ""
        raise TestudoError(f"benchmark {name!r} is not known; known are {', '.join(points)}{hint}")
    missing = missing_requirements(points[name])
    if missing:
        raise TestudoError(
            f"testudo bench {name}: needs {', '.join(missing)}, which is not installed; "
            f"run pip install 'testudo[{','.join(sorted(points[name].extras))}]'"
        )
    return points[name].load()


def _descriptions(points: Mapping[str, EntryPoint]) -> list[tuple[str, str]]:
    """Return the name and the first docstring line of each benchmark, or what it needs."""
    found: list[tuple[str, str]] = []
    for name, point in points.items():
        missing = missing_requirements(point)
        found.append((name, f"needs {', '.join(missing)}" if missing else docstring_of(point).partition("\n")[0]))
    return found


def _call(name: str, function: Any, options: dict[str, Any], say: Callable[[str], None], kept: Path | None) -> Any:
    """Call a benchmark with the options that it has.

    A parameter ``say`` receives progress, a parameter ``kept`` the JSON file of partial results.
    """
    known = dict(inspect.signature(function).parameters)
    if known.pop("kept", None) is not None:
        function = partial(function, kept=kept)
    if known.pop("say", None) is not None:
        function = partial(function, say=say)
    for key in options:
        if key not in known:
            flags = ", ".join("--" + item.replace("_", "-") for item in known)
            raise TestudoError(
                f"testudo bench {name}: --{key.replace('_', '-')}: not an option of this benchmark; it has {flags}"
            )
    missing = [key for key, item in known.items() if item.default is item.empty and key not in options]
    if missing:
        raise TestudoError(f"testudo bench {name}: --{missing[0].replace('_', '-')} is missing")
    return function(**options)


def _with_benchmarks(text: str) -> str:
    """Return the help text with the first docstring line of each registered benchmark, before its options."""
    points = _points()
    rows = "".join(f"        {name:<16}{line}\n" for name, line in _descriptions(points))
    hint = f"\n    {_INSTALL[0].upper()}{_INSTALL[1:]}.\n" if set(points) == {_OWN} else ""
    return text.replace("\n    Args:", f"\n    Benchmarks:\n{rows}{hint}\n    Args:")


bench.__doc__ = _with_benchmarks(bench.__doc__ or "")
