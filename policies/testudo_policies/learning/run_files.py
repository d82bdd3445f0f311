"""What a run keeps in its folder: process 0 alone reads and writes it, and tells the others."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from testudo_policies.distributed.process_group import first, gather_agreement
from testudo_policies.distributed.sharding import DevicePlacement
from testudo_policies.learning.checkpoints import Checkpoints, blank_state, is_key, save_config
from testudo_policies.learning.metrics_log import MetricsLog
from testudo_policies.learning.ppo import PPO, TrainState
from testudo_sim.devices import devices

_DEVICES = "devices.json"


class RunFiles:
    """The files of one run; every process calls the same methods in the same order."""

    def __init__(self, folder: Path, ppo: PPO, placement: DevicePlacement) -> None:
        """Write the configuration, and what the run computes on.

        Raises:
            CheckpointError: the folder holds another run, or cannot be written.
        """
        self._folder, self._ppo, self._placement = folder, ppo, placement
        self._checkpoints: Checkpoints | None = None
        gather_agreement(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._checkpoints:
            self._checkpoints.close()

    def restore(self) -> TrainState | None:
        """Return the newest checkpoint, every array in its place; None if there is none yet.

        Raises:
            CheckpointError: the checkpoint is of another configuration, or damaged.
        """
        blank = blank_state(self._ppo)
        if self._placement.mesh is None:
            return self._checkpoints.restore(blank)
        data = gather_agreement(lambda: _pack(self._checkpoints.restore(blank)))
        return self._placement.put(self._ppo, _unpack(blank, data)) if data else None

    def save(self, update: int, state: TrainState) -> None:
        """Save the state after its ``update``-th update."""
        whole = self._placement.gather(state)
        if self._checkpoints:
            self._checkpoints.save(update, whole)

    def log(self, updates: int) -> AbstractContextManager[MetricsLog | None]:
        """Return the log of metrics from an update on; None in the other processes."""
        return MetricsLog(self._folder, updates) if first() else nullcontext()

    def _open(self) -> bytes:
        save_config(self._folder, self._ppo.config)
        values = {**devices().to_dict(), "in_use": self._placement.count}
        (self._folder / _DEVICES).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        self._checkpoints = Checkpoints(self._folder)
        return b""


def _pack(state: Any) -> bytes:
    """Return all leaves one after the other; nothing for no state."""
    return b"".join(np.asarray(_plain(leaf)).tobytes() for leaf in jax.tree_util.tree_leaves(state))


def _unpack(like: Any, data: bytes) -> Any:
    leaves, at = [], 0
    for leaf in jax.tree_util.tree_leaves(like):
        plain = _plain(leaf)
        values = np.frombuffer(data, plain.dtype, plain.size, at).reshape(plain.shape)
        at += values.nbytes
        leaves.append(jax.random.wrap_key_data(jax.numpy.asarray(values)) if is_key(leaf) else values)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def _plain(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if is_key(leaf) else leaf
