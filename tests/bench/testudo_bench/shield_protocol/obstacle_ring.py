"""Obstacles among which robots swap places: one of each kind, on a ring about the middle."""

from __future__ import annotations

import math

from testudo_deploy.shield.arena import Ball, Block, Capsule, Obstacle

ROOM = 1.5
"""Radius of the circle of starts over that of a swap without obstacles."""
_RING, _SIZE = 0.5, 0.1
"""Radius of the ring of obstacles, and half of their size, over that of the circle of starts."""
_HEIGHT_M = 0.5
"""Half of the height of what stands in space."""


def blocks(radius_m: float, dimension: int) -> tuple[Obstacle, ...]:
    """Return a ball, a capsule and a box within a circle of starts; in space capsule and box stand upright."""
    size, ring = _SIZE * radius_m, _RING * radius_m
    missing = dimension - 2
    places = [
        (ring * math.cos(angle), ring * math.sin(angle), *(0.0,) * missing)
        for angle in (0.0, 2 * math.pi / 3, 4 * math.pi / 3)
    ]
    ball, capsule, box = places
    along = (0.0, 0.0, _HEIGHT_M) if missing else (size, 0.0)
    ends = [tuple(x + side * step for x, step in zip(capsule, along, strict=True)) for side in (-1, 1)]
    return (
        Ball(ball, size),
        Capsule(ends[0], ends[1], size / 2),
        Block(box, (size, size / 2, *(_HEIGHT_M,) * missing), math.pi / 5),
    )
