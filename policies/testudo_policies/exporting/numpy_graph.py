"""The graph of an exported policy, evaluated with NumPy alone: for machines without onnxruntime.

It knows the operations that our export emits, in the forms that it emits; `read_graph` refuses all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from testudo_hardware.errors import TestudoError

Node = tuple[str, tuple[str, ...], tuple[str, ...], dict[str, Any]]
"""Operation, names of its inputs and of its outputs, and its attributes."""


def gemm(
    a: np.ndarray, b: np.ndarray, c: Any = 0.0, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> np.ndarray:
    """Return alpha * a @ b + beta * c in the type of ``a``; attributes by their names in ONNX."""
    product = (a.T if transA else a) @ (b.T if transB else b)
    return (product if alpha == 1 else a.dtype.type(alpha) * product) + (c if beta == 1 else a.dtype.type(beta) * c)


def arg_max(x: np.ndarray, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> np.ndarray:
    """Return the first index of the largest value along an axis."""
    if select_last_index:
        raise ValueError("ArgMax: only the first of equal values is supported")
    return np.expand_dims(np.argmax(x, axis), axis) if keepdims else np.argmax(x, axis)


def to_type(x: np.ndarray, to: int) -> np.ndarray:
    """Return the values in another type, by its number in ONNX."""
    return x.astype({1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_}[to])


def reduced(
    operation: Callable[..., np.ndarray], x: np.ndarray, axes: Any, keepdims: int, noop_with_empty_axes: int
) -> np.ndarray:
    """Return the values reduced along axes, along all of them if none are named."""
    if noop_with_empty_axes:
        raise ValueError("reductions over no axis are not supported")
    return operation(x, axis=None if axes is None else tuple(axes.tolist()), keepdims=bool(keepdims))


def reduce_max(x: np.ndarray, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> np.ndarray:
    """Return the largest values along axes."""
    return reduced(np.max, x, axes, keepdims, noop_with_empty_axes)


def reduce_sum_square(x: np.ndarray, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> np.ndarray:
    """Return the sums of squares along axes."""
    return reduced(np.sum, x * x, axes, keepdims, noop_with_empty_axes)


def reduce_l2(x: np.ndarray, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> np.ndarray:
    """Return the lengths along axes."""
    return np.sqrt(reduced(np.sum, x * x, axes, keepdims, noop_with_empty_axes))


def cut(x: np.ndarray, starts: np.ndarray, ends: np.ndarray, axes: Any = None, steps: Any = None) -> np.ndarray:
    """Return a slice; ONNX cuts as NumPy does for steps above zero."""
    where = [slice(None)] * x.ndim
    for k, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        step = 1 if steps is None else int(steps[k])
        if step < 1:
            raise ValueError("Slice: steps below 1 are not supported")
        where[k if axes is None else int(axes[k])] = slice(start, end, step)
    return x[tuple(where)]


def split(x: np.ndarray, sizes: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
    """Return parts of stated lengths along an axis."""
    return tuple(np.split(x, np.cumsum(sizes)[:-1].tolist(), axis))


def expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return the values repeated to a shape; a length of 1 in it keeps that of the values."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))


def transposed(x: np.ndarray, perm: list[int]) -> np.ndarray:
    """Return the values with their axes in another order."""
    return np.transpose(x, perm)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "ArgMax": arg_max,
    "Cast": to_type,
    "Clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Cos": np.cos,
    "Div": np.divide,
    "Equal": np.equal,
    "Expand": expand,
    "Gather": lambda x, index, axis=0: np.take(x, index, axis),
    "Gemm": gemm,
    "Identity": lambda x: x,
    "MatMul": np.matmul,
    "Max": lambda *values: reduce(np.maximum, values),
    "Min": lambda *values: reduce(np.minimum, values),
    "Mul": np.multiply,
    "Neg": np.negative,
    "Range": np.arange,
    "ReduceL2": reduce_l2,
    "ReduceMax": reduce_max,
    "ReduceSumSquare": reduce_sum_square,
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Sigmoid": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),  # finite for every x
    "Sin": np.sin,
    "Slice": cut,
    "Split": split,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": transposed,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes.tolist())),
}


@dataclass(frozen=True)
class Graph:
    """A graph: its nodes in the order of evaluation, and its constants by name."""

    nodes: Sequence[Node]
    constants: Mapping[str, np.ndarray]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return all values by name, outputs included, for inputs by name."""
        values = {**self.constants, **inputs}
        for kind, names, results, attributes in self.nodes:
            found = OPERATIONS[kind](*(values[name] for name in names), **attributes)
            values.update(zip(results, found if isinstance(found, tuple) else (found,), strict=True))
        return values


def read_graph(model: onnx.ModelProto) -> Graph:
    """Return the graph of a model.

    Raises:
        TestudoError: an operation that is not among `OPERATIONS`.
    """
    nodes: list[Node] = []
    for node in model.graph.node:
        if node.op_type not in OPERATIONS or not all(node.input):
            raise TestudoError(
                f"the policy's graph: found the operation {node.op_type}, expected one of {', '.join(OPERATIONS)}: "
                "only they are written to a file without onnxruntime"
            )
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        nodes.append((node.op_type, tuple(node.input), tuple(node.output), attributes))
    return Graph(nodes, {item.name: numpy_helper.to_array(item) for item in model.graph.initializer})
