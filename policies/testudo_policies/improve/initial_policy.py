"""Initial parameters of fine-tuning: from a checkpoint, else from the artefact's graph, else random.

The graph contains everything that acts: dense layers in the order in which the network applies them, the scale of the
actions, and mean and deviation of the features. It does not contain the critic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_archive import policy_bytes
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import COMMAND, HIDDEN, HIDDEN_NEXT
from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.train_config import TrainConfig, for_fine_tuning

CHECKPOINT, GRAPH, ANEW = "checkpoint", "graph", "anew"
_BESIDE = ("", "training")
"""Folders of checkpoints relative to the artefact, as `testudo export` and `testudo demo` write them."""
_CRITIC_UPDATES = 12  # number of first updates in which only an untrained critic learns


@dataclass(frozen=True)
class InitialPolicy:
    """The policy from which fine-tuning starts."""

    config: TrainConfig  # configuration of its training
    source: str  # `CHECKPOINT`, `GRAPH` or `ANEW`
    note: str  # description for the user
    parameters: AgentParameters | None = field(default=None, repr=False)

    @property
    def warm_up(self) -> int:
        """Return the number of updates in which only the critic learns."""
        return _CRITIC_UPDATES if self.source == GRAPH else 0


def find_initial_policy(artefact: PolicyArtefact, spec_file: Path) -> InitialPolicy:
    """Return the initial policy; the configuration's robot becomes ``spec_file``.

    A checkpoint or graph is used only if it reproduces the artefact's test vector.
    """
    config, known = config_of(artefact.contract)
    config = for_fine_tuning(replace(config, robot=str(spec_file), trainer="testudo", curriculum=False))
    for place in _BESIDE:
        folder = artefact.path.parent / place
        if (folder / "config.json").is_file():
            found = _from_checkpoint(folder, artefact.contract)
            if found is not None:
                return InitialPolicy(
                    replace(load_config(folder), robot=str(spec_file), trainer="testudo", curriculum=False),
                    CHECKPOINT,
                    f"the checkpoint in {folder}, critic included",
                    found,
                )
    if not known:
        return InitialPolicy(
            config, ANEW, "random parameters: the artefact does not contain its training configuration"
        )
    try:
        parameters = _from_graph(artefact, config)
    except TestudoError as error:
        return InitialPolicy(config, ANEW, f"random parameters: found no checkpoint of the artefact, and {error}")
    return InitialPolicy(
        config,
        GRAPH,
        "the weights in the artefact's graph, which has no critic: only the critic learns in the first updates",
        parameters,
    )


def config_of(contract: Contract) -> tuple[TrainConfig, bool]:
    """Return the training configuration in an artefact's provenance, and whether it is complete."""
    stored: Mapping[str, Any] = contract.provenance.get("config", {})
    names = {item.name for item in fields(TrainConfig)}
    known = {name: value for name, value in stored.items() if name in names}
    config = replace(TrainConfig(), **known) if known else TrainConfig()
    return replace(
        config, scenario=contract.scenario, memory=contract.hidden_size, team_size=max(contract.team_size, 2)
    ), "width" in known


def _from_checkpoint(folder: Path, contract: Contract) -> AgentParameters | None:
    """Return the parameters of a training run if they match the artefact, and have a critic of PPO; else None."""
    try:
        config = load_config(folder)
        if for_fine_tuning(config) != config:
            return None
        components = build(config)
        parameters = load_parameters(components, folder)
        return parameters if matches(components.agent, parameters, contract) else None
    except (TestudoError, ValueError, TypeError, KeyError):  # other sizes or another version
        return None


def _from_graph(artefact: PolicyArtefact, config: TrainConfig) -> AgentParameters:
    components = build(config)
    blank = components.learner.start(jax.random.key(config.seed)).parameters
    seen = min(config.decisions * config.team_size, 2**31)
    model = onnx.load_from_string(policy_bytes(artefact.path))
    parameters = parameters_of_graph(model, blank, seen, components.agent.groups)
    # the identified robot may have another top speed; the artefact's test vector uses the old one
    agent = replace(components.agent, speed_limit_m_s=artefact.contract.command.limit)
    if not matches(agent, parameters, artefact.contract):
        raise GraphError("the weights in its graph do not reproduce its test vector")
    return parameters


_ENCODER = ("neighbour_1", "neighbour_2", "joined")
_MEMORY = ("ir", "hr", "iz", "hz", "in", "hn")  # layers of the GRU, in the order in which flax applies them
_TOLERANCE = 2e-5  # tolerance on the test vector [m/s], as in the export's parity check


