"""Checkpoints with exact resume: arrays by Orbax, the configuration as JSON."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import read_as
from testudo_policies.distributed import Learner, gather_agreement
from testudo_policies.learning.train_state import TrainState
from testudo_policies.train_config import TrainConfig

_FORMAT = "testudo/training/1"
_CONFIG = "config.json"
_PROCESS_0_ONLY = ocp.options.MultiprocessingOptions(active_processes={0}, barrier_sync_key_prefix="testudo")
"""With several processes only process 0 accesses files."""


class CheckpointError(TestudoError):
    """A run folder contains no checkpoint, or one that does not match."""


class Checkpoints:
    """The checkpoints of one run folder; ``reading`` creates no files."""

    def __init__(self, folder: Path, *, reading: bool = False, keep: int = 2) -> None:
        self._folder = folder
        several = jax.process_count() > 1
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            create=not reading and not several,
            enable_async_checkpointing=False,
            multiprocessing_options=_PROCESS_0_ONLY if several else ocp.options.MultiprocessingOptions(),
        )
        if several and not reading:  # Orbax creates folders only with all processes
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
        """Wait until all checkpoints are written."""
        self._manager.wait_until_finished()
        self._manager.close()

    def save(self, update: int, state: Any) -> None:
        """Save a state after its ``update``-th update; a second save of the same update is ignored.

        Ctrl-C during the save takes effect when the save is complete.
        """
        if self._manager.latest_step() == update:
            return
        with ctrl_c_waits():
            self._manager.save(update, args=ocp.args.StandardSave(_leaves(state)))

    @property
    def saved(self) -> list[int]:
        """Return the updates after which a state was saved."""
        return sorted(self._manager.all_steps())

    def restore(self, like: Any, update: int | None = None) -> Any | None:
        """Return the newest state, or that after an update, as ``like`` is; None without a checkpoint.

        Raises:
            CheckpointError: the checkpoint is of another configuration, or damaged.
        """
        step = self._manager.latest_step() if update is None else update
        if step is None:
            return None
        plain = _leaves(like)
        self._check_fit(step, plain)
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, plain)
        try:
            restored = self._manager.restore(step, args=ocp.args.StandardRestore(target))
        except Exception as error:
            raise self._damaged(step, error) from error
        return _rebuilt(like, cast(dict[str, jax.Array], restored))

    def _check_fit(self, step: int, plain: dict[str, jax.Array]) -> None:
        """Compare names, shapes and types, because Orbax would cast, or fail with an unreadable error."""
        try:
            stored = self._manager.item_metadata(step).tree
        except Exception as error:
            raise self._damaged(step, error) from error
        found = {name: _outline(item) for name, item in stored.items()}
        expected = {name: _outline(item) for name, item in plain.items()}
        for name in sorted(set(found) | set(expected)):
            if found.get(name) != expected.get(name):
                raise CheckpointError(
                    f"{self._folder}: checkpoint {step} is of another configuration: {name}: found "
                    f"{found.get(name, 'nothing')}, expected {expected.get(name, 'nothing')}"
                )

    def _damaged(self, step: int, error: Exception) -> CheckpointError:
        reason = str(error).strip().partition("\n")[0][:120]
        return CheckpointError(
            f"{self._folder}: checkpoint {step} is damaged ({type(error).__name__}: {reason}); "
            f"remove {self._folder / 'checkpoints' / str(step)} to resume from the previous one"
        )


def updates_made(folder: Path) -> int:
    """Return the update of the newest checkpoint of a run folder; 0 without one."""
    with Checkpoints(folder, reading=True) as checkpoints:
        return max(checkpoints.saved, default=0)


def save_config(folder: Path, config: TrainConfig) -> None:
    """Write the configuration into a run folder; an existing one must be equal.

    Raises:
        CheckpointError: the folder holds a run with another configuration, or cannot be written.
    """
    path = folder / _CONFIG
    if path.exists():
        found, expected = asdict(load_config(folder)), asdict(config)
        other = [name for name, value in expected.items() if found[name] != value]
        if other:
            raise CheckpointError(
                f"{folder}: holds a run with another configuration: {other[0]}: found "
                f"{found[other[0]]!r}, expected {expected[other[0]]!r}; give another folder, or resume the run "
                f"with `testudo train --run {folder}`"
            )
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_config(path, config)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be written: {error.strerror}") from error


def load_config(folder: Path) -> TrainConfig:
    """Read the configuration of a run folder.

    Raises:
        CheckpointError: the folder is not a training run, or its configuration is invalid.
    """
    path = folder / _CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(
            f"{folder}: not a training run: {_CONFIG} is missing; give a run folder of `testudo train`"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    return _read(values, str(path))


def read_config_file(path: Path) -> TrainConfig:
    """Read a configuration from the file of a run or of a sweep, or from a run folder.

    Raises:
        CheckpointError: there is none, or it is invalid.
    """
    if path.is_dir():
        return load_config(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: found no configuration, expected config.json of a run or a folder") from error
    return _read(values, str(path))


def write_config(path: Path, config: TrainConfig) -> None:
    """Write a configuration as `read_config_file` reads it."""
    write_whole(path, _text(config) + "\n")


def shared_config(choose: Callable[[], TrainConfig]) -> TrainConfig:
    """Return, in all processes, the configuration that process 0 chooses; only process 0 needs the run folder.

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
    """Defer Ctrl-C until the end of the block.

    Orbax writes in threads, which would overlap with the next save; an update and its metrics must stay together.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    received: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: received.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        before(*received[0])


def blank_state(learner: Learner) -> TrainState:
    """Return zeros with the shapes and types of a run's state, as a target for restoring."""
    like = learner.start.eval_shape(jax.random.key(learner.config.seed))
    return cast(TrainState, jax.tree.map(_blank, like))


def _blank(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key(0)
    return jax.device_put(np.zeros(leaf.shape, leaf.dtype))  # `jnp.zeros` compiles a program for each shape


def _leaves(state: Any) -> dict[str, jax.Array]:
    """Return the leaves by path: random keys as integers, without empty arrays, which Orbax cannot store.

    With several processes they are NumPy arrays: Orbax would treat JAX arrays as parts of larger ones.
    """
    named = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    plain = {name: jax.random.key_data(leaf) if is_key(leaf) else leaf for name, leaf in named.items() if leaf.size}
    return plain if jax.process_count() == 1 else {name: np.asarray(leaf) for name, leaf in plain.items()}


def _rebuilt(like: Any, leaves: dict[str, jax.Array]) -> Any:
    def leaf(path: Any, old: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if name not in leaves:
            return old
        # through NumPy, because Orbax returns arrays bound to a device, for which JAX would compile another
        # program than for a fresh state
        new = jax.device_put(np.asarray(leaves[name]))
        return jax.random.wrap_key_data(new) if is_key(old) else new

    return jax.tree_util.tree_map_with_path(leaf, like)


def is_key(value: Any) -> bool:
    """Return whether a value is an array of random keys."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _outline(array: Any) -> str:
    """Return type and shape as text, for arrays and for Orbax metadata."""
    return f"{array.dtype}{list(array.shape)}"
