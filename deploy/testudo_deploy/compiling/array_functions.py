"""The functions of the array API for `TracedArray`: those that the bodies of the shield use."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from testudo_deploy.compiling.traced_array import (
    BOOL,
    FLOAT,
    INT,
    TracedArray,
    as_traced,
    elementwise,
    graph_of,
)

inf, nan, pi = math.inf, math.nan, math.pi
float64, bool, int8, int32, int64 = FLOAT, BOOL, INT, INT, INT  # noqa: A001 -- names of the array API
finfo = np.finfo


def where(condition: TracedArray, first: Any, second: Any) -> TracedArray:
    """See the array API."""
    return elementwise("where", condition, first, second)


def minimum(first: Any, second: Any) -> TracedArray:
    """See the array API; what is not a number stays so."""
    return elementwise("min", first, second)


def maximum(first: Any, second: Any) -> TracedArray:
    """See the array API; what is not a number stays so."""
    return elementwise("max", first, second)


def clip(value: Any, low: Any, high: Any) -> TracedArray:
    """See the array API."""
    return minimum(maximum(value, low), high)


def _of_one(op: str) -> Any:
    def function(value: TracedArray) -> TracedArray:
        return elementwise(op, value, dtype=FLOAT)

    function.__doc__ = "See the array API."
    return function


sqrt, sin, cos, exp, expm1, log = (_of_one(op) for op in ("sqrt", "sin", "cos", "exp", "expm1", "log"))
abs, sign, round = (_of_one(op) for op in ("abs", "sign", "rint"))  # noqa: A001


def atan2(first: Any, second: Any) -> TracedArray:
    """See the array API."""
    return elementwise("atan2", first, second, dtype=FLOAT)


def isfinite(value: TracedArray) -> TracedArray:
    """See the array API."""
    return abs(value) < inf


def astype(value: TracedArray, dtype: np.dtype) -> TracedArray:
    """See the array API."""
    return value if value.dtype == dtype else elementwise("cast", value, dtype=np.dtype(dtype))


def asarray(value: Any, *, dtype: Any = None) -> Any:
    """See the array API."""
    return value if isinstance(value, TracedArray) else np.asarray(value, dtype=dtype)


def arange(count: int) -> np.ndarray:
    """See the array API."""
    return np.arange(count)


def zeros_like(like: TracedArray) -> TracedArray:
    """See the array API."""
    return like.graph.constant(np.zeros((), like.dtype)).broadcast(like.shape)


def ones_like(like: TracedArray) -> TracedArray:
    """See the array API."""
    return like.graph.constant(np.ones((), like.dtype)).broadcast(like.shape)


def broadcast_to(value: Any, shape: tuple[int, ...]) -> Any:
    """See the array API."""
    return value.broadcast(tuple(shape)) if isinstance(value, TracedArray) else np.broadcast_to(value, shape)


def reshape(value: Any, shape: Sequence[int]) -> Any:
    """See the array API."""
    if not isinstance(value, TracedArray):
        return np.reshape(value, tuple(shape))
    wanted = list(shape)
    if -1 in wanted:
        place = wanted.index(-1)
        wanted[place] = math.prod(value.shape) // builtins.max(math.prod(wanted[:place] + wanted[place + 1 :]), 1)
    whole = value.graph.add("copy", [value], value.shape, value.dtype)
    strides, step = [0] * len(wanted), 1
    for axis in reversed(range(len(wanted))):
        strides[axis], step = step, step * wanted[axis]
    return TracedArray(whole.graph, whole.node, 0, tuple(strides), tuple(wanted))


def concat(parts: Sequence[Any], axis: int = 0) -> TracedArray:
    """See the array API."""
    graph = graph_of(parts)
    arrays = [as_traced(graph, part) for part in parts]
    axis %= arrays[0].ndim
    kinds = [array.dtype for array in arrays]
    dtype = FLOAT if FLOAT in kinds else INT if INT in kinds else BOOL
    shape = list(arrays[0].shape)
    shape[axis] = builtins.sum(array.shape[axis] for array in arrays)
    return graph.add("concat", arrays, tuple(shape), dtype, axis, axis)


def stack(parts: Sequence[Any], *, axis: int = 0) -> TracedArray:
    """See the array API."""
    graph = graph_of(parts)
    arrays = [as_traced(graph, part) for part in parts]
    axis %= arrays[0].ndim + 1
    key = (slice(None),) * axis + (None,)
    return concat([array[key] for array in arrays], axis=axis)


def roll(value: TracedArray, shift: int, *, axis: int) -> TracedArray:
    """See the array API."""
    lead, cut = (slice(None),) * axis, (-shift) % value.shape[axis]
    return concat([value[(*lead, slice(cut, None))], value[(*lead, slice(0, cut))]], axis=axis)


def _reduced(op: str, value: TracedArray, axis: int | tuple[int, ...] | None, dtype: np.dtype) -> TracedArray:
    axes = range(value.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    taken = sorted(one % value.ndim for one in axes)
    shape = tuple(size for one, size in enumerate(value.shape) if one not in taken)
    return value.graph.add(op, [value], shape, dtype, tuple(taken), tuple(taken))


def all(value: TracedArray, *, axis: Any = None) -> TracedArray:  # noqa: A001
    """See the array API."""
    return _reduced("all", value, axis, BOOL)


def any(value: TracedArray, *, axis: Any = None) -> TracedArray:  # noqa: A001
    """See the array API."""
    return _reduced("any", value, axis, BOOL)


def min(value: TracedArray, *, axis: Any = None) -> TracedArray:  # noqa: A001
    """See the array API."""
    return _reduced("least", value, axis, value.dtype)


def max(value: TracedArray, *, axis: Any = None) -> TracedArray:  # noqa: A001
    """See the array API."""
    return _reduced("largest", value, axis, value.dtype)


def sum(value: TracedArray, *, axis: Any = None) -> TracedArray:  # noqa: A001
    """See the array API; in NumPy's order, for arrays in row-major order."""
    return _reduced("sum", value, axis, FLOAT if value.dtype == FLOAT else INT)


def argmin(value: TracedArray, *, axis: int) -> TracedArray:
    """See the array API; the first of equal values."""
    return _reduced("argmin", value, axis, INT)


def argmax(value: TracedArray, *, axis: int) -> TracedArray:
    """See the array API; the first of equal values."""
    return _reduced("argmax", value, axis, INT)


def argsort(value: TracedArray, *, axis: int, stable: builtins.bool) -> TracedArray:
    """See the array API; equal values stay in order, what is not a number comes last."""
    if not stable:
        raise TypeError("a body sorts without stable=True: in NumPy the order of equal values is not known")
    return value.graph.add("argsort", [value], value.shape, INT, axis % value.ndim, axis % value.ndim)


def take_along_axis(value: TracedArray, index: TracedArray, *, axis: int) -> TracedArray:
    """See the array API."""
    axis %= value.ndim
    return value.graph.add("take", [value, index], index.shape, value.dtype, axis, axis)
