"""Checkpoints with exact resume: Orbax for the arrays, the configuration as JSON beside them."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp

from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_hardware.files.strict_json import read_as
from testudo_policies.distributed.process_group import gather_agreement
from testudo_policies.learning.ppo import PPO, TrainState
from testudo_policies.train_config import TrainConfig

_FORMAT = "testudo/training/1"
_CONFIG = "config.json"
_ALONE = ocp.options.MultiprocessingOptions(active_processes={0}, barrier_sync_key_prefix="testudo")
"""Of several processes only the first touches files."""


class CheckpointError(TestudoError):
    """A run folder holds no checkpoint, or one that does not fit."""


class Checkpoints:
    """The checkpoints of one run folder; to read, nothing is made there."""

    def __init__(self, folder: Path, *, reading: bool = False, keep: int = 2) -> None:
        self._folder = folder
        several = jax.process_count() > 1
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            create=not reading and not several,
            enable_async_checkpointing=False,
            multiprocessing_options=_ALONE if several else ocp.options.MultiprocessingOptions(),
        )
        if several and not reading:  # Orbax makes folders only with all processes
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(
            (folder / "checkpoints").resolve(),
            options=options,
            item_handlers=ocp.StandardCheckpointHandler(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait until all is written."""
        self._manager.wait_until_finished()
        self._manager.close()

    def save(self, update: int, state: Any) -> None:
        """Save a state after its ``update``-th update; a second save of the same is ignored.

        A Ctrl-C meanwhile is heard when all is written.
        """
        if self._manager.latest_step() == update:
            return
        with ctrl_c_waits():
            self._manager.save(update, args=ocp.args.StandardSave(_leaves(state)))

    def restore(self, like: Any) -> Any | None:
        """Return the newest state, shaped like ``like``, or None if there is none yet.

        Raises:
            CheckpointError: the checkpoint is of another configuration, or damaged.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        plain = _leaves(like)
        self._check_fit(step, plain)
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, plain)
        try:
            restored = self._manager.restore(step, args=ocp.args.StandardRestore(target))
        except Exception as error:
            raise self._damaged(step, error) from error
        return _rebuilt(like, restored)

    def _check_fit(self, step: int, plain: dict[str, jax.Array]) -> None:
        """Compare names, shapes and types first: Orbax would cast, or fail with pages of text."""
        try:
            stored = self._manager.item_metadata(step).tree
        except Exception as error:
            raise self._damaged(step, error) from error
        found = {name: _outline(item) for name, item in stored.items()}
        wanted = {name: _outline(item) for name, item in plain.items()}
        for name in sorted(set(found) | set(wanted)):
            if found.get(name) != wanted.get(name):
                raise CheckpointError(
                    f"{self._folder}: checkpoint {step} is of another configuration: {name}: found "
                    f"{found.get(name, 'nothing')}, expected {wanted.get(name, 'nothing')}"
                )

    def _damaged(self, step: int, error: Exception) -> CheckpointError:
        reason = str(error).strip().partition("\n")[0][:120]
        return CheckpointError(
            f"{self._folder}: checkpoint {step} is damaged ({type(error).__name__}: {reason}); "
            f"remove {self._folder / 'checkpoints' / str(step)} to go on from the one before"
        )


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write the configuration into a run folder; one that is there must be the same.

    Raises:
        CheckpointError: the folder holds a run with another configuration, or cannot be written.
    """
    path = folder / _CONFIG
    if path.exists():
        found, wanted = asdict(load_config(folder)), asdict(config)
        other = [name for name, value in wanted.items() if found[name] != value]
        if other:
            raise CheckpointError(
                f"{folder}: holds a run with another configuration ({other[0]} is "
                f"{found[other[0]]!r}, not {wanted[other[0]]!r}); give another folder, or go on "
                f"with `testudo train --run {folder}`"
            )
        return
    text = _text(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text + "\n")
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be written: {error.strerror}") from error


def load_config(folder: Path) -> TrainConfig:
    """Read the configuration of a run folder.

    Raises:
        CheckpointError: the folder is no training run, or its configuration does not hold.
    """
    path = folder / _CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{folder}: no training run: {_CONFIG} is missing; give a folder that `testudo train` wrote"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    return _read(values, str(path))


def shared_config(choose: Callable[[], TrainConfig]) -> TrainConfig:
    """Return the configuration that process 0 chooses, in all processes; the folder may be its alone.

    Raises:
        TestudoError: what ``choose`` raises.
    """
    if jax.process_count() == 1:
        return choose()
    return _read(json.loads(gather_agreement(lambda: _text(choose()).encode())), "process 0")


def _text(config: TrainConfig) -> str:
    return json.dumps({"format": _FORMAT, **asdict(config)}, indent=2)


def _read(values: Any, where: str) -> TrainConfig:
    version = values.pop("format", None) if isinstance(values, dict) else None
    if version != _FORMAT:
        raise CheckpointError(
            f"{where}: format: found {version!r}, expected {_FORMAT!r}; train again with this version"
        )
    config: TrainConfig = read_as(TrainConfig, values, where, CheckpointError)
    return config


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Hold a Ctrl-C back until what must not be torn apart is done.

    Orbax writes in threads, which would go on below the next save; an update and its metrics belong together.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    arrived: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *received: arrived.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if arrived:
        before(*arrived[0])


def blank_state(ppo: PPO) -> TrainState:
    """Return zeros of the shapes and types of a run's state, to restore into."""
    like = ppo.start.eval_shape(jax.random.key(ppo.config.seed))
    return jax.tree.map(_blank, like)


def _blank(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    return jax.numpy.zeros(leaf.shape, leaf.dtype)


def _leaves(state: Any) -> dict[str, jax.Array]:
    """Return the leaves by path: random keys as integers, empty arrays (no storage takes them) left out.

    Where there are several processes they are NumPy's: Orbax would take JAX's for a part of a larger array.
    """
    named = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    plain = {name: jax.random.key_data(leaf) if is_key(leaf) else leaf for name, leaf in named.items() if leaf.size}
    return plain if jax.process_count() == 1 else {name: np.asarray(leaf) for name, leaf in plain.items()}


def _rebuilt(like: Any, leaves: dict[str, jax.Array]) -> Any:
    def leaf(path: Any, old: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if name not in leaves:
            return old
        # by way of NumPy: what Orbax returns is bound to its device, and JAX would compile another
        # program for it than for a fresh state
        new = jax.numpy.asarray(np.asarray(leaves[name]))
        return jax.random.wrap_key_data(new) if is_key(old) else new

    return jax.tree_util.tree_map_with_path(leaf, like)


def is_key(value: Any) -> bool:
    """Return whether a value is an array of random keys."""
    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _outline(array: Any) -> str:
    """Return type and shape as text, for arrays and for what Orbax knows of them."""
    return f"{array.dtype}{list(array.shape)}"
