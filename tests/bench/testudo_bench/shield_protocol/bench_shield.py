"""`testudo bench shield`: the evidence for the shield, cell by cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from testudo_bench.shield_protocol.cell_runner import Job, Tables, run_jobs
from testudo_bench.shield_protocol.drone_cells import attitude_cells, drone_cells
from testudo_bench.shield_protocol.ground_cells import in_quick, mujoco_cells, protocol_cells
from testudo_bench.shield_protocol.protocol_cell import Claim
from testudo_bench.shield_protocol.protocol_table import COLUMNS, row, summary, totals
from testudo_deploy.bench.result import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.devices import devices
from testudo_sim.physics_choice import PhysicsChoice

_QUICK, _QUICK_CONTROL = 8, 128
"""Episodes of a cell with ``--quick``, and of one that must show contacts."""
_ON_MUJOCO, _QUICK_ON_MUJOCO = 20, 2
_AS_THEY_FLY = 50
"""Episodes of a cell in which drones tilt, under their attitude loops and in each other's wake."""


def bench_shield(
    *, robot: str | None = None, quick: bool = False, say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Run the shield's test protocol and its negative controls, and what it is compared with.

    Ctrl-C ends the measurement; what has been done by then is in the table.

    Args:
        robot: a drone, for the cells of drones in space; None is the protocol of robots on the ground.
        quick: few episodes in every cell, and not every cell (`in_quick`).
        say: is told what has been done.
    """
    began = time.perf_counter()
    jobs, tables = protocol_jobs(quick, robot), Tables(hasty=quick)
    interrupted = False
    try:
        run_jobs(jobs, say, tables)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - began
    found = _figures(jobs, tables)
    summed = totals(found)
    values = {
        "quick": quick,
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


def protocol_jobs(quick: bool, robot: str | None = None) -> list[Job]:
    """Return every cell with its tier and how many episodes of it are run; of a drone, if one is named.

    Raises:
        TestudoError: the robot is no drone whose file says what it does in silence.
    """
    if robot is not None:
        jobs = [Job(cell, cell.episodes) for cell in drone_cells(_drone(robot))]
        jobs += [Job(cell, _AS_THEY_FLY, PhysicsChoice("attitude")) for cell in attitude_cells(robot)]
        return [replace(job, episodes=_quick_share(job)) for job in jobs] if quick else jobs
    jobs = [Job(cell, cell.episodes) for cell in protocol_cells()]
    jobs += [Job(cell, _ON_MUJOCO, PhysicsChoice("mujoco")) for cell in mujoco_cells()]
    return [replace(job, episodes=_quick_share(job)) for job in jobs if in_quick(job.cell)] if quick else jobs


def _drone(robot: str) -> str:
    spec = load_robot(robot)
    if not spec.silence:
        raise TestudoError(
            f"testudo bench shield: --robot: {robot} has no table [silence], expected a drone that has; "
            "robots on the ground are in the protocol without --robot"
        )
    return robot


def _quick_share(job: Job) -> int:
    if job.choice.physics == "mujoco":
        return _QUICK_ON_MUJOCO
    return _QUICK_CONTROL if job.cell.claim is Claim.CONTROL else _QUICK


def _figures(jobs: Sequence[Job], tables: Tables) -> list[dict[str, Any]]:
    """Return the figures of the cells that have been run, in their order."""
    keys = [(job.choice.physics, job.cell) for job in jobs]
    return [summary(*key, tables.outcomes[key]) for key in keys if key in tables.outcomes]
