"""Where the arrays of a training run live: worlds spread over the devices, all else on each of them.

XLA splits the update by itself; what is written here is only which arrays it may split, and along which axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from testudo_hardware.errors import TestudoError
from testudo_policies.train_config import TrainConfig

AXIS = "worlds"


class Learner(Protocol):
    """What is placed on the devices: the start of a learner's state, a tree of arrays."""

    config: TrainConfig

    def init(self, key: jax.Array) -> Any:
        """Return the state before the first update."""
        ...

    def start(self, key: jax.Array) -> Any:
        """Return the state before the first update, compiled for one device."""
        ...


@dataclass(frozen=True)
class DevicePlacement:
    """The devices of a run."""

    mesh: Mesh | None = None
    """One axis, `worlds`; None where one device does all, and nothing needs to be said."""

    @classmethod
    def create(cls, config: TrainConfig, devices: list[jax.Device] | None = None) -> DevicePlacement:
        """Return the placement on the given devices, by default on all, also those of other processes.

        In one process, devices that would not get an equal share are left out.

        Raises:
            TestudoError: several processes, and the worlds cannot be shared out equally.
        """
        chosen = jax.devices() if devices is None else devices
        most = cls.shares(config, len(chosen))
        if most < len(chosen) and jax.process_count() > 1:
            raise TestudoError(
                f"--worlds: {config.worlds} worlds x {config.team_size} robots in {config.minibatches} "
                f"minibatches cannot be shared out equally to {len(chosen)} devices"
            )
        if most == 1 and jax.process_count() == 1:
            return cls()
        return cls(Mesh(np.array(chosen[:most]), (AXIS,)))

    @staticmethod
    def shares(config: TrainConfig, available: int) -> int:
        """Return how many devices can have an equal share of the worlds and of each minibatch."""
        share = config.worlds * config.team_size // config.minibatches
        return max(n for n in range(1, available + 1) if config.worlds % n == 0 and share % n == 0)

    @property
    def count(self) -> int:
        """Return the number of devices in use."""
        return self.mesh.size if self.mesh else 1

    def start(self, learner: Learner) -> Any:
        """Return the state before the first update, every array in its place."""
        key = jax.random.key(learner.config.seed)
        if self.mesh is None:
            return learner.start(key)
        return jax.jit(learner.init, out_shardings=self.places(learner))(key)

    def places(self, learner: Learner) -> Any:
        """Return the sharding of every array of the state, as a tree; None for one device."""
        if self.mesh is None:
            return None
        once, twice = (_outline(learner, times * learner.config.worlds) for times in (1, 2))
        return jax.tree.map(self._place, once, twice)

    def put(self, learner: Learner, state: Any) -> Any:
        """Return a state of this machine's memory, the same in every process, with every array in its place."""
        if self.mesh is None:
            return state
        return jax.tree.map(_put, state, self.places(learner))

    def gather(self, tree: Any) -> Any:
        """Return the whole arrays in the memory of this process; all processes must take part."""
        if self.mesh is None:
            return tree
        everywhere = jax.jit(lambda x: x, out_shardings=NamedSharding(self.mesh, PartitionSpec()))(tree)
        return jax.tree.map(lambda x: x.addressable_data(0), everywhere)

    def _place(self, once: jax.ShapeDtypeStruct, twice: jax.ShapeDtypeStruct) -> NamedSharding:
        """Return where an array belongs: the axis that grows with the worlds is split."""
        spec = [AXIS if a != b else None for a, b in zip(once.shape, twice.shape, strict=True)]
        return NamedSharding(self.mesh, PartitionSpec(*spec))


def split(tree: Any, mesh: Mesh | None, axis: int) -> Any:
    """Keep arrays spread over the devices along an axis: without being told, XLA would copy them to all."""
    if mesh is None:
        return tree
    place = NamedSharding(mesh, PartitionSpec(*[None] * axis, AXIS))
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, place), tree)


def _outline(learner: Learner, worlds: int) -> Any:
    larger = replace(learner, config=replace(learner.config, worlds=worlds))
    return jax.eval_shape(larger.init, jax.random.key(0))


def _put(leaf: jax.Array, place: NamedSharding) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(leaf), NamedSharding(place.mesh, PartitionSpec())))
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, place, lambda index: whole[index])
