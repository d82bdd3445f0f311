"""`testudo bench kills`: processes, except the plant, are killed at random moments."""

import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.harness.fault_case import brakes
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError, StalledError, write_fleet
from testudo_deploy.commands.report import BenchResult

_KILLS = 100
_SEED = 0
_UNTOUCHED_S = 1.0  # time for which robots must keep driving after the death of a process that they do not need
_PHASE_S = 0.1  # a kill comes after a random share of this time: at any phase of a tick and of the dead-man time


def bench_kills(*, repeats: int = _KILLS, say: Callable[[str], None] = print) -> BenchResult:
    """Kill and restart processes of a fleet of three at random moments.

    A robot whose policy or guard dies must be braked within the dead-man time, come to rest and stay there until an
    operator starts it; one whose recorder or station dies must drive on.

    Args:
        repeats: kills.
        say: receives progress messages.
    """
    rng, kills = random.Random(_SEED), []  # noqa: S311 -- no secret
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = write_fleet(folder)
        with FleetHarness(folder, fleet, run_folder=folder / "run") as harness:
            victims = [process for process in harness.plan if process.name != "plant"]
            for k in range(repeats):
                victim = rng.choice(victims)
                say(f"{k + 1} of {repeats}: {victim.label}")
                kills.append({"process": victim.label, **_kill(harness, victim.label, rng)})
                if victim.name == "recorder":  # its folder already holds a run
                    victims.remove(victim)
            contacts = harness.observer.contacts
        dead_man_s = fleet.robots[0].spec.dead_man_s
    return _result(kills, contacts, dead_man_s)


def _kill(harness: FleetHarness, label: str, rng: random.Random) -> dict[str, Any]:
    """Kill a process and return the finding for its robot, or for all."""
    name, _, kind = label.rpartition("/")
    for _ in range(5):
        try:
            harness.wait_until_all_drive()
            time.sleep(rng.uniform(0, _PHASE_S))
            fault_s = harness.send(label, signal.SIGKILL)
            if not name:
                return _untouched(harness, fault_s)
            found = brakes(harness, fault_s, name=name, series="sent" if kind == "policy" else "applied")
            time.sleep(0.5)
            rests = harness.observer.rests(name, fault_s)
        except StalledError:
            continue
        except HarnessError as error:
            return {"sound": False, "time_s": None, "note": str(error)}
        finally:
            if harness.processes.exit_status(label) is not None and label != "recorder":
                harness.restart(label)
        if found is not None:  # else the machine stalled: no finding
            return {
                "sound": rests,
                "time_s": found.time_s,
                "stolen_s": found.stolen_s,
                "note": "" if rests else "it moves",
            }
    return {"sound": False, "time_s": None, "note": "the machine stalled at every attempt"}


def _untouched(harness: FleetHarness, fault_s: float) -> dict[str, Any]:
    time.sleep(_UNTOUCHED_S)
    stopped = [
        name
        for name in harness.fleet.names
        if any(
            code
            for at_s, _, code in harness.observer.robots[name].codes
            if at_s > fault_s and code not in ("", "stale_pose")
        )
    ]
    return {"sound": not stopped, "time_s": None, "note": f"{', '.join(stopped)} stopped" if stopped else ""}


def _result(kills: list[dict[str, Any]], contacts: int, dead_man_s: float) -> BenchResult:
    rows = []
    for kind in ("policy", "guard", "recorder", "station"):
        chosen = [kill for kill in kills if kill["process"].rpartition("/")[2] == kind]
        times = [kill["time_s"] for kill in chosen if kill["time_s"] is not None]
        worst = max(
            (kill for kill in chosen if kill["time_s"] is not None), key=lambda kill: kill["time_s"], default=None
        )
        wrong = [kill["note"] or "unsound" for kill in chosen if not kill["sound"]]
        rows.append(
            (
                kind,
                str(len(chosen)),
                f"{1e3 * worst['time_s']:.0f} ms" if worst else "-",
                f"{1e3 * worst['stolen_s']:.0f} ms" if worst else "-",
                f"≤ {1e3 * dead_man_s:.0f} ms" if kind in ("policy", "guard") else "drives on",
                str(sum(time_s > dead_man_s for time_s in times)),
                str(len(wrong)),
                "; ".join(wrong[:2]),
            )
        )
    values = {
        "kills": kills,
        "contacts": contacts,
        "dead_man_s": dead_man_s,
        "late": sum((kill["time_s"] or 0) > dead_man_s for kill in kills),
        "unsound": sum(not kill["sound"] for kill in kills),
    }
    return BenchResult(
        f"{len(kills)} kills: {contacts} contacts, {values['late']} brakes later than {1e3 * dead_man_s:.0f} ms, "
        f"{values['unsound']} otherwise unsound",
        ("process", "kills", "worst", "host withheld", "required", "late", "unsound", "note"),
        rows,
        values,
    )
