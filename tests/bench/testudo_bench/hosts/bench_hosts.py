"""`testudo bench hosts`: a fleet on several computers with bad links, a partition and clocks minutes apart."""

import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Literal

from testudo_bench.hosts.computers import missing
from testudo_bench.hosts.fleet_on_computers import HostsError
from testudo_bench.hosts.host_runs import drive
from testudo_bench.hosts.shaped_links import Link
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError

BLIND = "testudo_bench.hosts.blind_policy"
_NEEDS_TWO = 2
_CLOCK_SPREAD_MIN = 5.0
_MOST_ROBOTS = 100
_COLUMNS = (
    "network",
    "discovery",
    "runs",
    "contacts",
    "least distance",
    "goals reached",
    "way, mean",
    "way, longest",
    "until active",
    "frames lost",
    "frames cut",
    "restarted",
)


def bench_hosts(
    *,
    team_size: int = 4,
    robot: str = "turtlebot4",
    delay_ms: float = 50.0,
    jitter_ms: float = 20.0,
    loss: float = 0.1,
    partition_s: float = 5.0,
    discovery: Literal["multicast", "peers", "all"] = "multicast",
    repeats: int = 3,
    minutes: float = 2.0,
    say: Callable[[str], None] = print,
) -> BenchResult:
    """Let robots swap places, each on a computer of its own (a network namespace), with the station on another one.

    Every Ethernet frame between computers is delayed and lost; for some seconds half of the robots and the station do
    not hear the rest. Steady and wall clocks of the computers differ. The plant counts contacts at every physics step.
    One run without the shield must show contacts. Needs root, Linux, and a C compiler.

    Args:
        team_size: number of robots.
        robot: name or file of the robot.
        delay_ms: mean delay of a frame.
        jitter_ms: largest difference from it; frames overtake each other.
        loss: share of lost frames.
        partition_s: length of the partition, from 3 s after all robots drive; 0 for none.
        discovery: how DDS finds the other computers; all: each way in turn.
        repeats: runs for each way of discovery; each has other starts, clocks and losses.
        minutes: time limit of a run.
        say: receives progress messages.
    """
    if not _NEEDS_TWO <= team_size <= _MOST_ROBOTS:
        raise TestudoError(f"--team-size: found {team_size}, expected {_NEEDS_TWO} to {_MOST_ROBOTS}")
    if why := missing():
        raise TestudoError(f"several computers on one: {why}")
    link, load = Link(delay_ms, jitter_ms, loss), os.getloadavg()[0]
    ways = ("multicast", "peers") if discovery == "all" else (discovery,)
    options: dict[str, Any] = {
        "robot": robot,
        "limit_s": 60 * minutes,
        "partition_s": partition_s,
        "clock_spread_min": _CLOCK_SPREAD_MIN,
    }
    asked = [(way, seed, "") for way in ways for seed in range(repeats)]
    asked.append((ways[0], 0, BLIND))
    found: list[dict[str, Any]] = []
    try:
        for way, seed, module in asked:
            say(f"{way}, run {seed + 1} of {repeats}, {link}" + (", without the shield" if module else ""))
            try:
                run = drive(link, team_size, seed=seed, discovery=way, module=module, **options)
            except HostsError as error:  # a run that is not there counts: its goals are not reached
                say(str(error))
                run = _not_driven(link, way, seed, module, str(error))
            found.append(run)
    except KeyboardInterrupt:
        if not found:
            raise
        say("interrupted: finished rows are shown")
    return _result(found, team_size, options | {"delay_ms": delay_ms, "jitter_ms": jitter_ms, "loss": loss}, link, load)


def _not_driven(link: Link, way: str, seed: int, module: str, why: str) -> dict[str, Any]:
    return {
        "network": str(link),
        "discovery": way,
        "shielded": not module,
        "seed": seed,
        "outcome": why,
        "contacts": [],
        "distance_m": {},
        "restarts": 0,
    }


def _result(
    runs: Sequence[dict[str, Any]], team_size: int, options: dict[str, Any], link: Link, load: float
) -> BenchResult:
    keys = dict.fromkeys((run["discovery"], run["shielded"]) for run in runs)
    groups = [_summary([run for run in runs if (run["discovery"], run["shielded"]) == key], team_size) for key in keys]
    shielded = [group for group in groups if group["shielded"]]
    values = {
        "team_size": team_size,
        **options,
        "load_average": load,
        "contacts": sum(group["contacts"] for group in shielded),
        "arrived": sum(group["arrived"] for group in shielded),
        "goals": sum(group["goals"] for group in shielded),
        "control_contacts": next((group["contacts"] for group in groups if not group["shielded"]), None),
        "groups": groups,
        "runs": list(runs),
    }
    title = (
        f"{team_size} robots ({options['robot']}) and a station on {team_size + 1} computers swap places: {link}, "
        f"one partition of {options['partition_s']:g} s, wall clocks within ± {options['clock_spread_min']:g} min; "
        f"{values['contacts']} contacts, {values['arrived']} of {values['goals']} goals reached"
        + ("; inconclusive: none without the shield either" if values["control_contacts"] == 0 else "")
    )
    return BenchResult(title, _COLUMNS, [_shown(group) for group in groups], values)


def _summary(runs: Sequence[dict[str, Any]], team_size: int) -> dict[str, Any]:
    def all_of(key: str) -> list[float]:
        return [run[key] for run in runs if run.get(key) is not None]

    arrived = [run for run in runs if run["outcome"] == "arrived"]
    ways = [run["way_s"] for run in arrived]
    return {
        "network": runs[0]["network"],
        "discovery": runs[0]["discovery"],
        "shielded": runs[0]["shielded"],
        "runs": len(runs),
        "contacts": sum(len(run["contacts"]) for run in runs),
        "separation_m": min(all_of("separation_m"), default=None),
        "goals": team_size * len(runs),
        # the run ends when all are at their goals, so nobody is counted before
        "arrived": team_size * len(arrived),
        "way_mean_s": statistics.fmean(ways) if ways else None,
        "way_max_s": max(ways, default=None),
        "until_active_s": max(all_of("until_active_s"), default=None),
        "lost_share": statistics.fmean(all_of("lost_share")) if all_of("lost_share") else None,
        "cut": sum(all_of("cut")),
        "restarts": sum(all_of("restarts")),
    }


def _shown(group: dict[str, Any]) -> tuple[str, ...]:
    def text(key: str, factor: float = 1.0, form: str = ".1f", unit: str = "s") -> str:
        return "-" if group[key] is None else f"{factor * group[key]:{form}} {unit}"

    return (
        group["network"] + ("" if group["shielded"] else ", no shield"),
        group["discovery"],
        str(group["runs"]),
        str(group["contacts"]),
        text("separation_m", form=".3f", unit="m"),
        f"{group['arrived']} of {group['goals']}",
        text("way_mean_s"),
        text("way_max_s"),
        text("until_active_s"),
        text("lost_share", 100, unit="%"),
        f"{group['cut']:.0f}",
        f"{group['restarts']:.0f}",
    )
