"""One array namespace for NumPy, JAX and the strict reference, so that a body is written once."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

Array = Any
"""An array of any library that follows the array API standard."""


def array_namespace(*arrays: Array) -> Any:
    """Return the array API namespace of ``arrays``; plain Python numbers count as NumPy."""
    if isinstance(arrays[0], np.ndarray):  # the robot's path: skip the look-up of a few microseconds
        return _NUMPY
    return array_api_compat.array_namespace(*arrays)


# NumPy 2 follows the standard itself; the wrappers for older ones cost about a microsecond a call
_NUMPY = np if int(np.__version__.partition(".")[0]) >= 2 else array_api_compat.array_namespace(np.zeros(1))
