"""`testudo bench shield`: the shield's test protocol, one table row and JSON entry for each cell."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.shield_protocol.cell_runner import CellOutcome, Job, Tables, run_jobs
from testudo_bench.shield_protocol.drone_cells import attitude_cells, drone_cells
from testudo_bench.shield_protocol.ground_cells import in_quick, mujoco_cells, protocol_cells
from testudo_bench.shield_protocol.policy_commands import ProtocolPolicy, protocol_policies
from testudo_bench.shield_protocol.progress_cells import progress_cells
from testudo_bench.shield_protocol.protocol_cell import Claim, Commands, ProtocolCell, Rule
from testudo_bench.shield_protocol.saved_cells import SavedCells, read_saved_cells
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices
from testudo_sim.physics_choice import PhysicsChoice

COLUMNS = (
    "cell",
    "conditions",
    "layers",
    "n",
    "contacts",
    "moving",
    "wash",
    "3/n",
    "least [m]",
    "arrived",
    "after [s]",
    "stuck",
    "changed",
    "by [m/s]",
    "alarms",
    "as it must",
)
"""Episodes n; those with a contact, with a contact at own speed, and with a drone in another's downwash; bound of the
contact rate if there is none; least distance of two centres, with scaled heights; share of episodes in which all
arrived, and their median time; share that ended in a deadlock; share and size of command changes; brake alarms of the
robots that braked from speed."""
_OURS = (Rule.OURS.value, Rule.ONE_TICK.value)


def summary(tier: str, cell: ProtocolCell, outcome: CellOutcome) -> dict[str, Any]:
    """Return the results of a cell, JSON-ready."""
    episodes = len(outcome.contacts)
    contacts, moving = int(np.sum(outcome.contacts > 0)), int(np.sum(outcome.fast_contacts > 0))
    least = float(np.min(outcome.separation_m))
    washed = int(np.sum(outcome.separation_m < wash_m(cell)))
    arrived = np.isfinite(outcome.arrived_s)
    return {
        "tier": tier,
        "cell": cell.name,
        "place": cell.place,
        "what": cell.what,
        "robot": cell.robot,
        "team_size": cell.size,
        "formation": cell.formation.value,
        "layers": cell.layers,
        "claim": cell.claim.value,
        "twin": cell.twin,
        "resolution": cell.resolves,
        "commands": cell.commands.value,
        "horizon_s": cell.horizon_s,
        "conditions": _plain(asdict(cell.conditions)),
        "episodes": episodes,
        "episodes_with_contact": contacts,
        "episodes_with_contact_at_own_speed": moving,
        "contact_rate_high": 3 / episodes if contacts == 0 else None,
        "episodes_in_wash": washed,
        "least_separation_m": least,
        "arrived_share": float(np.mean(arrived)),
        "median_arrival_s": float(np.median(outcome.arrived_s[arrived])) if arrived.any() else None,
        "deadlocked_share": float(np.mean(outcome.deadlocked)),
        "intervention_share": float(np.mean(outcome.changed_share)),
        "intervention_m_s": float(np.mean(outcome.change_m_s)),
        "robots_that_braked_from_speed": int(np.sum(outcome.braked)),
        "alarms": int(np.sum(outcome.alarms)),
        "holds": holds(cell, contacts, moving, washed),
    }


def holds(cell: ProtocolCell, contacts: int, moving: int, washed: int = 0) -> bool | None:
    """Return whether a cell fulfils its claim; None without a claim.

    Drones outside each other's downwash do not touch; with unscaled heights the control must enter the downwash.
    """
    contacts = moving if cell.conditions.hostile_kind else contacts  # a hostile robot can touch one that stands
    fails = contacts > 0 or (cell.conditions.level and washed > 0)
    return {Claim.COVERED: contacts == 0 and washed == 0, Claim.HOSTILE: moving == 0, Claim.CONTROL: fails}.get(
        cell.claim
    )


def wash_m(cell: ProtocolCell) -> float:
    """Return the distance of drones [m], with scaled heights, below which one is in the other's downwash; else 0."""
    spec = load_robot(cell.robot)
    return 2 * spec.keep_radius_m if spec.dimension == 3 else 0.0


