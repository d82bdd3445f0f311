"""`testudo bench`: runs the benchmarks that are registered as entry points of the group `testudo.benchmarks`.

The benchmark of the time of a control tick, `tick_timing.py`, is in this package; all others are in testudo-bench.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.cli import docstring_of, missing_requirements
from testudo_deploy.commands.report import Report, facts, machine, table
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.files.registered import entry_points
from testudo_hardware.errors import TestudoError

GROUP = "testudo.benchmarks"
_OWN = "robot"  # the benchmark of this package; all others are in the distribution testudo-bench
_INSTALL = (
    "all others are in the distribution testudo-bench, which is not installed; "
    "to install it, run pip install ./tests/bench in a copy of the project"
)


@dataclass(frozen=True)
class BenchmarkExtent:
    """How much is measured, and beside what."""

    repeats: int | None = None
    """Timed runs; seeds of each training (learning, improve, screen, platoon) or learner (mpe); injections of each
    fault (faults); kills; known truths (identify); hidden plants (forecast); hidden robots with each localisation
    (calibrate); runs with each network (lossy); episodes of each row (redteam), of each case with a bar (emulated);
    runs of each scenario (tasks); runs (orders); changes (tamper)."""
    rows: str | None = None  # numbers of rows, as `9,25,36-38` (faults)
    minutes: float | None = None
    """Time budget (gpu, redteam, emulated, screen), measured time (fleet), time of orders (orders), time-out of a run
    (lossy)."""
    decisions: int | None = None  # environment decisions of each training (mpe)
    scripts: Path | None = None  # folder with JaxMARL's repository, whose learner is trained beside Testudo's (mpe)
    quick: bool = False
    """Fewer episodes, in at most three minutes or so (shield, redteam, learning, improve, screen, platoon); each
    fault once (faults); set-points for 5 s (radio); 40 changes (tamper); 3 plants (forecast); one robot with each
    localisation for 90 s (calibrate); one run of a minute (orders)."""


@dataclass(frozen=True)
class NetworkConditions:
    """Conditions of the network between robots, or of the radio to drones."""

    delay_ms: float | None = None  # delay of each message [ms] (lossy)
    loss: float | None = None  # share of messages that are lost (lossy)
    radio_burst_ms: float | None = None  # length of losses of the radio to drones [ms]; in place of the network (lossy)
    radio_every_s: float | None = None  # mean time between two of them [s] (lossy)


@dataclass(frozen=True)
class TaskRuns:
    """Runs of tasks on the fleet."""

    scenario: str | None = None
    """One scenario in place of five (tasks); a candidate (screen, improve); `spread` or `navigation` (mpe)."""
    real_time: bool = False  # in real time in place of lock-step (tasks)
    trained: Path | None = None  # folder with a training run of each scenario, in place of policies by hand (tasks)


_DEFAULT_EXTENT, _DEFAULT_NETWORK, _DEFAULT_TASKS = BenchmarkExtent(), NetworkConditions(), TaskRuns()


def bench(
    name: Annotated[str, tyro.conf.Positional],
    *,
    policy: Path | None = None,
    robot: str | None = None,
    team_size: int | None = None,
    worlds: int | None = None,
    extent: Annotated[BenchmarkExtent, tyro.conf.arg(name="")] = _DEFAULT_EXTENT,
    network: Annotated[NetworkConditions, tyro.conf.arg(name="")] = _DEFAULT_NETWORK,
    tasks: Annotated[TaskRuns, tyro.conf.arg(name="")] = _DEFAULT_TASKS,
    plot: Path | None = None,
    json: Path | None = None,
) -> None:
    """Run a benchmark and print its table and the machine; `testudo bench list` shows all benchmarks.

    Figures are medians of several runs; compilation is timed separately.

    Example:
        testudo bench list
        testudo bench robot --policy policy.onnx --json robot.json
        testudo bench shield --robot crazyflie_2x --quick --json shield.json
        testudo bench platoon --repeats 1 --json platoon.json

    Args:
        name: the benchmark, or `list`.
        policy: policy file, or the name of one that ships (robot, tiers, shield, tamper, forecast,
            orders, tasks).
        robot: registered robot (sim, shield, redteam, gpu, tiers, learning, replay, identify, drone_identify,
            lossy), or the one whose lag cars have (platoon); a case, or how several begin (emulated); a case of it
            (faults).
        team_size: robots in a world (sim, learning), robots of the fleet (robot, fleet, lossy), recorded robots
            (import, replay).
        worlds: number of parallel worlds (sim, screen, improve), fleets of each forecast (forecast), drawn situations
            on which machine code and NumPy are compared (robot).
        extent: how much is measured.
        network: between robots.
        tasks: on the fleet.
        plot: file for the picture (learning).
        json: file for the numbers; `learning`, `identify`, `forecast`, `calibrate`, `mutants`, `orders`, `redteam`,
            `emulated`, `screen`, `shield`, `tasks`, `faults` continue from it.
    """
    points = _points()
    if name == "list":
        Console().print(table("Benchmarks", ("name", "what it measures"), _descriptions(points)))
        if set(points) == {_OWN}:
            Console().print(Text(_INSTALL), soft_wrap=True)
        return
    options = {"policy": policy, "robot": robot, "team_size": team_size, "worlds": worlds, "plot": plot}
    options |= {**asdict(extent), "quick": extent.quick or None, **asdict(network)}
    options |= {**asdict(tasks), "real_time": tasks.real_time or None}
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


def _call(name: str, function: Any, options: dict[str, Any], say: Callable[[str], None], saved: Path | None) -> Any:
    """Call a benchmark with the options that it has.

    A parameter ``say`` receives progress, a parameter ``saved`` the JSON file of partial results.
    """
    known = dict(inspect.signature(function).parameters)
    if known.pop("saved", None) is not None:
        function = partial(function, saved=saved)
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
    if "policy" in options:
        options = options | {"policy": policy_file(options["policy"])}
    return function(**options)


def _with_benchmarks(text: str) -> str:
    """Return the help text with the first docstring line of each registered benchmark, before its options."""
    points = _points()
    rows = "".join(f"        {name:<16}{line}\n" for name, line in _descriptions(points))
    hint = f"\n    {_INSTALL[0].upper()}{_INSTALL[1:]}.\n" if set(points) == {_OWN} else ""
    return text.replace("\n    Args:", f"\n    Benchmarks:\n{rows}{hint}\n    Args:")


bench.__doc__ = _with_benchmarks(bench.__doc__ or "")
