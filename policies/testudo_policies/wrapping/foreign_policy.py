"""A policy of another library as its exporter wrote it: read, checked, and freed for any batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import compose, helper, version_converter

from testudo_deploy.contract.onnx_policy import Session, open_session
from testudo_deploy.contract.policy_header import read_header
from testudo_policies.exporting.graph_reduction import BATCH
from testudo_policies.exporting.onnx_export import OPSET
from testudo_policies.wrapping.wrap_file import WrapError, WrapFile

IR_VERSION = 10  # supported by onnxruntime 1.20, as `OPSET`
PREFIX = "wrapped/"  # of all names of the foreign graph
_TRIED_ROWS = 3
_SAME = 1e-5


@dataclass(frozen=True)
class ForeignPolicy:
    """A graph from observation, and hidden state, to action, and next hidden state."""

    path: Path
    model: onnx.ModelProto  # with free batch, prefixed names and no other outputs
    original: Session  # the file itself, for the comparison
    inputs: tuple[str, ...]  # observation, and hidden state if there is one, by their names in the file
    outputs: tuple[str, ...]  # action, and next hidden state
    observation_size: int
    action_size: int
    hidden_size: int
    rows: int  # batch that the file asks for; 0: any

    def run(self, observation: np.ndarray, hidden: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Run the file itself: action (B, m) and next hidden state (B, H) of observations (B, n)."""
        feeds = [observation] if hidden is None else [observation, hidden]
        step = self.rows or len(observation)
        found = [
            self.original.run(
                list(self.outputs),
                {name: np.float32(value[k : k + step]) for name, value in zip(self.inputs, feeds, strict=True)},
            )
            for k in range(0, len(observation), step)
        ]
        columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        return columns[0], columns[1] if len(columns) > 1 else None


def load_foreign_policy(path: Path, wrap: WrapFile) -> ForeignPolicy:
    """Read a foreign policy.

    Raises:
        WrapError: no ONNX graph, other inputs or outputs than its description says, no float32, a shape that is not
            (batch, numbers), a graph that does not work for a batch, or one that cannot be converted.
        ArtefactError: the runtime refuses the file.
    """
    try:
        data = path.read_bytes()
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except FileNotFoundError as error:
        raise WrapError(f"{path}: no such file") from error
    except (OSError, DecodeError, onnx.checker.ValidationError) as error:
        raise WrapError(f"{path}: not an ONNX file: {str(error).partition(chr(10))[0]}") from error
    original = open_session(data, read_header(data, str(path)), str(path))
    ports_in = {port.name: port for port in original.get_inputs()}
    ports_out = {port.name: port for port in original.get_outputs()}
    inputs, outputs = _names(wrap, ports_in, ports_out, path)
    sizes = [_size(ports_in[name], f"{path}: input {name}") for name in inputs]
    out_sizes = [_size(ports_out[name], f"{path}: output {name}") for name in outputs]
    if len(sizes) > 1 and sizes[1] != out_sizes[1]:
        raise WrapError(f"{path}: memory: found {sizes[1]} numbers in {inputs[1]} and {out_sizes[1]} in {outputs[1]}")
    rows = ports_in[inputs[0]].shape[0]
    found = ForeignPolicy(
        path,
        _freed(model, dict(zip(inputs, sizes, strict=True)), dict(zip(outputs, out_sizes, strict=True)), path),
        original,
        inputs,
        outputs,
        sizes[0],
        out_sizes[0],
        sizes[1] if len(sizes) > 1 else 0,
        rows if isinstance(rows, int) else 0,
    )
    _check_batch(found)
    return found


