"""Several processes, on one machine or on many, that train one policy together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from testudo_hardware.errors import TestudoError

AUTO = "auto"
"""Address that lets JAX ask the cluster: Slurm, Open MPI and Kubernetes say who is who."""
CONTINUE, SAVE, STOP = 0, 1, 2
"""What a process may wish for; the largest wish is done by all."""


def join(coordinator: str | None, processes: int | None, process_id: int | None) -> None:
    """Meet the other processes; nothing to do without a coordinator.

    Args:
        coordinator: ``HOST:PORT`` where process 0 listens, or ``auto``.
        processes: how many there are.
        process_id: which of them this one is, from 0.

    Raises:
        TestudoError: a part is missing, or out of range, or the others did not come.
    """
    if coordinator is None:
        if processes is not None or process_id is not None:
            raise TestudoError("--processes and --process-id need --coordinator HOST:PORT, that of process 0")
        return
    if coordinator != AUTO:
        _check(coordinator, processes, process_id)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for tests without an accelerator
    try:
        jax.distributed.initialize(None if coordinator == AUTO else coordinator, processes, process_id)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TestudoError(f"--coordinator {coordinator}: the processes did not meet: {reason}") from error
    _connect()


def first() -> bool:
    """Return whether this process is the one that writes and prints."""
    return jax.process_index() == 0


def from_first(data: bytes) -> bytes:
    """Return the bytes that process 0 has; all processes must call."""
    if jax.process_count() == 1:
        return data
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    sent = np.frombuffer(data, np.uint8) if first() else np.zeros(length, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(sent)).astype(np.uint8).tobytes()


def gather_agreement(work: Callable[[], bytes]) -> bytes:
    """Let process 0 work and give its result to all; what it refuses, all refuse.

    Raises:
        TestudoError: process 0 raised one.
    """
    if jax.process_count() == 1:
        return work()
    try:
        outcome = b"+" + work() if first() else b""
    except TestudoError as error:
        outcome = b"-" + str(error).encode()
    outcome = from_first(outcome)
    if outcome[:1] == b"-":
        raise TestudoError(outcome[1:].decode())
    return outcome[1:]


class ProcessVote:
    """What all processes do next; each learns it without waiting for the others' next step.

    A wish travels like an update's metrics: it is sent with one update and read after the next, by all
    processes at the same point of the run.
    """

    def __init__(self, mesh: Mesh | None) -> None:
        """Open a ballot; alone, a process gets its own wish at once."""
        self._alone = jax.process_count() == 1
        if not self._alone:
            self._place = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
            self._largest = jax.jit(lambda x: x.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._sent: Any = None

    def ask(self, wish: int) -> int:
        """Send this process's wish, and return what is to be done now."""
        if self._alone:
            return wish
        before = self._sent
        own = np.full(jax.local_device_count(), wish, np.int32)
        self._sent = self._largest(jax.make_array_from_process_local_data(self._place, own))
        return CONTINUE if before is None else int(before)


def _connect() -> None:
    """Let all devices add something up: later, when some compile for longer, they wait for half a minute only."""
    mesh = Mesh(np.array(jax.devices()), ("all",))
    ones = np.ones(jax.local_device_count(), np.int32)
    shared = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("all")), ones)
    jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(shared).block_until_ready()


def _check(coordinator: str, processes: int | None, process_id: int | None) -> None:
    if not coordinator.rpartition(":")[2].isdigit() or ":" not in coordinator:
        raise TestudoError(f"--coordinator: found {coordinator!r}, expected HOST:PORT or {AUTO}")
    if processes is None or processes < 1:
        raise TestudoError(f"--processes: found {processes}, expected the number of processes")
    if process_id is None or not 0 <= process_id < processes:
        raise TestudoError(f"--process-id: found {process_id}, expected 0 to {processes - 1}")
