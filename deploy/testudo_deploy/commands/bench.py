"""`testudo bench`: benchmarks that ship with the project."""

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

from testudo_deploy.bench.result import machine
from testudo_deploy.cli import missing_requirements
from testudo_deploy.commands.report import Report, facts, table
from testudo_hardware.errors import TestudoError


@dataclass(frozen=True)
class BenchmarkExtent:
    """How much is measured."""

    repeats: int | None = None
    """Timed runs; seeds of each training (learning, improve); times that each fault is injected (faults); kills; known
    truths (identify); runs with each network (lossy)."""
    minutes: float | None = None
    """Time that may be spent (gpu), that is measured (fleet), of one run at most (lossy)."""
    quick: bool = False
    """Fewer episodes, in about three minutes (shield, learning, improve); each fault once (faults); set-points for 5 s
    (radio)."""


@dataclass(frozen=True)
class NetworkConditions:
    """Conditions of the network between robots, or of the radio to drones."""

    delay_ms: float | None = None
    """Time that each takes [ms] (lossy)."""
    loss: float | None = None
    """Share that is lost (lossy)."""
    radio_burst_ms: float | None = None
    """Length of losses of the radio to drones [ms]; in place of the network (lossy)."""
    radio_every_s: float | None = None
    """Mean time between two of them [s] (lossy)."""


_WHOLE, _DEFAULT_NETWORK = BenchmarkExtent(), NetworkConditions()


def bench(
    name: Annotated[str, tyro.conf.Positional],
    *,
    policy: Path | None = None,
    robot: str | None = None,
    team_size: int | None = None,
    worlds: int | None = None,
    extent: Annotated[BenchmarkExtent, tyro.conf.arg(name="")] = _WHOLE,
    network: Annotated[NetworkConditions, tyro.conf.arg(name="")] = _DEFAULT_NETWORK,
    plot: Path | None = None,
    json: Path | None = None,
) -> None:
    """Run a benchmark, print its table and the machine it ran on; `testudo bench list` shows all benchmarks.

    Figures are medians of several runs; compilation is timed apart.

    Example:
        testudo bench list
        testudo bench robot --policy policy.onnx --json robot.json
        testudo bench sim --worlds 1024 --team-size 8
        testudo bench tiers --policy policy.onnx
        testudo bench shield --robot crazyflie_2x --quick --json shield.json
        testudo bench projection --json projection.json
        testudo bench faults --repeats 5 --json faults.json
        testudo bench lossy --delay-ms 100 --loss 0.3 --json lossy.json
        testudo bench fleet --team-size 4 --json fleet.json
        testudo bench learning --json learning.json --plot learning.png
        testudo bench gpu --minutes 10 --json gpu.json

    Args:
        name: the benchmark, or `list`.
        policy: policy file (robot, tiers).
        robot: registered robot (sim, shield, gpu, tiers, learning, replay, identify, drone_identify, improve, lossy).
        team_size: robots in a world (sim, learning), robots of the fleet (robot, fleet, lossy), robots that are logged
            (import, replay).
        worlds: worlds at once (sim).
        extent: how much is measured.
        network: between robots.
        plot: file for the picture (learning).
        json: file for the numbers; `learning` and `identify` continue from it.
    """
    points = {point.name: point for point in entry_points(group="testudo.benchmarks")}
    if name == "list":
        Console().print(table("Benchmarks", ("name", "what it measures"), _descriptions(points)))
        return
    given = {"policy": policy, "robot": robot, "team_size": team_size, "worlds": worlds, "plot": plot}
    given |= {**asdict(extent), "quick": extent.quick or None, **asdict(network)}
    function = _load(name, points)
    with Console(stderr=True).status("measuring") as status:
        options = {key: value for key, value in given.items() if value is not None}
        result = _call(name, function, options, status.update, json)
    here = machine()
    tables = [table(one.title, one.columns, list(one.rows)) for one in (result, *result.more)]
    Report({**result.values, "machine": here}, (*tables, facts("Machine", here))).show(json)


def _load(name: str, points: Mapping[str, EntryPoint]) -> Any:
    """Return the function of a benchmark.

    Raises:
        TestudoError: it is unknown, or what it needs is not installed.
    """
    if name not in points:
        apart = "" if len(points) > 1 else "; for all others run pip install ./tests/bench"
        raise TestudoError(f"benchmark {name!r} is not known; known are {', '.join(sorted(points))}{apart}")
    missing = missing_requirements(points[name])
    if missing:
        raise TestudoError(
            f"testudo bench {name}: needs {', '.join(missing)}, which is not installed; "
            f"run pip install 'testudo[{','.join(sorted(points[name].extras))}]'"
        )
    return points[name].load()


def _descriptions(points: Mapping[str, EntryPoint]) -> list[tuple[str, str]]:
    """Return the name and the first sentence of each benchmark, or what it needs."""
    found: list[tuple[str, str]] = []
    for name, point in sorted(points.items()):
        missing = missing_requirements(point)
        text = f"needs {', '.join(missing)}" if missing else (inspect.getdoc(point.load()) or "").splitlines()[0]
        found.append((name, text))
    return found


def _call(name: str, function: Any, options: dict[str, Any], say: Callable[[str], None], kept: Path | None) -> Any:
    """Call a benchmark with the options that it has.

    A parameter ``say`` receives progress, a parameter ``kept`` the JSON file that partial results are kept in.
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