def _names(
    wrap: WrapFile, ports_in: Mapping[str, Any], ports_out: Mapping[str, Any], path: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the inputs and outputs that are used, the observation and the action first."""
    memory = wrap.memory
    others = [name for name in ports_in if memory is None or name != memory.input]
    given = wrap.input or (others[0] if len(others) == 1 else "")
    if given not in ports_in or set(ports_in) != {given, *(() if memory is None else (memory.input,))}:
        raise WrapError(
            f"{path}: found the inputs {', '.join(ports_in)}, expected one observation"
            f"{' (input: ' + wrap.input + ')' if wrap.input else ''}"
            + (
                " and no other: a hidden state (B, H) is named by `memory`"
                if memory is None
                else f" and {memory.input}"
            )
        )
    action = wrap.output or next(name for name in ports_out if memory is None or name != memory.output)
    outputs = (action,) if memory is None else (action, memory.output)
    missing = [name for name in outputs if name not in ports_out]
    if missing:
        raise WrapError(f"{path}: found the outputs {', '.join(ports_out)}, expected {missing[0]} among them")
    return (given,) if memory is None else (given, memory.input), outputs


def _size(port: Any, where: str) -> int:
    if port.type != "tensor(float)":
        raise WrapError(f"{where}: found {port.type}, expected tensor(float): export the policy in float32")
    shape = port.shape
    if len(shape) != 2 or not isinstance(shape[1], int):
        raise WrapError(
            f"{where}: found the shape {shape}, expected (batch, numbers); a hidden state with a layer axis, or an "
            "image, cannot be wrapped"
        )
    return int(shape[1])


def _freed(
    model: onnx.ModelProto, inputs: Mapping[str, int], outputs: Mapping[str, int], path: Path
) -> onnx.ModelProto:
    """Return the graph for any batch with these ports (sizes by name), prefixed names, and the opset of exports."""
    try:
        converted = model if _opset(model) == OPSET else version_converter.convert_version(model, OPSET)
    except Exception as error:
        raise WrapError(
            f"{path}: opset {_opset(model)} cannot be converted to {OPSET}: {str(error).partition(chr(10))[0]}; export "
            f"the policy with opset_version={OPSET}, or 17"
        ) from error
    graph = converted.graph
    nodes, weights = _needed(graph, outputs)

    def freed(sizes: Mapping[str, int]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [BATCH, size]) for name, size in sizes.items()
        ]

    kept = helper.make_graph(nodes, graph.name or "policy", freed(inputs), freed(outputs), weights)
    made = helper.make_model(kept, opset_imports=converted.opset_import, ir_version=IR_VERSION)
    prefixed: onnx.ModelProto = compose.add_prefix(made, PREFIX)
    return prefixed


def _needed(graph: onnx.GraphProto, outputs: Iterable[str]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Return the nodes and weights behind the outputs; what else is there, such as a critic, is left out."""
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return list(graph.node), list(graph.initializer)  # a branch reads values that no input names
    nodes, needed = list[onnx.NodeProto](), set(outputs)
    for node in reversed(graph.node):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= set(node.input)
    return nodes, [one for one in graph.initializer if one.name in needed]


def _opset(model: onnx.ModelProto) -> int:
    return next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)


def _check_batch(policy: ForeignPolicy) -> None:
    """Refuse a graph that computes other actions for several rows at once, as one with a fixed batch inside."""
    rng = np.random.default_rng(0)
    observed = rng.uniform(-1, 1, (_TRIED_ROWS, policy.observation_size)).astype(np.float32)
    hidden = np.zeros((_TRIED_ROWS, policy.hidden_size), np.float32) if policy.hidden_size else None
    expected, _ = policy.run(observed, hidden)
    feeds = dict(zip(policy.inputs, [observed] if hidden is None else [observed, hidden], strict=True))
    data = policy.model.SerializeToString()
    advice = (
        f"export it with a free batch: torch.onnx.export(..., dynamic_axes={{'{policy.inputs[0]}': {{0: 'batch'}}}})"
    )
    try:
        session = open_session(data, read_header(data, str(policy.path)), str(policy.path))
        (found,) = session.run([PREFIX + policy.outputs[0]], {PREFIX + name: feed for name, feed in feeds.items()})
    except Exception as error:
        raise WrapError(
            f"{policy.path}: the graph does not run for {_TRIED_ROWS} rows at once "
            f"({str(error).strip().splitlines()[0]}); {advice}"
        ) from error
    if found.shape != expected.shape or not np.allclose(found, expected, atol=_SAME, rtol=_SAME):
        raise WrapError(f"{policy.path}: the graph computes other actions for {_TRIED_ROWS} rows at once; {advice}")
