"""`testudo bench lossy`: robots swap places while the network delays and loses their messages."""

import math
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, write_swap
from testudo_bench.fault_matrix.harness.network_emulation import EmulatedRadio, Network
from testudo_bench.fault_matrix.radio_bursts import bench_bursts
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.control.control_tick import LATE_S
from testudo_deploy.launch.child_processes import ProcessEvent
from testudo_deploy.supervision.modes import code_of
from testudo_hardware.errors import TestudoError

SHIELDED = "testudo_nodes.robot.policy_node"
UNSHIELDED = "testudo_bench.fault_matrix.harness.unshielded_policy"
_DRONE = "crazyflie_2x"
AT_GOAL_M = 0.1
_STAY_S = 1.0
_START_S = 60.0
_ASK_S = 0.5
_RUNS = 5
_NEEDS_TWO = 2
_SHOWN_SHARE = 0.005
_INTERVENTIONS = ("projected", "gated", "waiting", "braked")


def bench_lossy(
    *,
    team_size: int = 4,
    delay_ms: float = 100.0,
    loss: float = 0.3,
    robot: str = "",
    radio_burst_ms: float = 0.0,
    radio_every_s: float = 0.5,
    repeats: int = _RUNS,
    minutes: float = 1.0,
    say: Callable[[str], None] = print,
) -> BenchResult:
    """Let robots on a circle swap places over DDS, on the plant, while the network delays and loses messages.

    Runs alternate with runs on a perfect network; one run without the shield must show contacts. With
    ``--radio-burst-ms`` the radio from the station to drones is lost in bursts, in lock-step, and the network between
    the robots is perfect.

    Args:
        team_size: number of robots.
        delay_ms: delay of each message between two robots.
        loss: share of lost messages.
        robot: name or file of a drone; with ``--radio-burst-ms`` only.
        radio_burst_ms: length of the bursts in which all set-points are lost; 0 for none.
        radio_every_s: mean time between two bursts.
        repeats: runs with each network; each has other starts.
        minutes: time limit of a run.
        say: receives progress messages.
    """
    if team_size < _NEEDS_TWO:
        raise TestudoError(f"--team-size: found {team_size}, expected at least {_NEEDS_TWO}")
    if radio_burst_ms:
        modules = {"shielded": SHIELDED, "unshielded": UNSHIELDED}
        return bench_bursts(robot or _DRONE, team_size, radio_burst_ms, radio_every_s, repeats, minutes, modules, say)
    if robot:
        raise TestudoError(f"--robot: found {robot}, expected it together with --radio-burst-ms")
    bad, load = Network(delay_ms, loss), os.getloadavg()[0]
    found: list[dict[str, Any]] = []
    try:
        for run in range(repeats):
            for network in (bad, Network()):
                say(f"run {run + 1} of {repeats}, {network}")
                found.append(drive(network, team_size, seed=run, limit_s=60 * minutes))
            if not run:
                say("without the shield")
                found.append(drive(bad, team_size, seed=run, limit_s=60 * minutes, module=UNSHIELDED))
    except KeyboardInterrupt:
        if not found:
            raise
        say("interrupted: finished rows are shown")
    return _result(found, team_size, bad, load)


