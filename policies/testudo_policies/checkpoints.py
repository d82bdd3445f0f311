"""Checkpoints with exact resume: Orbax for the arrays, the configuration as JSON beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from testudo_hardware.errors import TestudoError
from testudo_policies.config import TrainConfig

_FORMAT = "testudo/training/1"


class CheckpointError(TestudoError):
    """A run folder holds no checkpoint, or one that does not fit."""


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self._folder = folder
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True,
                                               enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager((folder / "checkpoints").resolve(), options=options)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *unused: object) -> None:
        self._manager.wait_until_finished()
        self._manager.close()

    def save(self, update: int, state: Any) -> None:
        """Save a state after its ``update``-th update; a second save of the same update is ignored."""
        if self._manager.latest_step() == update:
            return
        self._manager.save(update, args=ocp.args.StandardSave(_leaves(state)))

    def restore(self, like: Any) -> Any | None:
        """Return the newest state, shaped like ``like``, or None if there is none yet.

        Raises:
            CheckpointError: the checkpoint has other shapes, so it is of another configuration.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        plain = _leaves(like)
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, plain)
        try:
            restored = self._manager.restore(step, args=ocp.args.StandardRestore(target))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self._folder}: checkpoint {step} does not fit this configuration: "
                                  f"{str(error)[:200]}") from error
        return _rebuilt(like, restored)


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write the configuration into a run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": _FORMAT, **asdict(config)}, indent=2)
    (folder / "config.json").write_text(text + "\n")


def load_config(folder: Path) -> TrainConfig:
    """Read the configuration of a run folder.

    Raises:
        CheckpointError: the folder is no training run.
    """
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise CheckpointError(f"{folder}: no training run: config.json is missing; "
                              "give a folder that `testudo train` wrote") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    known = {field.name for field in fields(TrainConfig)}
    if values.pop("format", None) != _FORMAT or set(values) != known:
        raise CheckpointError(f"{path}: not a configuration of this version ({_FORMAT}); train again")
    return TrainConfig(**values)


def _leaves(state: Any) -> dict[str, jax.Array]:
    """Return the leaves by path: random keys as integers, empty arrays (no storage takes them) left out."""
    named = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    return {name: jax.random.key_data(leaf) if _is_key(leaf) else leaf
            for name, leaf in named.items() if leaf.size}


def _rebuilt(like: Any, leaves: dict[str, jax.Array]) -> Any:
    def leaf(path: Any, old: jax.Array) -> jax.Array:
        new = leaves.get(jax.tree_util.keystr(path), old)
        return jax.random.wrap_key_data(new) if _is_key(old) else new
    return jax.tree_util.tree_map_with_path(leaf, like)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
