"""`testudo bench kills`: any one process but the plant is killed at a random moment, again and again."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.harness.fault_case import brakes
from testudo_bench.fault_matrix.harness.fleet_harness import StalledError, TestBed, TestBedError, write_fleet
from testudo_deploy.commands.report import BenchResult

_KILLS = 100
_SEED = 0
_UNTOUCHED_S = 1.0
"""For so long robots must drive on after a process died that none of them needs."""
_PHASE_S = 0.1
"""A kill comes after a random part of this, so at any moment of a tick and of the dead-man time."""


def bench_kills(*, repeats: int = _KILLS, say: Callable[[str], None] = print) -> BenchResult:
    """Kill one process of a fleet of three at a random moment, bring it back, and again.

    A robot whose policy or guard dies must be braked within the dead-man time, come to rest and stay there until an
    operator starts it; one whose recorder or station dies must drive on.

    Args:
        repeats: kills.
        say: is told what goes on.
    """
    rng, kills = random.Random(_SEED), []  # noqa: S311 -- no secret
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fleet = write_fleet(folder)
        with TestBed(folder, fleet, run_folder=folder / "run") as bed:
            victims = [process for process in bed.plan if process.name != "plant"]
            for k in range(repeats):
                victim = rng.choice(victims)
                say(f"{k + 1} of {repeats}: {victim.label}")
                kills.append({"process": victim.label, **_kill(bed, victim.label, rng)})
                if victim.name == "recorder":  # its folder holds a run now
                    victims.remove(victim)
            contacts = bed.observer.contacts
        dead_man_s = fleet.robots[0].spec.dead_man_s
    return _result(kills, contacts, dead_man_s)


def _kill(bed: TestBed, label: str, rng: random.Random) -> dict[str, Any]:
    """Kill a process and return what became of its robot, or of all."""
    name, _, kind = label.rpartition("/")
    for _ in range(5):
        try:
            bed.wait_until_all_drive()
            time.sleep(rng.uniform(0, _PHASE_S))
            fault_s = bed.send(label, signal.SIGKILL)
            if not name:
                return _untouched(bed, fault_s)
            found = brakes(bed, fault_s, name=name, series="sent" if kind == "policy" else "applied")
            time.sleep(0.5)
            rests = bed.observer.rests(name, fault_s)
        except StalledError:
            continue
        except TestBedError as error:
            return {"sound": False, "time_s": None, "note": str(error)}
        finally:
            if bed.processes.exit_status(label) is not None and label != "recorder":
                bed.restart(label)
        if found is not None:  # else the machine stalled just then, which tells nothing
            return {
                "sound": rests,
                "time_s": found.time_s,
                "stolen_s": found.stolen_s,
                "note": "" if rests else "it moves",
            }
    return {"sound": False, "time_s": None, "note": "the machine stalled at every attempt"}


def _untouched(bed: TestBed, fault_s: float) -> dict[str, Any]:
    time.sleep(_UNTOUCHED_S)
    stopped = [
        name
        for name in bed.fleet.names
        if any(
            code
            for at_s, _, code in bed.observer.robots[name].codes
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
        ("process", "kills", "worst", "host took", "required", "late", "unsound", "note"),
        rows,
        values,
    )