def drive(network: Network, team_size: int, *, seed: int, limit_s: float, module: str = SHIELDED) -> dict[str, Any]:
    """Let robots swap places once and return the measurements.

    A run ends after ``limit_s``, when all robots stay at their goals or, without the shield, when robots touch. The
    seed is of places, losses and plant; ``module`` is that of the policies' processes.

    Raises:
        HarnessError: the robots could not be started.
    """
    turn_rad = random.Random(seed).uniform(0, 2 * math.pi)  # noqa: S311 -- no secret
    with tempfile.TemporaryDirectory() as name:
        fleet = write_swap(Path(name), count=team_size, turn_rad=turn_rad)
        with (
            FleetHarness(Path(name), fleet, module=module, plant={"seed": seed}) as harness,
            EmulatedRadio(harness.observer, network, seed) as radio,
        ):
            robots = harness.observer.robots
            harness.wait(
                lambda: all(any(mode == "active" for _, mode, _ in one.codes) for one in robots.values()),
                "the robots were not started",
                _START_S,
            )
            begin_s = time.monotonic()
            restarts = _wait_until_there(harness, begin_s + limit_s, until_contact=module == UNSHIELDED)
            end_s = time.monotonic()
            arrivals = {robot.name: _arrival_s(harness, robot.name, robot.goal_world, end_s) for robot in fleet.robots}
    untils = {name: end_s if at_s is None else at_s for name, at_s in arrivals.items()}
    ticks = [
        record
        for name, heard in robots.items()
        for record in map(TickRecord.decode, heard.envelopes)
        if begin_s <= record.stamp_s < untils[name]
    ]
    # shares of the ticks until the robots were at their goals, and the age of their peers' messages
    count = max(1, len(ticks))
    ages = sorted(max(tick.neighbour_age_s) for tick in ticks if tick.neighbour_age_s)
    codes, statuses = Counter(code_of(tick.reason) for tick in ticks), Counter(tick.status for tick in ticks)
    return {
        "network": str(network),
        "shielded": module != UNSHIELDED,
        "seed": seed,
        "time_s": end_s - begin_s,
        "arrival_s": {name: None if at_s is None else at_s - begin_s for name, at_s in arrivals.items()},
        "messages": radio.sent,
        "lost": radio.lost,
        "longest_delay_s": radio.longest_s,
        "restarts": restarts,
        **_of_plant(harness.events()),
        "ticks": len(ticks),
        "late": sum(tick.late_s > LATE_S for tick in ticks) / count,
        "braked": {code: number / count for code, number in codes.items() if code},
        "statuses": {status: number / count for status, number in statuses.items()},
        "interventions": sum(statuses[status] for status in _INTERVENTIONS) / count,
        "peer_age_p50_s": ages[len(ages) // 2] if ages else None,
        "peer_age_p99_s": ages[99 * len(ages) // 100] if ages else None,
    }


def _wait_until_there(harness: FleetHarness, until_s: float, *, until_contact: bool) -> int:
    """Wait; restart robots that went idle in a stall of the machine, as an operator would; return how often."""
    there_s, ask_s, down = math.inf, 0.0, dict.fromkeys(harness.fleet.names, False)
    restarts = 0
    while (now_s := time.monotonic()) < until_s and now_s < there_s + _STAY_S:
        there = all(
            math.dist(harness.observer.place(robot.name), robot.goal_world) < AT_GOAL_M
            for robot in harness.fleet.robots
        )
        there_s = min(there_s, now_s) if there else math.inf
        if until_contact and harness.observer.contacts:
            break
        if now_s > ask_s:
            ask_s = now_s + _ASK_S
            for name, was_down in down.items():
                down[name] = harness.observer.robots[name].mode in ("idle", "armed") and harness.request_next(name)
                restarts += down[name] and not was_down
        time.sleep(0.05)
    return restarts


def _arrival_s(harness: FleetHarness, name: str, goal_world: tuple[float, ...], end_s: float) -> float | None:
    """Return the time since which a robot is at its goal, steady clock; None if it is not there at the end."""
    since_s = None
    for at_s, reading in list(harness.observer.robots[name].truth):
        if at_s > end_s:
            break
        there = math.dist(reading.position_world, goal_world) < AT_GOAL_M
        since_s = (since_s or at_s) if there else None
    return since_s


def _of_plant(events: Sequence[ProcessEvent]) -> dict[str, Any]:
    """Return contacts and separation of all physics steps."""
    contacts = [dict(event.values) for event in events if event.kind == "contact"]
    least = [event.values["separation_m"] for event in events if event.kind == "state"]
    return {"contacts": contacts, "separation_m": least[-1] if least else None}


def _result(runs: Sequence[dict[str, Any]], team_size: int, bad: Network, load: float) -> BenchResult:
    of_groups = [
        _summary([run for run in runs if (run["network"], run["shielded"]) == key])
        for key in dict.fromkeys((run["network"], run["shielded"]) for run in runs)
    ]
    lossy = of_groups[0]
    perfect = next((group for group in of_groups if group["network"] == str(Network()) and group["shielded"]), lossy)
    values = {
        "team_size": team_size,
        "delay_ms": bad.delay_ms,
        "loss": bad.loss,
        "load_average": load,
        "contacts": lossy["contacts"],
        "arrived": lossy["arrived"],
        "goals": lossy["goals"],
        "arrival_ratio": _ratio(lossy["arrival_mean_s"], perfect["arrival_mean_s"]),
        "control_contacts": next((group["contacts"] for group in of_groups if not group["shielded"]), None),
        "networks": of_groups,
        "runs": list(runs),
    }
    ratio = values["arrival_ratio"]
    title = (
        f"{team_size} robots swap places, 50 Hz, network between them: {bad}; {values['contacts']} contacts, "
        f"{values['arrived']} of {values['goals']} goals reached"
        + (f", {ratio:.2f} times the travel time with a perfect network" if ratio else "")
        + ("; inconclusive: none without the shield either" if values["control_contacts"] == 0 else "")
    )
    columns = (
        "network",
        "runs",
        "contacts",
        "least distance",
        "goals reached",
        "way, mean",
        "way, longest",
        "peers' age, p50",
        "intervened",
        "braked",
        "restarted",
        "ticks late",
    )
    return BenchResult(title, columns, [_shown(group) for group in of_groups], values)


def _summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return figures of all runs with one network; shares are means over the runs, ages the worst."""
    arrivals = [at_s for run in runs for at_s in run["arrival_s"].values()]
    reached = [at_s for at_s in arrivals if at_s is not None]

    def worst(key: str, choose: Callable[..., Any]) -> Any:
        return choose((run[key] for run in runs if run[key] is not None), default=None)

    codes = {code for run in runs for code in run["braked"]}
    return {
        "network": runs[0]["network"],
        "shielded": runs[0]["shielded"],
        "runs": len(runs),
        "contacts": sum(len(run["contacts"]) for run in runs),
        "separation_m": worst("separation_m", min),
        "goals": len(arrivals),
        "arrived": len(reached),
        "arrival_mean_s": statistics.fmean(reached) if reached else None,
        "arrival_max_s": max(reached, default=None),
        "lost": sum(run["lost"] for run in runs) / max(1, sum(run["messages"] for run in runs)),
        "longest_delay_s": worst("longest_delay_s", max),
        "peer_age_p50_s": worst("peer_age_p50_s", max),
        "peer_age_p99_s": worst("peer_age_p99_s", max),
        "restarts": sum(run["restarts"] for run in runs),
        "interventions": statistics.fmean(run["interventions"] for run in runs),
        "late": statistics.fmean(run["late"] for run in runs),
        "braked": {code: statistics.fmean(run["braked"].get(code, 0.0) for run in runs) for code in sorted(codes)},
    }


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _shown(group: dict[str, Any]) -> tuple[str, ...]:
    def text(key: str, factor: float = 1.0, form: str = ".1f", unit: str = "s") -> str:
        return "-" if group[key] is None else f"{factor * group[key]:{form}} {unit}"

    braked = (
        ", ".join(f"{code} {100 * share:.1f} %" for code, share in group["braked"].items() if share > _SHOWN_SHARE)
        or "-"
    )
    return (
        group["network"] + ("" if group["shielded"] else ", no shield"),
        str(group["runs"]),
        str(group["contacts"]),
        text("separation_m", form=".3f", unit="m"),
        f"{group['arrived']} of {group['goals']}",
        text("arrival_mean_s"),
        text("arrival_max_s"),
        text("peer_age_p50_s", 1e3, ".0f", "ms"),
        text("interventions", 100, unit="%"),
        braked,
        str(group["restarts"]),
        text("late", 100, unit="%"),
    )
