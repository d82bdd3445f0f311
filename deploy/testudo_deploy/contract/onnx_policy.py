"""ONNX for one robot: open the graph of a file, check it against the contract, run it in place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs] -- the package has none

from testudo_deploy.contract.contract import NEIGHBOURS, Contract
from testudo_deploy.contract.policy_header import ArtefactError, OnnxHeader
from testudo_deploy.contract.rules import COMMAND, HIDDEN, HIDDEN_NEXT, MESSAGE, graph_inputs, graph_outputs

_ALIGNMENT = 16  # floats: a cache line, as the runtime's own buffers
_SUPPORTED = (  # texts of the runtime about what it supports
    ("IR version", re.compile(r"max supported IR version: (\d+)")),
    ("opset", re.compile(r"support for domain \S+ is till opset (\d+)")),
)

Shapes = Mapping[str, tuple[int | str, ...]]
Session = Any  # an `onnxruntime.InferenceSession`; the package has no types
_RUNTIME: Any = onnxruntime
RUNTIME = f"onnxruntime {_RUNTIME.__version__}"


def open_session(data: bytes, header: OnnxHeader, where: str) -> Session:
    """Return a session on one core.

    Raises:
        ArtefactError: the runtime refuses the file; names the versions of both.
    """
    options = _RUNTIME.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are in the exception
    try:
        return _RUNTIME.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        text = str(error)
        opset = header.opsets.get("", header.opsets.get("ai.onnx", 0))
        found = {"IR version": header.ir_version, "opset": opset}
        for name, pattern in _SUPPORTED:
            match = pattern.search(text)
            if match:
                raise ArtefactError(
                    f"{where}: {name}: found {found[name]}, {RUNTIME} supports at most {match[1]}; "
                    "update onnxruntime, or export the policy for an older opset"
                ) from error
        raise ArtefactError(
            f"{where}: {RUNTIME} refuses the file (opset {opset}, IR version {header.ir_version}): "
            f"{text.strip().splitlines()[0]}"
        ) from error


def check_graph(session: Session, contract: Contract, where: str) -> None:
    """Check the graph's inputs and outputs against the contract.

    Raises:
        ArtefactError: one is missing, unknown, of another shape or not float32.
    """
    for side, nodes, shapes in (
        ("input", session.get_inputs(), graph_inputs(contract)),
        ("output", session.get_outputs(), graph_outputs(contract)),
    ):
        axes: dict[str, str] = {}
        found: dict[str, Any] = {node.name: node for node in nodes}
        missing = [name for name in shapes if name not in found]
        unknown = [name for name in found if name not in shapes]
        if missing or unknown:
            what = f"{missing[0]} is missing" if missing else f"{unknown[0]} is not in the contract"
            raise ArtefactError(
                f"{where}: graph {side} {what}: found {', '.join(found)}, expected "
                f"{', '.join(shapes)}; export the policy again"
            )
        for name, shape in shapes.items():
            expected = ("batch", *shape)
            if not _fits(found[name].shape, expected, axes):
                raise ArtefactError(
                    f"{where}: graph {side} {name}: found shape {found[name].shape}, expected "
                    f"{list(expected)}, where a name is any number; export the policy again"
                )
            if found[name].type != "tensor(float)":
                raise ArtefactError(
                    f"{where}: graph {side} {name}: found {found[name].type}, "
                    "expected tensor(float); export the policy again"
                )


def _fits(found: list[int | str | None], expected: tuple[int | str, ...], axes: dict[str, str]) -> bool:
    """Return whether a graph's shape is as expected; ``axes`` collects its name of each free axis."""
    if len(found) != len(expected):
        return False
    for length, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, int):
            if length != wanted:
                return False
        elif not isinstance(length, str) or axes.setdefault(wanted, length) != length:
            return False
    return len(set(axes.values())) == len(axes)


@dataclass(frozen=True)
class _IoBuffers:
    """Buffers and binding for one number of neighbours."""

    binding: Any
    memory: np.ndarray  # all inputs in one array, so that one check finds values that are not finite
    inputs: tuple[tuple[str, tuple[int, ...], np.ndarray], ...]  # name, shape without the batch axis, and its buffer
    hidden: np.ndarray | None
    command: np.ndarray
    message: np.ndarray | None
    hidden_next: np.ndarray
    results: np.ndarray


