"""Keeps the cores of a virtual machine from sleeping during a real-time run.

An idle core is halted, and a virtual machine returns a halted core to its host, which may give it back tens of
milliseconds late where hosts are shared. Control loops sleep between ticks, so this delays every tick. On bare metal a
core wakes within a fraction of a millisecond, and nothing is done. Latency tools use the same remedy (`idle=poll`, or 0
in `/dev/cpu_dma_latency`, which have no effect inside most virtual machines).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

CPU_INFO, CPU_QUOTA = Path("/proc/cpuinfo"), Path("/sys/fs/cgroup/cpu.max")
_SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {{{core}}})
while os.getppid() == {parent}:
    for _ in range(1_000_000):
        pass
"""


class CpuKeepAwake:
    """One process per core that spins while the core is otherwise idle; a context manager that may be entered once.

    The processes have the scheduling class SCHED_IDLE, so every other process preempts them immediately. They end with
    this process, in whatever way it ends.
    """

    def __init__(self) -> None:
        self._spinners: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the processes if `cores_wake_late`."""
        if cores_wake_late():
            for core in sorted(os.sched_getaffinity(0)):
                words = [sys.executable, "-I", "-S", "-c", _SPIN.format(core=core, parent=os.getpid())]
                self._spinners.append(
                    subprocess.Popen(  # noqa: S603 -- fixed words
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        for spinner in self._spinners:
            spinner.kill()
        for spinner in self._spinners:
            spinner.wait()
        self._spinners.clear()


def cores_wake_late(cpu_info: Path = CPU_INFO, cpu_quota: Path = CPU_QUOTA) -> bool:
    """Return whether this is Linux in a virtual machine without a quota of processor time.

    Spinning would use up a quota, as containers have it.
    """
    if not hasattr(os, "SCHED_IDLE") or not cpu_info.is_file():
        return False
    is_virtual = any(
        "hypervisor" in line.split()
        for line in cpu_info.read_text(encoding="utf-8").splitlines()
        if line.startswith("flags")
    )
    is_limited = cpu_quota.is_file() and not cpu_quota.read_text(encoding="utf-8").startswith("max")
    return is_virtual and not is_limited
