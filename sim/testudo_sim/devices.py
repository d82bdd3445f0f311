"""Describes the JAX devices, sets the precision of matrix products, and registers pytrees of the robot side.

Importing this module sets the precision for the whole process: on a GPU, JAX would round factors to 10 bits (TF32), too
coarse for the margins of the shield and for the comparison of an exported policy with its original. The environment
variable ``JAX_DEFAULT_MATMUL_PRECISION`` takes precedence.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from testudo_deploy.monitoring.brake_monitor import BrakeMonitorState
from testudo_deploy.shield.deadlock_resolution import DeadlockState, ResolvedVelocity
from testudo_deploy.shield.passage_order import PassageState
from testudo_deploy.shield.reservations import PeerReservations, ReservedSpace
from testudo_deploy.shield.right_of_way import RightOfWay
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.velocity_projection import PeerTable, ShieldResult
from testudo_hardware.motion import LagResponse, MotionState, StoppingPoint

PRECISION = "highest"
"""Matrix products in full float32; JAX's name for it."""
_GIB = 2**30

if jax.config.jax_default_matmul_precision is None:
    jax.config.update("jax_default_matmul_precision", PRECISION)


@dataclass(frozen=True)
class Devices:
    """The devices of a computation; devices of other processes are counted and assumed to be equal."""

    platform: str  # `cpu`, `gpu` or `tpu`
    kind: str  # name of the device by its maker
    count: int  # devices of all processes
    processes: int
    memory_bytes: int  # memory of one device [bytes]; on a CPU, the free memory over the devices of this process
    matmul_precision: str

    @property
    def text(self) -> str:
        """Return a description in one line."""
        name = self.kind if self.kind.lower() == self.platform else f"{self.kind} ({self.platform})"
        several = f"{self.count} x " if self.count > 1 else ""
        each = " each" if self.count > 1 else ""
        hosts = f", {self.processes} processes" if self.processes > 1 else ""
        return (
            f"device {several}{name}, {self.memory_bytes / _GIB:.1f} GiB{each}{hosts}, "
            f"matrix products {self.matmul_precision}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, JSON-ready."""
        return asdict(self)


def devices() -> Devices:
    """Return the devices of this process; the first call starts the backend of JAX."""
    first, precision = jax.local_devices()[0], jax.config.jax_default_matmul_precision
    # usable memory of a JAX device [bytes]
    limit = (first.memory_stats() or {}).get("bytes_limit")
    return Devices(
        first.platform,
        first.device_kind,
        jax.device_count(),
        jax.process_count(),
        int(limit) if limit else _host_memory_bytes() // jax.local_device_count(),
        str(precision),
    )


def _host_memory_bytes() -> int:
    """Return the free memory of this machine [bytes], or the limit of the container if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = [
        int(line.split()[1]) * 1024 for line in _text("/proc/meminfo").splitlines() if line.startswith("MemAvailable:")
    ]
    granted = _text("/sys/fs/cgroup/memory.max").strip()
    return min(total, *free, int(granted) if granted.isdigit() else total)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""


for _type in (
    BrakeMonitorState,
    DeadlockState,
    ResolvedVelocity,
    LagResponse,
    MotionState,
    PeerTable,
    ReservedSpace,
    PeerReservations,
    ShieldResult,
    StoppingPoint,
    RightOfWay,
    PassageState,
    SensedBodies,
):
    jax.tree_util.register_dataclass(_type)
