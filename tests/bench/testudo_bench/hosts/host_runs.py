"""One run of a fleet on several computers: robots swap places while the network between them is bad."""

import math
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.harness.fleet_harness import write_swap
from testudo_bench.hosts.computers import Clocks, Computers
from testudo_bench.hosts.fleet_on_computers import DOMAIN, STATION, FleetOnComputers, HostsError, Operator
from testudo_bench.hosts.shaped_links import Link

_START_S = 90.0
_ASK_S = 1.0
_PARTITION_AFTER_S = 3.0
_STEADY_SPREAD_S = 100_000.0


def drawn_clocks(names: tuple[str, ...], spread_min: float, seed: int) -> dict[str, Clocks]:
    """Return clocks of computers: wall clocks within ± ``spread_min`` minutes, steady clocks of other uptimes."""
    drawn = random.Random(f"clocks {seed}")  # noqa: S311 -- no secret
    spread_s = 60 * spread_min
    return {
        name: Clocks(round(drawn.uniform(-spread_s, spread_s), 3), round(drawn.uniform(0, _STEADY_SPREAD_S)))
        for name in names
    }


def drive(
    link: Link,
    team_size: int,
    *,
    seed: int,
    limit_s: float,
    robot: str = "",
    partition_s: float = 5.0,
    clock_spread_min: float = 5.0,
    discovery: str = "multicast",
    module: str = "",
) -> dict[str, Any]:
    """Let robots on a circle swap places once, each on its computer, and return the measurements.

    The partition begins 3 s after all robots are active: the first half of the robots and the
    station on one side, the rest on the other. A run ends when all are at their goals, after ``limit_s``, or, with a
    ``module`` in place of the policies' own, at the first contact.

    Raises:
        HostsError: the robots could not be started.
    """
    turn_rad = random.Random(seed).uniform(0, 2 * math.pi)  # noqa: S311 -- no secret
    with tempfile.TemporaryDirectory() as name:
        fleet = write_swap(Path(name), count=team_size, turn_rad=turn_rad, robot=robot)
        names = (*fleet.names, STATION)
        clocks = drawn_clocks(names, clock_spread_min, seed)
        half = (*fleet.names[: (team_size + 1) // 2], STATION)
        computers = Computers(names, link, domain_id=DOMAIN, clocks=clocks, discovery=discovery, seed=seed)
        with computers, FleetOnComputers(fleet, computers, limit_s=limit_s, seed=seed, module=module) as on:
            operator = Operator(fleet, computers)
            try:
                active: set[str] = set()

                def all_were_active() -> bool:
                    active.update(robot for robot, mode in operator.modes.items() if mode == "active")
                    return len(active) == team_size

                begin_s = time.monotonic()
                on.wait(all_were_active, "the robots were not started", _START_S)
                start_s = time.monotonic() - begin_s
                restarts = _watch(on, operator, half, partition_s, until_contact=bool(module))
            finally:
                operator.close()
    return {
        "network": str(link),
        "discovery": discovery,
        "shielded": not module,
        "seed": seed,
        "clocks": {name: {"wall_s": one.wall_s, "steady_s": one.steady_s} for name, one in clocks.items()},
        "partition_s": partition_s,
        "until_active_s": start_s,
        "restarts": restarts,
        "changes": [(round(at_s - begin_s - start_s, 2), *change) for at_s, *change in operator.changes],
        **_of_plant(on),
        **_shares(computers.counts),
    }


def _of_plant(on: FleetOnComputers) -> dict[str, Any]:
    state = on.state
    return {
        "outcome": on.outcome or "at a contact",
        "way_s": state.get("time_s"),
        "distance_m": state.get("distance_m", {}),
        "contacts": on.contacts,
        "separation_m": state.get("separation_m"),
        "lines": on.lines[-20:],
    }


def _watch(
    on: FleetOnComputers,
    operator: Operator,
    half: tuple[str, ...],
    partition_s: float,
    *,
    until_contact: bool,
) -> int:
    """Wait for the end of a run; cut the network meanwhile, and restart robots that went idle in a stall."""
    begin_s, ask_s, restarts = time.monotonic(), 0.0, 0
    cut_s = begin_s + _PARTITION_AFTER_S
    parts = [(cut_s, (half,)), (cut_s + partition_s, ())]
    down = dict.fromkeys(operator.modes, False)
    while not on.outcome and not (until_contact and on.contacts):
        now_s = time.monotonic()
        while partition_s and parts and now_s >= parts[0][0]:
            on.computers.part(*parts.pop(0)[1])
        if now_s > ask_s:
            ask_s = now_s + _ASK_S
            for name, was_down in down.items():
                down[name] = operator.restart(name)
                restarts += down[name] and not was_down
        time.sleep(0.05)
    return restarts


def _shares(counts: Mapping[str, int]) -> dict[str, Any]:
    frames, cut = counts.get("frames", 0), counts.get("cut", 0)
    return {**counts, "lost_share": counts.get("lost", 0) / max(1, frames - cut)}


__all__ = ["HostsError", "drawn_clocks", "drive"]
