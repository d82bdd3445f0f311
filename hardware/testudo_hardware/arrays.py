"""One array namespace for NumPy, JAX and the strict reference, so that a body is written once."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

Array = Any
"""An array of any library that follows the array API standard."""


def array_namespace(*arrays: Array) -> Any:
    """Return the array API namespace of ``arrays``; plain Python numbers count as NumPy."""
    if isinstance(arrays[0], np.ndarray | np.generic):  # the robot's path: skip the look-up of a few microseconds
        return _NUMPY
    return array_api_compat.array_namespace(*arrays)


def stacked(*arrays: Array) -> Array:
    """Return arrays of one shape along a new first axis; less than half the time of `stack` in NumPy."""
    return array_namespace(arrays[0]).concat([array[None, ...] for array in arrays])


def is_numpy(array: Array) -> bool:
    """Return whether an array is one of NumPy, as on a robot: there the fewest calls count."""
    return isinstance(array, np.ndarray)


def known_false(mask: Array) -> bool:
    """Return whether no element of ``mask`` is true, as far as one can know: what is traced can be either.

    One robot may then skip work of which nothing would be chosen.
    """
    return isinstance(mask, np.ndarray | np.bool_) and not mask.any()


def is_number(value: Any, number: float) -> bool:
    """Return whether a value is known to be this number; one that is traced, to be identified, can be any."""
    return isinstance(value, int | float) and value == number


# NumPy 2 follows the standard itself; the wrappers for older ones cost about a microsecond a call
_NUMPY = np if int(np.__version__.partition(".")[0]) >= 2 else array_api_compat.array_namespace(np.zeros(1))