class PolicyStepRunner:
    """Runs a graph for one robot through buffers that the runtime reads and writes in place."""

    def __init__(self, session: Session, inputs: Shapes, outputs: Shapes, where: str) -> None:
        self._session = session
        self._inputs = inputs
        self._outputs = outputs
        self._where = where
        self._counted = next((name for name, shape in inputs.items() if NEIGHBOURS in shape), None)
        self._buffers: dict[int, _IoBuffers] = {}

    def run(self, signals: Mapping[str, np.ndarray], hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return command (D,), any message after it, and next hidden state (H,); see `PolicyArtefact.step`."""
        try:
            count = len(signals[self._counted]) if self._counted is not None else 0
            buffers = self._buffers.get(count) or self._new_buffers(count)
            for name, shape, target in buffers.inputs:
                value = signals[name]
                if value.shape != shape:
                    raise ArtefactError(f"signal {name}: found shape {value.shape}, expected {shape}")
                target[...] = value
            if buffers.hidden is not None:
                if hidden.shape != buffers.hidden.shape:
                    raise ArtefactError(f"{HIDDEN}: found shape {hidden.shape}, expected {buffers.hidden.shape}")
                buffers.hidden[...] = hidden
        except KeyError as error:
            raise ArtefactError(
                f"signal {error.args[0]}: missing; the contract needs "
                f"{', '.join(name for name in self._inputs if name != HIDDEN)}"
            ) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise ArtefactError(f"signals: expected arrays of numbers by name: {error}") from error
        if not np.isfinite(buffers.memory).all():
            raise ArtefactError(f"{self._not_finite(buffers)}: not finite")
        try:
            self._session.run_with_iobinding(buffers.binding)
        except Exception as error:
            raise ArtefactError(f"{self._where}: the graph failed: {error}") from error
        if not np.isfinite(buffers.results).all():
            raise ArtefactError(f"{self._where}: the policy's output is not finite")
        said = () if buffers.message is None else (buffers.message,)
        return np.concatenate([buffers.command, *said]), buffers.hidden_next.copy()

    def _not_finite(self, buffers: _IoBuffers) -> str:
        bad = [name for name, _, target in buffers.inputs if not np.isfinite(target).all()]
        return f"signal {bad[0]}" if bad else HIDDEN

    def _new_buffers(self, count: int) -> _IoBuffers:
        # the graph needs at least one slot: without neighbours one slot stays zero, and so invalid
        slots = max(count, 1)
        memory, views = _packed(self._inputs, slots)
        results, outputs = _packed(self._outputs, slots)
        binding = self._session.io_binding()
        for name, view in views.items():
            binding.bind_input(name, "cpu", 0, np.float32, view.shape, view.ctypes.data)
        for name, view in outputs.items():
            binding.bind_output(name, "cpu", 0, np.float32, view.shape, view.ctypes.data)
        inputs: list[tuple[str, tuple[int, ...], np.ndarray]] = []
        for name, shape in self._inputs.items():
            if name != HIDDEN:
                target = views[name][0, :count] if NEIGHBOURS in shape else views[name][0]
                inputs.append((name, target.shape, target))
        buffers = _IoBuffers(
            binding,
            memory,
            tuple(inputs),
            views[HIDDEN][0] if HIDDEN in views else None,
            outputs[COMMAND][0],
            outputs[MESSAGE][0] if MESSAGE in outputs else None,
            outputs[HIDDEN_NEXT][0] if HIDDEN_NEXT in outputs else np.zeros(0, np.float32),
            results,
        )
        self._buffers[count] = buffers
        return buffers


def _packed(shapes: Shapes, slots: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return zeros (n,) and views (1, ...) into them by name, each on its own cache line."""
    full = {
        name: (1, *(slots if axis == NEIGHBOURS else int(axis) for axis in shape)) for name, shape in shapes.items()
    }
    starts: dict[str, int] = {}
    total = 0
    for name, shape in full.items():
        starts[name] = total
        total += -(-int(np.prod(shape)) // _ALIGNMENT) * _ALIGNMENT
    memory = np.zeros(total + _ALIGNMENT, np.float32)
    shift = (-memory.ctypes.data // memory.itemsize) % _ALIGNMENT
    views: dict[str, np.ndarray] = {}
    for name, shape in full.items():
        start = shift + starts[name]
        views[name] = memory[start : start + int(np.prod(shape))].reshape(shape)
    return memory, views
