"""Real-time scheduling: who goes first on a busy machine."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

PRIORITIES = {"observer": 4, "plant": 3, "driver": 3, "guard": 2, "policy": 1}
"""By node: who measures before the world, the world before the guard, the guard before the policy, all before the rest.

An observer that waits for a core reports its own delay, and what it relays comes late."""


def go_first(priority: int, *, alone: bool = False) -> None:
    """Ask for real-time scheduling of all threads, of which DDS has its own; without the right to it, go on.

    Args:
        priority: the higher goes first; with 0 nothing is asked for.
        alone: threads and processes that are started from now on do not inherit it.
    """
    if not priority or not sys.platform.startswith("linux"):
        return
    _schedule(os.SCHED_RR | (os.SCHED_RESET_ON_FORK if alone else 0), priority)


def go_as_usual() -> None:
    """Take that back for all threads of this process."""
    if sys.platform.startswith("linux"):
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
