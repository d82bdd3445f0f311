"""Drones swap places while their radio link is lost in bursts: `testudo bench lossy --radio-burst-ms`.

Runs are in lock-step, so the results do not depend on the load of the machine.
"""

import json
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.harness.fleet_harness import HarnessError, write_swap
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import ProcessPlan, plan
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

_SILENCE_S = 60.0  # Real time without output after which a run is considered hung
_EVENT_S = 0.2
_LONGEST_MS = 10_000.0


def bench_bursts(
    robot: str,
    team_size: int,
    burst_ms: float,
    every_s: float,
    repeats: int,
    minutes: float,
    modules: Mapping[str, str],
    say: Callable[[str], None],
) -> BenchResult:
    """Let drones on a circle swap places with and without bursts, and once without the shield; see `bench_lossy`.

    In a burst, all drones or some receive nothing. ``modules`` are those of the policies' processes, by `shielded` and
    `unshielded`.

    Raises:
        TestudoError: options out of range, or the robot is no drone.
    """
    _check(robot, burst_ms, every_s)
    bursts = {"burst_s": 1e-3 * burst_ms, "every_s": every_s}
    cases = [
        (f"bursts of {burst_ms:g} ms", bursts, modules["shielded"], repeats),
        ("perfect radio", {}, modules["shielded"], 1),
        (f"bursts of {burst_ms:g} ms, no shield", bursts, modules["unshielded"], 1),
    ]
    runs: list[dict[str, Any]] = []
    try:
        for name, radio, module, count in cases:
            for run in range(count):
                say(f"{name}, run {run + 1} of {count}")
                found = drive(robot, team_size, radio, module, seed=run, limit_s=60 * minutes)
                runs.append({"case": name, "seed": run, **found})
    except KeyboardInterrupt:
        if not runs:
            raise
        say("interrupted: finished rows are shown")
    return _result(runs, [name for name, *_ in cases], robot, team_size, burst_ms)


def drive(
    robot: str, team_size: int, radio: Mapping[str, float], module: str, *, seed: int, limit_s: float
) -> dict[str, Any]:
    """Let drones swap places once, in lock-step, and return the measurements of the plant.

    ``radio`` is a parameter of the plant (`testudo_plant.plant.injected_faults.read_radio`), ``module`` that of the
    policies' processes; the seed is of places, radio and plant, and ``limit_s`` is simulated time.

    Raises:
        HarnessError: a process ended before the start, or gave no output for a minute.
    """
    turn_rad = random.Random(seed).uniform(0, 2 * math.pi)  # noqa: S311 -- no secret
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fleet = write_swap(Path(folder), count=team_size, turn_rad=turn_rad, robot=robot)
        processes = FleetProcesses(
            tuple(
                _rewired(process, module, radio)
                for process in plan(fleet, run_folder=None, seed=seed, duration_s=limit_s, lock_step=True)
            )
        )
        os.environ.pop("ROS_DOMAIN_ID", None)
        with processes:
            found = _listen(processes)
        while (event := processes.next_event(_EVENT_S)) is not None:
            if event.kind == "plant":
                found["radio"] = event.values.get("radio", {})
    return {**found, "real_s": time.monotonic() - begin_s}


def _rewired(process: ProcessPlan, module: str, radio: Mapping[str, float]) -> ProcessPlan:
    if process.name == "plant":
        return replace(process, parameters={**process.parameters, "radio": json.dumps(radio) if radio else ""})
    return replace(process, module=module) if process.name == "policy" else process


def _listen(processes: FleetProcesses) -> dict[str, Any]:
    """Wait for the end of a run and return the report of the plant."""
    contacts: list[dict[str, Any]] = []
    drivers: dict[str, int] = {}
    heard_s, lines = time.monotonic(), []
    while time.monotonic() - heard_s < _SILENCE_S:
        event = processes.next_event(_EVENT_S)
        if event is None:
            continue
        heard_s = time.monotonic()
        if event.kind == "error_line":
            lines.append(f"{event.process}: {event.values['text']}")
        elif event.kind == "ended":
            raise HarnessError(f"{event.process} ended" + (f": {lines[-1]}" if lines else ""))
        elif event.kind == "contact":
            contacts.append(dict(event.values))
        elif event.kind == "driver":
            reason = event.values["reason"]
            drivers[reason] = drivers.get(reason, 0) + 1
        elif event.kind == "finished":
            values = event.values
            return {
                "outcome": values["outcome"],
                "time_s": values["time_s"],
                "contacts": list(contacts),
                "separation_m": values["separation_m"],
                "distance_m": dict(values["distance_m"]),
                "drivers": dict(drivers),
            }
    raise HarnessError(f"no output for {_SILENCE_S:g} s" + (f"; last: {lines[-1]}" if lines else ""))


def _check(robot: str, burst_ms: float, every_s: float) -> None:
    if not 0 < burst_ms <= _LONGEST_MS:
        raise TestudoError(f"--radio-burst-ms: found {burst_ms:g}, expected above 0, at most {_LONGEST_MS:g}")
    if not 0 < every_s < math.inf:
        raise TestudoError(f"--radio-every-s: found {every_s:g}, expected a time above 0")
    spec = load_robot(robot)
    if not spec.attitude:
        raise TestudoError(f"--robot: found {robot}, expected a drone whose file has [attitude]")


def _result(
    runs: Sequence[dict[str, Any]], cases: Sequence[str], robot: str, team_size: int, burst_ms: float
) -> BenchResult:
    groups = [_group(name, found) for name in cases if (found := [run for run in runs if run["case"] == name])]
    control = next((group["contacts"] for group in groups if "no shield" in group["case"]), None)
    first = groups[0]
    title = (
        f"{team_size} {robot} swap places, 50 Hz, {first['case']}: {first['contacts']} contacts in "
        f"{first['seconds']:.0f} s, {first['bursts']} bursts, {first['arrived']} of {first['runs']} runs arrived"
        + ("; inconclusive: none without the shield either" if control == 0 else "")
    )
    columns = (
        "radio",
        "runs",
        "contacts",
        "least distance",
        "arrived",
        "simulated",
        "bursts",
        "set-points lost",
        "levelled or cut",
    )
    rows = [
        (
            group["case"],
            str(group["runs"]),
            str(group["contacts"]),
            "-" if group["separation_m"] is None else f"{group['separation_m']:.3f} m",
            str(group["arrived"]),
            f"{group['seconds']:.0f} s",
            str(group["bursts"]),
            f"{100 * group['lost']:.1f} %",
            str(group["unled"]),
        )
        for group in groups
    ]
    values = {
        "robot": robot,
        "team_size": team_size,
        "burst_ms": burst_ms,
        "contacts": first["contacts"],
        "control_contacts": control,
        "radios": groups,
        "runs": list(runs),
    }
    return BenchResult(title, columns, rows, values)


def _group(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    radios = [run.get("radio", {}) for run in runs]
    least = [run["separation_m"] for run in runs if run["separation_m"] is not None]
    sent = sum(radio.get("sent", 0) for radio in radios)
    return {
        "case": name,
        "runs": len(runs),
        "contacts": sum(len(run["contacts"]) for run in runs),
        "separation_m": min(least, default=None),
        "arrived": sum(run["outcome"] == "arrived" for run in runs),
        "seconds": sum(run["time_s"] for run in runs),
        "bursts": sum(radio.get("bursts", 0) for radio in radios),
        "lost": sum(radio.get("lost", 0) for radio in radios) / max(1, sent),
        "unled": sum(run["drivers"].get("levelled", 0) + run["drivers"].get("locked", 0) for run in runs),
    }
