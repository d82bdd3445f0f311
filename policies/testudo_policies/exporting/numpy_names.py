"""NumPy in place of the array namespace, for files that may import nothing else.

`array_namespace` takes the place of the function of that name in `testudo_hardware.arrays`.
"""

from typing import Any

import numpy as np


class NumpyNames:
    """NumPy under the names of the array API, two of which versions before 2 lack."""

    concat = staticmethod(np.concatenate)

    @staticmethod
    def astype(array: Any, dtype: Any) -> Any:
        """Return the array in another type."""
        return array.astype(dtype)

    def __getattr__(self, name: str) -> Any:
        """Return what NumPy has under the name."""
        return getattr(np, name)


NUMPY_NAMES = NumpyNames()


def array_namespace(*_arrays: Any) -> Any:
    """Return NumPy, whatever the arrays are."""
    return NUMPY_NAMES
