"""`testudo bench fleet`: ticks on time and latency from odometry to actuator, by number of robots."""

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.fault_matrix.harness.fleet_harness import write_fleet
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.control.control_tick import LATE_S
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import ProcessPlan, plan
from testudo_runs.run_reader import read_run

_BARS = {4: (0.999, 0.010), 8: (0.99, 0.020)}
"""Share of ticks on time and 99th percentile of the latency [s], by robots."""
_WARM_UP_S = 10.0
_SIZES = (1, 4, 8, 16)
_START_S = 60.0
_ODOMETRY_AGE_S = 0.02
_LINK = "testudo_50hz.toml"


def bench_fleet(
    *, team_size: int | None = None, minutes: float = 1.0, say: Callable[[str], None] = print
) -> BenchResult:
    """Drive robots at 50 Hz with all processes: policies, guards, plant, recorder, station.

    Args:
        team_size: number of robots; default: 1, 4, 8 and 16 in turn.
        minutes: measured time of each fleet, after a warm-up of ten seconds.
        say: called with progress messages.
    """
    sizes = _SIZES if team_size is None else (team_size,)
    found = []
    for size in sizes:
        say(f"{size} robots")
        with tempfile.TemporaryDirectory() as folder:
            found.append(_measured(fleet_at_50_hz(Path(folder), size), Path(folder) / "run", 60 * minutes))
    title = f"fleet at 50 Hz, {60 * minutes:.0f} s each: policies, guards, plant, recorder and station on this machine"
    columns = ("robots", "ticks on time", "bar", "odometry to actuator, p50", "p99", "bar of p99", "cores used")
    shares = BenchResult(
        "share of one core by kind of process, the sum over all robots",
        ("robots", "policy", "guard", "plant", "recorder", "station"),
        [_shown_shares(values) for values in found],
        {},
    )
    return BenchResult(title, columns, [_shown(values) for values in found], {"fleets": found}, (shares,))


def fleet_at_50_hz(folder: Path, size: int) -> Fleet:
    """Write a fleet with odometry at the control rate."""
    fleet = write_fleet(folder, count=size)
    profile = Path(__file__).parents[1] / "fault_matrix" / _LINK
    (folder / _LINK).write_text(profile.read_text(encoding="utf-8"), encoding="utf-8")
    text = fleet.file.read_text(encoding="utf-8")
    fleet.file.write_text(
        text.replace("    type: robot.toml\n", f"    type: robot.toml\n    link: {_LINK}\n"), encoding="utf-8"
    )
    return load_fleet(fleet.file)


def _measured(fleet: Fleet, run: Path, measured_s: float) -> dict[str, Any]:
    """Drive a fleet and return its figures; robots that did not start count as well."""
    processes = FleetProcesses(plan_of(fleet, run))
    events = []
    with processes:
        missing = wait_until_active(processes, fleet.names)
        time.sleep(_WARM_UP_S + measured_s)
        end_s = time.monotonic()
    while (event := processes.next_event(0.2)) is not None:
        events.append(event)
    latency = next(event.values["latency"] for event in events if "latency" in event.values)
    timed = [one for one in latency.values() if one["commands"]]
    shares = {event.process: event.values["cpu_share"] for event in events if "cpu_share" in event.values}
    return {
        "robots": len(fleet.names),
        "not_started": missing,
        **_ticks(run, end_s - measured_s, end_s),
        "latency_p50_s": float(np.median([one["p50_s"] for one in timed])) if timed else math.inf,
        "latency_p99_s": max((one["p99_s"] for one in timed), default=math.inf),
        "latency": latency,
        "cpu_share": shares,
        "cores": sum(shares.values()),
    }


def plan_of(fleet: Fleet, run: Path) -> tuple[ProcessPlan, ...]:
    """Return the plan with odometry of constant age, so that it arrives at the control rate.

    By default its age varies between 20 and 60 ms, which shifts arrivals by up to a period: then a tick waits with the
    newest pose, and the measured latency would be that wait and not the processing.
    """
    age = {f"latency_{end}_s": _ODOMETRY_AGE_S for end in ("low", "high")}
    return tuple(
        replace(process, parameters={**process.parameters, **age}) if process.name == "plant" else process
        for process in plan(fleet, run_folder=run, duration_s=10_000.0)
    )


def wait_until_active(processes: FleetProcesses, names: Sequence[str]) -> list[str]:
    """Wait up to 60 s until all robots drive; return the names of those that do not."""
    active, end_s = set(), time.monotonic() + _START_S
    while len(active) < len(names) and time.monotonic() < end_s:
        event = processes.next_event(0.2)
        if event is not None and event.kind == "mode" and event.values["mode"] == "active":
            active.add(event.values["robot"])
    return sorted(set(names) - active)


def _ticks(run: Path, begin_s: float, end_s: float) -> dict[str, Any]:
    """Return the number of scheduled ticks between two times, and the share that began on time."""
    recording = read_run(run)
    scheduled = on_time = braked = 0
    for name in recording.robots:
        ticks = [tick for tick in recording.ticks[name] if begin_s <= tick.stamp_s < end_s]
        period_s = recording.fleet.robot(name).spec.control_period_s
        missed = sum(int(tick.late_s / period_s) for tick in ticks)
        scheduled += len(ticks) + missed
        on_time += sum(tick.late_s <= LATE_S for tick in ticks)
        braked += sum(bool(tick.reason) for tick in ticks)
    return {"ticks": scheduled, "on_time": on_time / max(scheduled, 1), "braked_ticks": braked}


def _shown(values: Mapping[str, Any]) -> tuple[str, ...]:
    bars = _BARS.get(values["robots"])
    shown = (f"≥ {100 * bars[0]:g} %", f"≤ {1e3 * bars[1]:g} ms") if bars else ("-", "-")
    return (
        str(values["robots"]),
        f"{100 * values['on_time']:.2f} %",
        shown[0],
        f"{1e3 * values['latency_p50_s']:.1f} ms",
        f"{1e3 * values['latency_p99_s']:.1f} ms",
        shown[1],
        f"{values['cores']:.2f}",
    )


def _shown_shares(values: Mapping[str, Any]) -> tuple[str, ...]:
    sums = {
        kind: sum(share for process, share in values["cpu_share"].items() if process.rpartition("/")[2] == kind)
        for kind in ("policy", "guard", "plant", "recorder", "station")
    }
    return (str(values["robots"]), *(f"{100 * share:.0f} %" for share in sums.values()))
