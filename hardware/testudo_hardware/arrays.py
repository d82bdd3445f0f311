"""One array namespace for NumPy, JAX and array_api_strict, so that a function body is written once."""

from typing import Any

import array_api_compat
import numpy as np

Array = Any  # an array of any library that follows the array API standard


def array_namespace(*arrays: Array) -> Any:
    """Return the array API namespace of ``arrays``; plain Python numbers count as NumPy."""
    if isinstance(arrays[0], np.ndarray | np.generic):  # on the robot: skips a look-up of a few microseconds
        return _NUMPY
    return array_api_compat.array_namespace(*arrays)


def stacked(*arrays: Array) -> Array:
    """Return arrays of one shape along a new first axis; takes less than half the time of `stack` in NumPy."""
    return array_namespace(arrays[0]).concat([array[None, ...] for array in arrays])


def all_of(mask: Array, axis: int | tuple[int, ...] = 0) -> Array:
    """Return whether all elements along ``axis`` are true; takes less than half the time of `all` in NumPy."""
    return mask.all(axis) if is_numpy(mask) else array_namespace(mask).all(mask, axis=axis)


def any_of(mask: Array, axis: int | tuple[int, ...] = 0) -> Array:
    """Return whether an element along ``axis`` is true; takes less than half the time of `any` in NumPy."""
    return mask.any(axis) if is_numpy(mask) else array_namespace(mask).any(mask, axis=axis)


def min_of(values: Array, axis: int | tuple[int, ...] = 0) -> Array:
    """Return the least value along ``axis``; takes less than half the time of `min` in NumPy."""
    return values.min(axis) if is_numpy(values) else array_namespace(values).min(values, axis=axis)


def max_of(values: Array, axis: int | tuple[int, ...] = 0) -> Array:
    """Return the largest value along ``axis``; takes less than half the time of `max` in NumPy."""
    return values.max(axis) if is_numpy(values) else array_namespace(values).max(values, axis=axis)


def is_numpy(array: Array) -> bool:
    """Return whether an array is one of NumPy, as on a robot, where the number of calls matters."""
    return isinstance(array, np.ndarray)


def clipped(value: Array, low: Array, high: Array) -> Array:
    """Return ``value`` (...) within the bounds (...), which broadcast to its shape."""
    xp = array_namespace(value)
    return xp.minimum(xp.maximum(value, low + 0 * value), high + 0 * value)


def known_false(mask: Array) -> bool:
    """Return whether no element of ``mask`` is true; False for traced values, which are unknown.

    A single robot can then skip work whose result would not be used.
    """
    return isinstance(mask, np.ndarray | np.bool_) and not mask.any()


def is_number(value: Any, number: float) -> bool:
    """Return whether ``value`` is a plain number equal to ``number``; False for traced values."""
    return isinstance(value, int | float) and value == number


# NumPy 2 follows the standard itself; the wrappers for older versions cost about a microsecond a call
_NUMPY = np if int(np.__version__.partition(".")[0]) >= 2 else array_api_compat.array_namespace(np.zeros(1))
