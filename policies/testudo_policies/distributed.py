"""Training on several devices and processes: placement of arrays and agreement of processes.

Worlds are sharded over the devices, all other arrays are replicated. XLA partitions the update; this module only says
which arrays are sharded and along which axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from testudo_hardware.errors import TestudoError
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment

AXIS = "worlds"


class Learner(Protocol):
    """A learner whose state, a tree of arrays, is placed on the devices."""

    @property
    def config(self) -> TrainConfig:
        """The configuration of the run."""
        ...

    @property
    def environment(self) -> Environment:
        """The worlds in which it learns."""
        ...

    @property
    def start(self) -> Any:
        """`init`, compiled for one device."""
        ...

    def init(self, key: jax.Array) -> Any:
        """Return the state before the first update."""
        ...

    def update(self, state: Any) -> tuple[Any, dict[str, jax.Array]]:
        """Return the state after a rollout and what is learned from it, and the figures of the update."""
        ...


@dataclass(frozen=True)
class DevicePlacement:
    """The devices of a run."""

    mesh: Mesh | None = None  # mesh with one axis, `worlds`; None for one device

    @classmethod
    def create(cls, config: TrainConfig, devices: list[Any] | None = None) -> DevicePlacement:
        """Return the placement on the given devices, by default all devices of all processes.

        With one process, devices that would not get an equal share are not used.

        Raises:
            TestudoError: there are several processes, and the worlds cannot be divided equally.
        """
        chosen = jax.devices() if devices is None else devices
        most = cls.shares(config, len(chosen))
        if most < len(chosen) and jax.process_count() > 1:
            raise TestudoError(
                f"--worlds: {config.worlds} worlds x {config.team_size} robots in {config.minibatches} "
                f"minibatches cannot be divided equally among {len(chosen)} devices"
            )
        if most == 1 and jax.process_count() == 1:
            return cls()
        return cls(Mesh(np.array(chosen[:most]), (AXIS,)))

    @staticmethod
    def shares(config: TrainConfig, available: int) -> int:
        """Return the largest number of devices with equal shares of the worlds and of each minibatch."""
        share = config.worlds * config.team_size // config.minibatches
        return max(n for n in range(1, available + 1) if config.worlds % n == 0 and share % n == 0)

    @property
    def count(self) -> int:
        """Return the number of devices in use."""
        return self.mesh.size if self.mesh else 1

    def start(self, learner: Learner) -> Any:
        """Return the state before the first update, placed on the devices."""
        key = jax.random.key(learner.config.seed)
        if self.mesh is None:
            return learner.start(key)
        return jax.jit(learner.init, out_shardings=self.places(learner))(key)

    def places(self, learner: Learner) -> Any:
        """Return the tree of shardings of the state; None for one device."""
        if self.mesh is None:
            return None
        once, twice = (_outline(learner, times * learner.config.worlds) for times in (1, 2))
        return jax.tree.map(self._place, once, twice)

    def put(self, learner: Learner, state: Any) -> Any:
        """Place a host state, which is equal in all processes, on the devices."""
        if self.mesh is None:
            return state
        return jax.tree.map(_put, state, self.places(learner))

    def gather(self, tree: Any) -> Any:
        """Return the whole arrays in this process; all processes must call it."""
        if self.mesh is None:
            return tree
        everywhere = jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, PartitionSpec()))(tree)
        return jax.tree.map(lambda x: x.addressable_data(0), everywhere)

    def _place(self, once: jax.ShapeDtypeStruct, twice: jax.ShapeDtypeStruct) -> NamedSharding:
        """Return the sharding of an array: the axis that grows with the number of worlds is sharded."""
        assert self.mesh is not None  # noqa: S101 -- called for a mesh only
        spec = [AXIS if a != b else None for a, b in zip(once.shape, twice.shape, strict=True)]
        return NamedSharding(self.mesh, PartitionSpec(*spec))


def split(tree: Any, mesh: Mesh | None, axis: int) -> Any:
    """Constrain arrays to be sharded along an axis; otherwise XLA would replicate them."""
    if mesh is None:
        return tree
    place = NamedSharding(mesh, PartitionSpec(*[None] * axis, AXIS))
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, place), tree)


def _outline(learner: Learner, worlds: int) -> Any:
    larger = replace(cast(Any, learner), config=replace(learner.config, worlds=worlds))
    return jax.eval_shape(larger.init, jax.random.key(0))


def _put(leaf: jax.Array, place: NamedSharding) -> jax.Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(leaf), NamedSharding(place.mesh, PartitionSpec())))
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, place, lambda index: whole[index])


AUTO = "auto"  # address for process ids assigned by the cluster (Slurm, Open MPI, Kubernetes)
CONTINUE, SAVE, STOP = 0, 1, 2  # requests of a process; all processes execute the largest one


def join(coordinator: str | None, processes: int | None, process_id: int | None) -> None:
    """Join the other processes; does nothing without a coordinator.

    Args:
        coordinator: ``HOST:PORT`` where process 0 listens, or ``auto``.
        processes: number of processes.
        process_id: index of this process, from 0.

    Raises:
        TestudoError: an argument is missing or out of range, or the processes could not connect.
    """
    if coordinator is None:
        if processes is not None or process_id is not None:
            raise TestudoError("--processes and --process-id need --coordinator HOST:PORT, the address of process 0")
        return
    if coordinator != AUTO:
        _check(coordinator, processes, process_id)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for tests without an accelerator
    try:
        jax.distributed.initialize(None if coordinator == AUTO else coordinator, processes, process_id)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TestudoError(
            f"--coordinator {coordinator}: the processes could not connect: {reason}; check address and process count"
        ) from error
    _connect()


def first() -> bool:
    """Return whether this is process 0, which writes and prints."""
    return jax.process_index() == 0


def from_first(data: bytes) -> bytes:
    """Return the bytes of process 0; all processes must call it."""
    if jax.process_count() == 1:
        return data
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    sent = np.frombuffer(data, np.uint8) if first() else np.zeros(length, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(sent)).astype(np.uint8).tobytes()


def gather_agreement(work: Callable[[], bytes]) -> bytes:
    """Run ``work`` in process 0 and return its result in all processes; its error is raised in all.

    Raises:
        TestudoError: ``work`` raised one.
    """
    if jax.process_count() == 1:
        return work()
    try:
        result = b"+" + work() if first() else b""
    except TestudoError as error:
        result = b"-" + str(error).encode()
    result = from_first(result)
    if result[:1] == b"-":
        raise TestudoError(result[1:].decode())
    return result[1:]


class ProcessVote:
    """Agreement of all processes on what to do next, without waiting for one another.

    A request is sent with one update and read after the next, by all processes at the same point of
    the run.
    """

    def __init__(self, mesh: Mesh | None) -> None:
        """Prepare the vote; a single process gets its own request immediately."""
        self._single = jax.process_count() == 1
        if not self._single and mesh is not None:
            self._place = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
            self._largest = jax.jit(lambda x: x.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._sent: Any = None

    def decide(self, request: int) -> int:
        """Send this process's request, and return the agreed action."""
        if self._single:
            return request
        before = self._sent
        own = np.full(jax.local_device_count(), request, np.int32)
        self._sent = self._largest(jax.make_array_from_process_local_data(self._place, own))
        return CONTINUE if before is None else int(before)


def _connect() -> None:
    """Run a collective on all devices now: later ones time out after 30 s, less than some compilations take."""
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
