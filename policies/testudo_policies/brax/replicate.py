"""`jax.device_put_replicated`, which brax 0.14 calls and JAX 0.12 no longer has, for as long as brax runs.

A test tells when either of the two makes this file superfluous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

NAME = "device_put_replicated"
_AXIS = "i"
"""What brax calls the axis of its devices; under another name JAX would compile its programs twice."""


def device_put_replicated(value: Any, devices: Sequence[jax.Device]) -> Any:
    """Return every array of a tree once for each device: leaves (devices, ...), one row on each."""
    sharding = NamedSharding(Mesh(list(devices), (_AXIS,)), PartitionSpec(_AXIS))

    def replicated(leaf: Any) -> jax.Array:
        array = jnp.asarray(leaf)
        return jax.device_put(jnp.broadcast_to(array, (len(devices), *array.shape)), sharding)

    return jax.tree.map(replicated, value)


@contextmanager
def replication_for_brax() -> Iterator[None]:
    """Give JAX the function, and take it away again; a JAX that has it keeps its own."""
    if hasattr(jax, NAME):
        yield
        return
    setattr(jax, NAME, device_put_replicated)
    try:
        yield
    finally:
        delattr(jax, NAME)