class GraphError(TestudoError):
    """The graph is not a network of this package, or its sizes contradict its contract."""


@dataclass(frozen=True)
class _Dense:
    kernel: np.ndarray
    bias: np.ndarray | None


def parameters_of_graph(
    model: onnx.ModelProto, blank: AgentParameters, observed: int, groups: tuple[int, ...] = ()
) -> AgentParameters:
    """Return ``blank`` with actor and feature statistics of an exported graph.

    Args:
        model: the artefact's graph.
        blank: parameters of the same sizes; its critic is kept.
        observed: sample count of the statistics, so that new samples change them little.
        groups: which parameters each robot has, see `Agent.groups`; the graph has the networks one after the other.

    Raises:
        GraphError: the layers of the graph differ from those of the actor.
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    layers, actor = _dense_layers(model, values), jax.tree.map(np.asarray, blank.actor)["params"]
    places: list[tuple[str, ...]] = [("encoder", name) for name in _ENCODER]
    places += [("memory", name) for name in _MEMORY] if "memory" in actor else []
    places += [("head",), ("mean",)]
    # as `Agent` applies them: that of the first robot, then that of each robot which has another than the one before
    order = [group for robot, group in enumerate(groups or (0,)) if robot == 0 or group != groups[robot - 1]]
    if len(places) * len(order) != len(layers):
        raise GraphError(f"policy graph: found {len(layers)} dense layers, expected {len(places) * len(order)}")
    used = {id(part) for layer in layers for part in (layer.kernel, layer.bias)}
    scales = _scales(model, values, used, actor["scale"].shape[-1:], len(order))
    found = {}
    for turn, group in enumerate(order):
        network = jax.tree.map(lambda x, group=group: x[group], actor) if groups else actor
        for path, layer in zip(places, layers[turn * len(places) :], strict=False):
            network = _with(network, path, layer)
        found[group] = {**network, "scale": scales[turn]}
    own, neighbours = _statistics(model, values, blank, observed)
    actor = jax.tree.map(lambda *x: np.stack(x), *(found[group] for group in sorted(found))) if groups else found[0]
    return replace(
        blank, actor=jax.tree.map(jnp.asarray, {"params": actor}), own_statistics=own, neighbour_statistics=neighbours
    )


def error_on_test_vector(agent: Agent, parameters: AgentParameters, contract: Contract) -> float:
    """Return the largest deviation [m/s, or unit of memory] from the outputs of the artefact's test vector."""
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
    """Return whether parameters reproduce the artefact's test vector."""
    return error_on_test_vector(agent, parameters, contract) <= _TOLERANCE


def _dense_layers(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[_Dense]:
    """Return the layers in the order of the graph, which is the order of the network."""
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
    """Return the tree of parameters with a layer inserted at ``path``."""
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


def _scales(
    model: onnx.ModelProto, values: Mapping[str, np.ndarray], used: set[int], shape: tuple[int, ...], count: int
) -> list[np.ndarray]:
    """Return the raw scales of the actions by network: the only vectors of their size that belong to no layer."""
    inputs = [name for node in model.graph.node if node.op_type in {"Unsqueeze", "Expand"} for name in node.input[:1]]
    found = [
        values[name]
        for name in dict.fromkeys(inputs)
        if name in values
        and values[name].dtype == np.float32
        and values[name].shape == shape
        and id(values[name]) not in used
    ]
    if len(found) != count:
        raise GraphError(f"policy graph: found {len(found)} candidates for the scale of the actions, expected {count}")
    return found


def _statistics(
    model: onnx.ModelProto, values: Mapping[str, np.ndarray], blank: AgentParameters, observed: int
) -> tuple[Any, Any]:
    """Return the statistics of own and neighbour features: a Sub and a Div by constants."""
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
    statistics = []
    for old in (blank.own_statistics, blank.neighbour_statistics):
        fitting = [pair for pair in pairs if pair[0].shape == old.mean.shape]
        if not fitting:
            raise GraphError(f"policy graph: found no normalisation of {old.mean.shape[0]} features, expected one")
        mean, deviation = fitting[0]
        pairs = [pair for pair in pairs if pair is not fitting[0]]
        statistics.append(
            old.replace(
                mean=jnp.asarray(mean),
                std=jnp.asarray(deviation),
                count=old.count.replace(lo=observed),
                summed_variance=jnp.asarray(deviation**2 * observed, jnp.float32),
            )
        )
    return statistics[0], statistics[1]
