"""Distance of a point from a segment, in plain numbers."""

import math

Point = tuple[float, ...]


def segment_distance_m(start: Point, end: Point, point: Point) -> float:
    """Return the distance of a point (D,) [m] from a segment, which may be a point."""
    along = [b - a for a, b in zip(start, end, strict=True)]
    offset = [p - a for p, a in zip(point, start, strict=True)]
    square = sum(a * a for a in along)
    share = min(max(sum(a * o for a, o in zip(along, offset, strict=True)) / square, 0.0), 1.0) if square else 0.0
    return math.hypot(*(o - share * a for a, o in zip(along, offset, strict=True)))
