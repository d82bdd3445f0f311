"""Process priorities of nodes and operators' verbs; imports nothing heavy, so that a verb can raise its own first.

The emergency stop and who observes faults come first, then plant and driver, then the guard, which also needs the
processor in order to brake. An operator's verb comes before the policies that it stops, and after the guards that
confirm the stop. A verb that only shows the fleet comes after the policies, which it must not disturb. A task node
without whose messages robots brake has no real-time priority, as it compiles for seconds, but a larger share.
"""

import contextlib
import os
import sys
from pathlib import Path

PRIORITIES = {
    "emergency_stop": 6,
    "observer": 6,
    "plant": 5,
    "driver": 5,
    "guard": 4,
    "operator": 3,
    "policy": 2,
    "viewer": 1,
}
"""Real-time priority by node, the higher one first; all others have none.

An observer that waits for a core would report its own delay, and would relay messages late. The shell program
`deploy/bin/testudo` holds that of an operator, too."""
FAVOURED = -10
"""Niceness of operators without real-time rights, and of a task node: before processes of normal priority."""


def set_realtime_priority(priority: int, *, alone: bool = False) -> None:
    """Ask for real-time scheduling of all threads, those of DDS included; continue without the permission for it.

    Args:
        priority: the higher one runs first; 0 changes nothing.
        alone: threads and processes that are started later do not inherit it.
    """
    if priority and sys.platform.startswith("linux"):
        _schedule(os.SCHED_RR | (os.SCHED_RESET_ON_FORK if alone else 0), priority)


def raise_priority(priority: int) -> None:
    """Ask for real-time scheduling; where it is refused, for a lower niceness; continue without both."""
    set_realtime_priority(priority)
    if sys.platform.startswith("linux") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, FAVOURED)


def change_niceness(niceness: int) -> None:
    """Add to the niceness of this process, and where it is a session of its own set that of the session.

    Linux may give each session the same share of a core (autogroup); niceness then counts inside of a session only. A
    negative one needs a permission, and nothing changes without it.
    """
    with contextlib.suppress(OSError):
        os.nice(niceness)
    if sys.platform.startswith("linux") and os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")


def reset_scheduling() -> None:
    """Return all threads of this process to the default scheduling."""
    if sys.platform.startswith("linux"):
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
