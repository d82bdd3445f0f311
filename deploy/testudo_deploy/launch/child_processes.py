"""Starts the processes of a plan on this machine in one ROS domain, reads their events, and ends all of them."""

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from testudo_deploy.launch.launch_plan import SUPERVISOR_VARIABLE, ProcessPlan, ros_arguments
from testudo_deploy.launch.ros_domain import LOOPBACK
from testudo_hardware.errors import TestudoError

_FREE_DOMAINS = range(1, 102)  # above these, DDS ports overlap those that the system gives to clients
_STOP_S = 4.0
_KILL_S = 2.0
_POLL_S = 0.02
CPU_INFO, CPU_QUOTA = Path("/proc/cpuinfo"), Path("/sys/fs/cgroup/cpu.max")
_SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
try:
    open("/proc/self/autogroup", "w").write("19")
except OSError:
    pass
os.sched_setaffinity(0, {{{core}}})
while os.getppid() == {parent}:
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True)
class ProcessEvent:
    """An event that a process reported."""

    process: str  # label in the plan: `plant`, `recorder`, `r0/policy`
    kind: str  # as reported by the process; or `error_line` (on standard error) or `ended`
    values: Mapping[str, Any]


class FleetProcesses:
    """The processes of a plan; a context manager. Start it from the main thread.

    While they run, `CpuKeepAwake` keeps the cores of this machine awake where that helps.
    """

    def __init__(self, plan: Sequence[ProcessPlan], *, domain_id: int | None = None, local: bool = True) -> None:
        """Prepare; nothing is started yet.

        Robots are stopped first, then the rest in reverse order. A ``domain_id`` of None takes a free ROS domain;
        ``local`` processes reach this machine only, others also robots and drivers on the network.
        """
        self.domain_id = free_domain_id() if domain_id is None else domain_id
        self._plan, self._local = tuple(plan), local
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []
        self._events: queue.Queue[ProcessEvent] = queue.Queue()
        self._awake = CpuKeepAwake()

    def __enter__(self) -> Self:
        try:
            self._awake.__enter__()
            for process in self._plan:
                self.start(process)
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def environment(self) -> dict[str, str]:
        """Return the environment of the processes, which puts a program into the same ROS domain."""
        return os.environ | {
            "ROS_DOMAIN_ID": str(self.domain_id),
            **(LOOPBACK if self._local else {}),
            "OMP_NUM_THREADS": "1",
            SUPERVISOR_VARIABLE: str(os.getpid()),
        }

    def command(self, process: ProcessPlan) -> tuple[list[str], dict[str, str]]:
        """Return the command line of a process, and its environment."""
        words = [sys.executable, "-m", process.module, *ros_arguments(process), *process.enclave_arguments]
        return [*words, "--disable-external-lib-logs"], self.environment()

    def start(self, process: ProcessPlan) -> None:
        """Start one process of a plan, or start it again."""
        words, environment = self.command(process)
        child = subprocess.Popen(  # noqa: S603 -- modules of this project
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )  # Ctrl-C in the terminal reaches only this process
        self._running[process.label] = child
        for target, stream in ((self._read_events, child.stdout), (self._read_errors, child.stderr)):
            thread = threading.Thread(target=target, args=(process.label, stream), daemon=True)
            thread.start()
            self._threads.append(thread)

    def next_event(self, timeout_s: float) -> ProcessEvent | None:
        """Return the oldest event that was not returned yet; None if none comes in time."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def exit_status(self, label: str) -> int | None:
        """Return the exit status of a process; None while it runs."""
        return self._running[label].poll()

    def process_id(self, label: str) -> int:
        """Return the process id."""
        return self._running[label].pid

    def signal(self, label: str, number: signal.Signals) -> None:
        """Send a signal to a process if it still runs."""
        child = self._running[label]
        if child.poll() is None:
            child.send_signal(number)

    def stop(self) -> None:
        """End all processes by SIGINT, robots first; those that still run after that by SIGKILL."""
        try:
            robots = [process.label for process in self._plan if process.namespace]
            others = [process.label for process in reversed(self._plan) if not process.namespace]
            for group in (robots, *([label] for label in others)):
                self._stop_group([label for label in group if label in self._running])
        finally:
            self.kill_all()
            for thread in self._threads:
                thread.join(_KILL_S)

    def kill_all(self) -> None:
        """Kill all processes with their process groups, and let the cores sleep again."""
        for child in self._running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_KILL_S)
        self._awake.__exit__()

    def _stop_group(self, labels: Sequence[str]) -> None:
        for label in labels:
            self.signal(label, signal.SIGINT)
        end_s = time.monotonic() + _STOP_S
        while time.monotonic() < end_s and any(self.exit_status(label) is None for label in labels):
            time.sleep(_POLL_S)

    def _read_events(self, label: str, stream: IO[str]) -> None:
        for line in stream:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                values = json.loads(line)
                self._events.put(ProcessEvent(label, values.pop("event"), values))
        self._events.put(ProcessEvent(label, "ended", {}))

    def _read_errors(self, label: str, stream: IO[str]) -> None:
        for line in stream:
            if line.strip():
                self._events.put(ProcessEvent(label, "error_line", {"text": line.rstrip()}))


class CpuKeepAwake:
    """One process per core that spins while the core is otherwise idle; a context manager that may be entered once.

    An idle core is halted, and a virtual machine returns a halted core to its host, which may give it back tens of
    milliseconds late where hosts are shared. Control loops sleep between ticks, so this delays every tick. On bare
    metal a core wakes within a fraction of a millisecond, and nothing is done. Latency tools use the same remedy
    (`idle=poll`, or 0 in `/dev/cpu_dma_latency`, which have no effect inside most virtual machines).

    The processes have the scheduling class SCHED_IDLE, so every other process preempts them immediately; and as Linux
    may give each session the same share of a core (autogroup), whatever the class of its processes, the lowest share.
    They end with this process, in whatever way it ends.
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


def free_domain_id() -> int:
    """Return a ROS domain whose first ports are not open on this machine.

    Raises:
        TestudoError: there is none.
    """
    for domain_id in random.sample(_FREE_DOMAINS, len(_FREE_DOMAINS)):
        if all(_is_free(port) for port in _ports(domain_id)):
            return domain_id
    raise TestudoError("ROS_DOMAIN_ID: 1 to 101 are all in use on this machine; stop a fleet")


def _ports(domain_id: int) -> list[int]:
    """Return the discovery port of a domain and the ports of its first participants (DDSI-RTPS 9.6.1)."""
    base = 7400 + 250 * domain_id
    return [base, *(base + offset + 2 * participant for participant in range(4) for offset in (10, 11))]


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
