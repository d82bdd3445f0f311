"""The actor read back out of an exported graph, where the run folder with its checkpoint is gone.

The graph holds everything that acts: dense layers in the order in which the network applies them, the spread of the
actions, and mean and deviation of the features. The critic is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.rules import COMMAND, HIDDEN, HIDDEN_NEXT
from testudo_hardware.errors import TestudoError
from testudo_policies.networks.agent import Agent, AgentParameters

_ENCODER = ("neighbour_1", "neighbour_2", "joined")
_MEMORY = ("ir", "hr", "iz", "hz", "in", "hn")
"""Layers of the GRU, in the order in which flax applies them."""
_TOLERANCE = 2e-5
"""Of the test vector [m/s]: the artefact itself was proven to as much."""


class GraphError(TestudoError):
    """The graph is not one of our networks, or is of other sizes than its contract says."""


@dataclass(frozen=True)
class _Dense:
    kernel: np.ndarray
    bias: np.ndarray | None


def parameters_of_graph(model: onnx.ModelProto, blank: AgentParameters, observed: int) -> AgentParameters:
    """Return ``blank`` with actor and statistics of an exported graph.

    Args:
        model: the artefact's graph.
        blank: parameters of the same sizes; the critic is kept.
        observed: features that the statistics count as seen, so that new ones move them little.

    Raises:
        GraphError: there are other layers in the graph than the actor has.
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    layers = _dense_layers(model, values)
    actor = jax.tree.map(np.asarray, blank.actor)["params"]
    places = [("encoder", name) for name in _ENCODER]
    places += [("memory", name) for name in _MEMORY] if "memory" in actor else []
    places += [("head",), ("mean",)]
    if len(places) != len(layers):
        raise GraphError(f"policy graph: found {len(layers)} dense layers, expected {len(places)}")
    used: set[int] = set()
    for path, layer in zip(places, layers, strict=True):
        actor = _with(actor, path, layer)
        used |= {id(layer.kernel), id(layer.bias)}
    actor = {**actor, "scale": _scale(model, values, used, actor["scale"].shape)}
    own, neighbours = _statistics(model, values, blank, observed)
    return replace(
        blank, actor=jax.tree.map(jnp.asarray, {"params": actor}), own_statistics=own, neighbour_statistics=neighbours
    )


def error_on_test_vector(agent: Agent, parameters: AgentParameters, contract: Contract) -> float:
    """Return the largest deviation [m/s, or unit of memory] from what the artefact promises to answer."""
    inputs, outputs = (
        {name: np.asarray(value, np.float32) for name, value in values.items()}
        for values in (contract.test_vector.inputs, contract.test_vector.outputs)
    )
    signals = {name: jnp.asarray(value) for name, value in inputs.items() if name != HIDDEN}
    rows = len(next(iter(signals.values())))
    hidden = jnp.asarray(inputs.get(HIDDEN, np.zeros((rows, 0), np.float32)))
    command, hidden = agent.policy(parameters)(signals, hidden)
    found = {COMMAND: command} | ({HIDDEN_NEXT: hidden} if HIDDEN_NEXT in outputs else {})
    return max(float(np.max(np.abs(np.asarray(value) - outputs[name]))) for name, value in found.items())


def matches(agent: Agent, parameters: AgentParameters, contract: Contract) -> bool:
    """Return whether parameters answer the artefact's test vector as the artefact does."""
    return error_on_test_vector(agent, parameters, contract) <= _TOLERANCE


def _dense_layers(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[_Dense]:
    """Return the layers in the order of the graph, which is that of the network."""
    added = {
        node.input[0]: node.input[1] for node in model.graph.node if node.op_type == "Add" and node.input[1] in values
    }
    found = []
    for node in model.graph.node:
        if node.op_type not in {"MatMul", "Gemm"} or node.input[1] not in values:
            continue
        kernel = values[node.input[1]]
        if node.op_type == "Gemm" and _attribute(node, "transB"):
            kernel = kernel.T
        name = node.input[2] if len(node.input) > 2 else added.get(node.output[0]) if node.op_type == "MatMul" else None
        found.append(_Dense(kernel, values.get(name) if name else None))
    return found


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((int(helper.get_attribute_value(item)) for item in node.attribute if item.name == name), 0)


def _with(tree: Mapping[str, Any], path: tuple[str, ...], layer: _Dense) -> dict[str, Any]:
    """Return the tree of parameters with a layer in its place."""
    head, *rest = path
    if rest:
        return {**tree, head: _with(tree[head], tuple(rest), layer)}
    old = tree[head]
    found = {"kernel": layer.kernel} | ({"bias": layer.bias} if layer.bias is not None else {})
    if {name: value.shape for name, value in found.items()} != {name: value.shape for name, value in old.items()}:
        raise GraphError(
            f"policy graph: layer {head}: found "
            f"{', '.join(f'{name} {value.shape}' for name, value in found.items())}, expected "
            f"{', '.join(f'{name} {value.shape}' for name, value in old.items())}"
        )
    return {**tree, head: found}


def _scale(
    model: onnx.ModelProto, values: Mapping[str, np.ndarray], used: set[int], shape: tuple[int, ...]
) -> np.ndarray:
    """Return the raw spread of the actions: the one vector of their size that is no layer's."""
    inputs = {name for node in model.graph.node if node.op_type in {"Unsqueeze", "Expand"} for name in node.input[:1]}
    found = [
        value
        for name, value in values.items()
        if value.dtype == np.float32 and value.shape == shape and id(value) not in used and name in inputs
    ]
    if len(found) != 1:
        raise GraphError(f"policy graph: found {len(found)} candidates for the spread of the actions, expected 1")
    return found[0]


def _statistics(
    model: onnx.ModelProto, values: Mapping[str, np.ndarray], blank: AgentParameters, observed: int
) -> tuple[Any, Any]:
    """Return the statistics of own and neighbour features: a difference and a quotient by constants."""
    divided = {
        node.input[0]: values[node.input[1]]
        for node in model.graph.node
        if node.op_type == "Div" and node.input[1] in values
    }
    pairs = [
        (values[node.input[1]].reshape(-1), divided[node.output[0]].reshape(-1))
        for node in model.graph.node
        if node.op_type == "Sub" and node.input[1] in values and node.output[0] in divided
    ]
    made = []
    for old in (blank.own_statistics, blank.neighbour_statistics):
        fitting = [pair for pair in pairs if pair[0].shape == old.mean.shape]
        if not fitting:
            raise GraphError(f"policy graph: no normalisation of {old.mean.shape[0]} features in it")
        mean, deviation = fitting[0]
        pairs = [pair for pair in pairs if pair is not fitting[0]]
        made.append(
            old.replace(
                mean=jnp.asarray(mean),
                std=jnp.asarray(deviation),
                count=old.count.replace(lo=observed),
                summed_variance=jnp.asarray(deviation**2 * observed, jnp.float32),
            )
        )
    return made[0], made[1]
