"""Arrays that record what is computed with them: the third library, beside NumPy and JAX, for the bodies of the shield.

A body runs once on `TracedArray`, with the shapes of one robot. What it computes becomes a graph of `Node`, from which
`c_source` makes one function. Shapes are known; values are not, so that a body must not decide by them (`known_false`
is False, as in JAX). Indexing, new axes and broadcasting are views, which cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

FLOAT, BOOL, INT = np.dtype(np.float64), np.dtype(np.bool_), np.dtype(np.int64)
_ANY = slice(None)


@dataclass(frozen=True, eq=False)
class Node:
    """One step of the graph: an operation on views of earlier nodes, with a result in row-major order."""

    op: str
    args: tuple[TracedArray, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    detail: Any = None
    """Of a constant its values, of an input its number, of a reduction or selection its axis, of a concatenation the
    places of the parts."""

    @property
    def size(self) -> int:
        """Return the number of values."""
        return math.prod(self.shape)


@dataclass
class Graph:
    """The steps of one body, in the order in which they were recorded."""

    namespace: Any  # the functions of the array API
    nodes: list[Node] = field(default_factory=list)
    _known: dict[object, TracedArray] = field(default_factory=dict)

    def add(
        self,
        op: str,
        args: Sequence[TracedArray],
        shape: tuple[int, ...],
        dtype: np.dtype,
        detail: Any = None,
        key: object = None,
    ) -> TracedArray:
        """Return the result of a step; the same step on the same views is taken once."""
        views = tuple((id(arg.node), arg.offset, arg.strides, arg.shape) for arg in args)
        known = (op, views, shape, dtype, key)
        if known not in self._known:
            node = Node(op, tuple(args), shape, dtype, detail)
            self.nodes.append(node)
            self._known[known] = TracedArray(self, node, 0, row_major(shape), shape)
        return self._known[known]

    def constant(self, values: Any) -> TracedArray:
        """Return numbers as an array."""
        array = np.asarray(values)
        dtype = BOOL if array.dtype == np.bool_ else INT if np.issubdtype(array.dtype, np.integer) else FLOAT
        array = np.ascontiguousarray(array, dtype).reshape(array.shape)
        return self.add("constant", (), array.shape, dtype, array, array.tobytes())

    def given(self, shape: tuple[int, ...], dtype: np.dtype, number: int) -> TracedArray:
        """Return an argument of the body, the ``number``-th value of all of them on."""
        return self.add("input", (), shape, dtype, number, number)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps from one value to the next along each axis."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis], step = step, step * shape[axis]
    return tuple(strides)


class TracedArray:
    """A view of the result of a step; follows the array API as far as the bodies use it."""

    __array_ufunc__ = None  # NumPy leaves operations with it to this class

    def __init__(self, graph: Graph, node: Node, offset: int, strides: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.graph, self.node, self.offset, self.strides, self.shape = graph, node, offset, strides, shape

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Return the kind of the values."""
        return self.node.dtype

    @property
    def T(self) -> TracedArray:  # noqa: N802 -- a name of the array API
        """Return the view with its axes reversed."""
        return TracedArray(self.graph, self.node, self.offset, self.strides[::-1], self.shape[::-1])

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return the functions of this library."""
        return self.graph.namespace

    def __bool__(self) -> bool:
        raise TypeError("a body decides by a value that is not known before it runs")

    def __iter__(self) -> Iterator[TracedArray]:
        return (self[index] for index in range(self.shape[0]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> TracedArray:
        keys: list[Any] = list(cast("tuple[Any, ...]", key)) if isinstance(key, tuple) else [key]
        if any(isinstance(part, list | np.ndarray | TracedArray) for part in keys):
            raise TypeError("a body indexes by an array; only numbers, slices and new axes are views")
        taken = sum(part is not None and part is not Ellipsis for part in keys)
        rest = [_ANY] * (self.ndim - taken)
        if Ellipsis in keys:
            place = keys.index(Ellipsis)
            keys[place : place + 1] = rest
        else:
            keys += rest
        offset, axis = self.offset, 0
        strides: list[int] = []
        shape: list[int] = []
        for part in keys:
            if part is None:
                strides.append(0)
                shape.append(1)
                continue
            size, step = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(part, slice):
                indices = range(size)[part]
                offset += (indices.start if len(indices) else 0) * step
                strides.append(indices.step * step)
                shape.append(len(indices))
            else:
                if not -size <= part < size:
                    raise IndexError(f"index {part} of {size}")
                offset += (part % size) * step
        return TracedArray(self.graph, self.node, offset, tuple(strides), tuple(shape))

    def broadcast(self, shape: tuple[int, ...]) -> TracedArray:
        """Return the view in a larger shape."""
        lead = len(shape) - self.ndim
        strides = [0] * lead
        for size, wanted, step in zip(self.shape, shape[lead:], self.strides, strict=True):
            if size not in (1, wanted):
                raise ValueError(f"shape {self.shape} does not fit {shape}")
            strides.append(step if size == wanted else 0)
        return TracedArray(self.graph, self.node, self.offset, tuple(strides), shape)

    def _with(self, op: str, *others: Any, dtype: np.dtype | None = None) -> TracedArray:
        return elementwise(op, self, *others, dtype=dtype)

    def __add__(self, other: Any) -> TracedArray:
        return self._with("add", other)

    def __radd__(self, other: Any) -> TracedArray:
        return elementwise("add", other, self)

    def __sub__(self, other: Any) -> TracedArray:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> TracedArray:
        return elementwise("sub", other, self)

    def __mul__(self, other: Any) -> TracedArray:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> TracedArray:
        return elementwise("mul", other, self)

    def __truediv__(self, other: Any) -> TracedArray:
        return self._with("div", other, dtype=FLOAT)

    def __rtruediv__(self, other: Any) -> TracedArray:
        return elementwise("div", other, self, dtype=FLOAT)

    def __pow__(self, power: float) -> TracedArray:
        if power != 2:
            raise TypeError(f"a body takes the power {power}; only squares are compiled")
        return self * self

    def __neg__(self) -> TracedArray:
        return self._with("neg")

    def __invert__(self) -> TracedArray:
        return self._with("not", dtype=BOOL)

    def __and__(self, other: Any) -> TracedArray:
        return self._with("and", other, dtype=BOOL)

    def __rand__(self, other: Any) -> TracedArray:
        return elementwise("and", other, self, dtype=BOOL)

    def __or__(self, other: Any) -> TracedArray:
        return self._with("or", other, dtype=BOOL)

    def __ror__(self, other: Any) -> TracedArray:
        return elementwise("or", other, self, dtype=BOOL)

    def __lt__(self, other: Any) -> TracedArray:
        return self._with("lt", other, dtype=BOOL)

    def __le__(self, other: Any) -> TracedArray:
        return self._with("le", other, dtype=BOOL)

    def __gt__(self, other: Any) -> TracedArray:
        return self._with("gt", other, dtype=BOOL)

    def __ge__(self, other: Any) -> TracedArray:
        return self._with("ge", other, dtype=BOOL)

    def __eq__(self, other: object) -> Any:
        return self._with("eq", other, dtype=BOOL)

    def __ne__(self, other: object) -> Any:
        return self._with("ne", other, dtype=BOOL)

    __hash__ = object.__hash__


def graph_of(values: Iterable[Any]) -> Graph:
    """Return the graph of the first traced array among the values."""
    return next(value.graph for value in values if isinstance(value, TracedArray))


def as_traced(graph: Graph, value: Any) -> TracedArray:
    """Return a value as a traced array; what is none yet is a constant."""
    return value if isinstance(value, TracedArray) else graph.constant(value)


def elementwise(op: str, *values: Any, dtype: np.dtype | None = None) -> TracedArray:
    """Return a step that takes each value by itself, in the common shape."""
    graph = graph_of(values)
    args = [as_traced(graph, value) for value in values]
    shape = tuple(map(int, np.broadcast_shapes(*(arg.shape for arg in args))))
    if dtype is None:
        kinds = [arg.dtype for arg in (args[1:] if op == "where" else args)]
        dtype = FLOAT if FLOAT in kinds else INT if INT in kinds else BOOL
    return graph.add(op, [arg.broadcast(shape) for arg in args], shape, dtype)
