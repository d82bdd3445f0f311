"""A dataset as a vault of flashbax, the format of Off-the-Grid MARL: arrays (1, T, ...) in TensorStore.

`flashbax.vault.Vault(rel_dir=..., vault_name="team.vlt", vault_uid="Replay").read()` returns them as the experience of
a buffer; the uid is the name of the composition.
"""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flashbax.vault
import jax.numpy as jnp
import numpy as np
from flashbax.buffers.trajectory_buffer import TrajectoryBufferState

from testudo_hardware.errors import TestudoError
from testudo_runs.recording.write import whole_folder

ENDING = ".vlt"


def save_vault(folder: Path, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> int:
    """Write the vault, whole or not at all, and return the number of transitions.

    ``card`` is the dataset card, which is kept as the vault's metadata.

    Raises:
        TestudoError: the folder exists or cannot be written.
    """
    if folder.exists():
        raise TestudoError(f"{folder}: exists; expected the name of a new folder")
    experience = {name: jnp.asarray(values)[None] for name, values in arrays.items()}
    count = len(arrays["rewards"])
    state = TrajectoryBufferState(experience=experience, current_index=jnp.asarray(count), is_full=jnp.asarray(False))
    try:
        with whole_folder(folder) as partial, contextlib.redirect_stdout(io.StringIO()):  # it prints its path
            flashbax.vault.Vault(
                vault_name=partial.name,
                vault_uid=str(card["profile"]["name"]),
                rel_dir=str(partial.parent.resolve()),
                experience_structure=experience,
                metadata={"card": dict(card)},
            ).write(state, source_interval=(0, count))
    except OSError as error:
        raise TestudoError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return count