def row(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the table row of a cell."""
    high = figures["contact_rate_high"]
    verdict = {True: "yes", False: "NO", None: ""}[figures["holds"]]
    rule = figures["conditions"]["rule"]
    layers = figures["layers"] if rule in _OURS else rule
    place = figures["place"] if figures["tier"] == "kinematic" else f"{figures['tier']}: {figures['place']}"
    return (
        place,
        figures["what"],
        layers,
        f"{figures['episodes']}",
        f"{figures['episodes_with_contact']}",
        f"{figures['episodes_with_contact_at_own_speed']}",
        f"{figures['episodes_in_wash']}",
        "" if high is None else f"{high:.1e}",
        f"{figures['least_separation_m']:.3f}",
        f"{figures['arrived_share']:.3f}",
        "" if figures["median_arrival_s"] is None else f"{figures['median_arrival_s']:.1f}",
        f"{figures['deadlocked_share']:.3f}",
        f"{figures['intervention_share']:.2f}",
        f"{figures['intervention_m_s']:.2f}",
        f"{figures['alarms']}/{figures['robots_that_braked_from_speed']}",
        verdict,
    )


def totals(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the totals of all cells."""
    covered = [cell for cell in cells if cell["claim"] == Claim.COVERED.value]
    batch = [cell for cell in covered if cell["tier"] == "kinematic"]
    controls = [cell for cell in cells if cell["claim"] == Claim.CONTROL.value]
    return {
        "cells": len(cells),
        "episodes": sum(cell["episodes"] for cell in cells),
        "covered_cells": len(covered),
        "covered_episodes": sum(cell["episodes"] for cell in covered),
        "covered_contacts": sum(cell["episodes_with_contact"] for cell in covered),
        "fewest_episodes_of_a_covered_kinematic_cell": min((cell["episodes"] for cell in batch), default=0),
        "controls": len(controls),
        "controls_seen_to_fail": sum(cell["holds"] for cell in controls),
        "hostile_contacts_at_own_speed": sum(
            cell["episodes_with_contact_at_own_speed"] for cell in cells if cell["claim"] == Claim.HOSTILE.value
        ),
        "all_hold": all(cell["holds"] is not False for cell in cells),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values for JSON: enumerations by value, infinity as None."""

    def simple(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        return None if value == float("inf") else value

    return {key: simple(value) for key, value in values.items()}


_QUICK, _QUICK_CONTROL = 8, 128  # Episodes of a cell and of a negative control with `--quick`
_ON_MUJOCO, _QUICK_ON_MUJOCO = 20, 2
_AS_THEY_FLY = 50  # Episodes of a cell with the attitude dynamics and downwash of drones


def bench_shield(
    *,
    robot: str | None = None,
    policy: Path | None = None,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Run the shield's test protocol, its negative controls and its baselines.

    Ctrl-C stops the measurement; finished cells are in the table, and the same command goes on after them.

    Args:
        robot: a drone, for the cells of drones; None for the protocol of ground robots.
        policy: a policy file or training run, for the cells in which robots hold each other up, with its commands
            beside straight ones, those before its training, and ORCA.
        quick: few episodes, and only the cells of `in_quick`.
        saved: JSON file to which whole cells are written, and which is continued.
        say: called with progress messages.

    Raises:
        TestudoError: the robot or the policy is not one of these, or both are given; `saved` is another file.
    """
    if robot is not None and policy is not None:
        raise TestudoError("testudo bench shield: found --robot and --policy, expected one; a policy names its robot")
    began = time.perf_counter()
    jobs, policies = _with_policy(policy, quick) if policy else (protocol_jobs(quick, robot), {})
    kept = read_saved_cells(saved, policy)
    began -= kept.seconds  # as if it had not been interrupted
    few = quick or policy is not None  # episodes for each program
    tables = Tables(compile_s=kept.compile_s, robot_ticks=kept.robot_ticks, fast_compile=few)
    say(kept.began_anew or "compiling")
    interrupted = False
    try:
        run_jobs(kept.missing(jobs), say, tables, policies, partial(_save, jobs, kept, tables, began))
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - began
    found = _figures(jobs, kept, tables)
    summed = totals(found)
    values = {
        "quick": quick,
        "source": kept.source,
        "interrupted": interrupted,
        "totals": summed,
        "cells": found,
        "seconds": seconds,
        "compile_s": tables.compile_s,
        "robot_ticks": tables.robot_ticks,
        "device": devices().to_dict(),
    }
    title = (
        f"{summed['episodes']} episodes in {summed['cells']} cells, {summed['covered_contacts']} contacts in "
        f"{summed['covered_episodes']} covered ones; {seconds:.0f} s, of which compilation "
        f"{tables.compile_s:.0f} s side by side; {devices().text}"
    )
    return BenchResult(title, COLUMNS, [row(cell) for cell in found], values)


def _save(jobs: Sequence[Job], kept: SavedCells, tables: Tables, began: float) -> None:
    """Keep and write the cells that are whole; ``began`` is when all runs did, had none been interrupted [s]."""
    for job in kept.missing(jobs):
        key = (job.choice.physics, job.cell)
        if key in tables.outcomes and len(tables.outcomes[key].contacts) == job.episodes:
            kept.add(summary(*key, tables.outcomes[key]))
    kept.write(time.perf_counter() - began, tables)


def _figures(jobs: Sequence[Job], kept: SavedCells, tables: Tables) -> list[dict[str, Any]]:
    """Return the figures of whole cells, and of those begun, in the order of the jobs."""
    found: list[dict[str, Any]] = []
    for job in jobs:
        key = (job.choice.physics, job.cell)
        if kept.has(job):
            found.append(kept.cells[job.choice.physics, job.cell.name])
        elif key in tables.outcomes:
            found.append(summary(*key, tables.outcomes[key]))
    return found


def protocol_jobs(quick: bool, robot: str | None = None) -> list[Job]:
    """Return every cell with its tier and number of episodes, for ground robots or a drone.

    Raises:
        TestudoError: the robot is not a drone with a table [silence].
    """
    if robot is not None:
        jobs = [Job(cell, cell.episodes) for cell in drone_cells(_drone(robot))]
        jobs += [Job(cell, _AS_THEY_FLY, PhysicsChoice("attitude")) for cell in attitude_cells(robot)]
        return [replace(job, episodes=_quick_share(job)) for job in jobs] if quick else jobs
    jobs = [Job(cell, cell.episodes) for cell in protocol_cells()]
    jobs += [Job(cell, _ON_MUJOCO, PhysicsChoice("mujoco")) for cell in mujoco_cells()]
    return [replace(job, episodes=_quick_share(job)) for job in jobs if in_quick(job.cell)] if quick else jobs


def _with_policy(path: Path, quick: bool) -> tuple[list[Job], dict[Commands, ProtocolPolicy]]:
    spec, policies = protocol_policies(path)
    jobs = [Job(cell, cell.episodes) for cell in progress_cells(spec.name, policies)]
    return [replace(job, episodes=_quick_share(job)) for job in jobs] if quick else jobs, policies


def _drone(robot: str) -> str:
    spec = load_robot(robot)
    if not spec.silence:
        raise TestudoError(
            f"testudo bench shield: --robot: {robot}: found no table [silence], expected a drone with it; "
            "for ground robots omit --robot"
        )
    return robot


def _quick_share(job: Job) -> int:
    if job.choice.physics == "mujoco":
        return _QUICK_ON_MUJOCO
    return _QUICK_CONTROL if job.cell.claim is Claim.CONTROL else _QUICK
