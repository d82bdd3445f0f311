"""A rotation in 32 bits, as the Crazyflie logs it: which component is largest, and the other three in ten bits each."""

from __future__ import annotations

import math
from collections.abc import Sequence

_STEPS = 511
_MASK = 0x1FF


def compressed(quaternion_xyzw: Sequence[float]) -> int:
    """Return a unit quaternion (4,) as 32 bits; each component is off by at most 0.0007."""
    largest = max(range(4), key=lambda k: abs(quaternion_xyzw[k]))
    turned = quaternion_xyzw[largest] < 0  # the largest is sent as positive
    word = largest
    for k in range(4):
        if k != largest:
            value = quaternion_xyzw[k]
            size = min(_STEPS, int(_STEPS * abs(value) * math.sqrt(2) + 0.5))
            word = word << 10 | ((value < 0) != turned) << 9 | size
    return word


def decompressed(word: int) -> tuple[float, float, float, float]:
    """Return the unit quaternion (x, y, z, w) of 32 bits."""
    largest = word >> 30
    values = [0.0] * 4
    for k in (index for index in (3, 2, 1, 0) if index != largest):
        size = (word & _MASK) / _STEPS / math.sqrt(2)
        values[k] = -size if word >> 9 & 1 else size
        word >>= 10
    values[largest] = math.sqrt(max(0.0, 1.0 - sum(value * value for value in values)))
    return tuple(values)
