"""Files of a training run; only process 0 accesses them and broadcasts their contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from tensorboardX import SummaryWriter

from testudo_deploy.files.atomic_files import write_whole
from testudo_policies.distributed import DevicePlacement, Learner, first, gather_agreement
from testudo_policies.learning.checkpoints import Checkpoints, blank_state, is_key, save_config
from testudo_policies.learning.train_state import TrainState
from testudo_policies.learning.wandb_run import WandbRun
from testudo_sim.devices import devices

_DEVICES = "devices.json"


class RunFiles:
    """Files of one run; every process calls the same methods in the same order."""

    def __init__(self, folder: Path, learner: Learner, placement: DevicePlacement) -> None:
        """Write the configuration and the devices of the run.

        Raises:
            CheckpointError: the folder holds another run, or cannot be written.
        """
        self._folder, self._learner, self._placement = folder, learner, placement
        self._checkpoints: Checkpoints | None = None  # only process 0 has them
        gather_agreement(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._checkpoints:
            self._checkpoints.close()

    @property
    def saved(self) -> list[int]:
        """Return the updates after which a checkpoint was saved."""
        return self._checkpoints.saved if self._checkpoints else []

    def restore(self, update: int | None = None) -> TrainState | None:
        """Return the newest checkpoint, or that after an update, with every array on its devices; None without one.

        Raises:
            CheckpointError: the checkpoint is of another configuration, or damaged.
        """
        blank = blank_state(self._learner)
        if self._placement.mesh is None:
            return self._restored(blank, update)
        data = gather_agreement(lambda: _pack(self._restored(blank, update)))
        return self._placement.put(self._learner, _unpack(blank, data)) if data else None

    def _restored(self, blank: TrainState, update: int | None) -> TrainState | None:
        return self._checkpoints.restore(blank, update) if self._checkpoints else None

    def save(self, update: int, state: TrainState) -> None:
        """Save the state after its ``update``-th update."""
        whole = self._placement.gather(state)
        if self._checkpoints:
            self._checkpoints.save(update, whole)

    def log(self, updates: int) -> AbstractContextManager[MetricsLog | None]:
        """Return the metrics log, continued after ``updates`` updates; None in other processes than 0."""
        return MetricsLog(self._folder, updates, asdict(self._learner.config)) if first() else nullcontext()

    def _open(self) -> bytes:
        save_config(self._folder, self._learner.config)
        values = {**devices().to_dict(), "in_use": self._placement.count}
        (self._folder / _DEVICES).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        self._checkpoints = Checkpoints(self._folder)
        return b""


def _pack(state: Any) -> bytes:
    """Return the bytes of all leaves; empty for None."""
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


NAME = "metrics.jsonl"
BOARD = "tensorboard"


class MetricsLog:
    """Writes each update of a run folder once, also after a resume.

    As a line to ``metrics.jsonl``, and for TensorBoard to ``tensorboard/``, over the number of decisions; to Weights &
    Biases where it was asked for.
    """

    def __init__(self, folder: Path, updates: int, config: Mapping[str, Any] | None = None) -> None:
        """Open the log of a run after ``updates`` updates; later lines, of lost updates, are removed.

        ``config`` is shown in Weights & Biases, if anybody asked for it, see `wandb_run`.
        """
        self._wandb = WandbRun(folder, config or {})
        path = folder / NAME
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = [line for line in before.splitlines() if _update_of(line) <= updates]
        kept = "".join(line + "\n" for line in lines)
        if kept != before:
            write_whole(path, kept)
        self._last = _update_of(lines[-1]) if lines else 0
        self._earlier_s = float(json.loads(lines[-1]).get("seconds", 0.0)) if lines else 0.0
        self.earlier: tuple[Mapping[str, float], ...] = tuple(json.loads(line) for line in lines)
        """The kept lines, oldest first."""
        self._file = path.open("a", encoding="utf-8")
        again = json.loads(lines[-1])["decisions"] + 1 if lines else None  # TensorBoard drops what it has from there on
        suffix = f".{self._last:.0f}"  # a run that goes on within a second would write over the file
        self._board = SummaryWriter(str(folder / BOARD), purge_step=again, filename_suffix=suffix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._file.close()
        self._board.close()
        self._wandb.close()

    def write(self, update: int, decisions: int, seconds: float, values: Mapping[str, Any]) -> None:
        """Append an update unless it is logged already; ``seconds`` of this session are added to earlier ones."""
        if update <= self._last:
            return
        row = {"update": update, "decisions": decisions, "seconds": self._earlier_s + seconds}
        self._file.write(json.dumps({**row, **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._board.add_scalar(name, value, decisions)
        self._wandb.log(values, decisions)
        self._last = update


def _update_of(line: str) -> float:
    """Return the update of a line; infinity for an incomplete line."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
