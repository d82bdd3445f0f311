"""`testudo bench shield`: the evidence for the shield, cell by cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from testudo_deploy.benchmarking import BenchResult
from testudo_sim.devices import devices
from testudo_sim.protocol.catalogue import protocol_cells
from testudo_sim.protocol.cells import Cell
from testudo_sim.protocol.runner import Tables, run_cells
from testudo_sim.protocol.table import COLUMNS, row, summary, totals
from testudo_sim.tiers import PhysicsChoice

_QUICK = 16
"""Episodes of a cell with ``--quick``."""


def bench_shield(*, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Run the shield's test protocol and its negative controls, and what it is compared with.

    Ctrl-C ends the measurement; what has been done by then is in the table.

    Args:
        quick: few episodes in every cell.
        say: is told what has been done.
    """
    began = time.perf_counter()
    cells, tables = protocol_cells(), Tables()
    interrupted = False
    try:
        run_cells(cells, lambda cell: _QUICK if quick else cell.episodes, PhysicsChoice(),
                  lambda text: say(f"kinematic: {text}"), tables)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - began
    found = _figures(cells, tables)
    summed = totals(found)
    values = {"quick": quick, "interrupted": interrupted, "totals": summed, "cells": found,
              "seconds": seconds, "compile_s": tables.compile_s, "robot_ticks": tables.robot_ticks,
              "device": devices().to_dict()}
    title = (f"{summed['episodes']} episodes in {summed['cells']} cells, {summed['covered_contacts']} contacts in "
             f"{summed['covered_episodes']} covered ones; {seconds:.0f} s, of which compilation "
             f"{tables.compile_s:.0f} s side by side; {devices().text}")
    return BenchResult(title, COLUMNS, [row(cell) for cell in found], values)


def _figures(cells: Sequence[Cell], tables: Tables) -> list[dict[str, Any]]:
    """Return the figures of the cells that have been run, in their order."""
    return [summary(cell, tables.outcomes[cell]) for cell in cells if cell in tables.outcomes]
