"""Runs a policy file for all robots of many worlds in one batch, with the runtime of the robots."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from testudo_deploy.contract.onnx_policy import open_session
from testudo_deploy.contract.policy_archive import policy_bytes
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import HIDDEN, graph_inputs, graph_outputs

BatchPolicy = Callable[[Mapping[str, jax.Array], jax.Array], tuple[Any, Any]]
"""(signals (B, ...), hidden (B, M)) -> arrays (velocity (B, D), hidden (B, M)); B robots of all worlds.

A learned message comes after the velocity, in the same array.
"""


def by_world(command: Any, size: int) -> np.ndarray:
    """Return the commands (C, N, E) of teams of ``size`` robots, from those of a batch policy (E N, C)."""
    return np.asarray(command).reshape(-1, size, np.shape(command)[-1]).transpose(2, 1, 0)


def artefact_policy(artefact: PolicyArtefact) -> BatchPolicy:
    """Return a policy file as a batch policy.

    Raises:
        ArtefactError: the runtime refuses the file.
    """
    contract, path = artefact.contract, artefact.path
    session = open_session(policy_bytes(path), artefact.header, str(path))
    inputs, outputs = list(graph_inputs(contract)), list(graph_outputs(contract))
    said = bool(contract.command.message_size)

    def policy(signals: Mapping[str, jax.Array], hidden: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        values = {**signals, HIDDEN: hidden}
        feeds = {name: np.asarray(values[name], np.float32) for name in inputs}
        found = [np.asarray(value) for value in session.run(outputs, feeds)]
        command = np.concatenate(found[:2], axis=-1) if said else found[0]
        return command, found[-1] if contract.hidden_size else np.asarray(hidden)

    return policy
