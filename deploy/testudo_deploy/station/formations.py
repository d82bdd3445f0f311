"""Formations as places of robots; pure."""

import math
from enum import StrEnum

from testudo_hardware.errors import TestudoError


class Formation(StrEnum):
    """The shape in which robots stand."""

    LINE = "line"  # side by side, across the heading
    COLUMN = "column"  # one behind the other, along the heading
    CIRCLE = "circle"  # the first place is at the heading
    WEDGE = "wedge"  # a V, the tip at the heading


def formation_places(
    formation: Formation, count: int, centre_world: tuple[float, ...], spacing_m: float, heading_rad: float
) -> tuple[tuple[float, ...], ...]:
    """Return the places (D,) [m] of ``count`` robots about a centre (D,) [m], neighbours ``spacing_m`` apart.

    All have the height of the centre. No two places are nearer than the spacing.

    Raises:
        TestudoError: no robots, or a number is not finite or out of range.
    """
    if not all(map(math.isfinite, (*centre_world, heading_rad))) or not 0 < spacing_m < math.inf or count < 1:
        raise TestudoError(
            f"formation: found {count} robots at {centre_world}, spacing {spacing_m} m, heading {heading_rad} rad, "
            "expected robots, finite numbers and a spacing above 0"
        )
    ahead_left = _PLACES[formation](count, spacing_m)
    # the centre of the places, except of a circle, which has it in any case
    middle = [sum(values) / count for values in zip(*ahead_left, strict=True)]
    cos, sin = math.cos(heading_rad), math.sin(heading_rad)
    found: list[tuple[float, ...]] = []
    for place in ahead_left:
        ahead, left = (value - mean for value, mean in zip(place, middle, strict=True))
        x, y = cos * ahead - sin * left, sin * ahead + cos * left
        found.append((centre_world[0] + x, centre_world[1] + y, *centre_world[2:]))
    return tuple(found)


def _line(count: int, spacing_m: float) -> list[tuple[float, float]]:
    return [(0.0, -spacing_m * k) for k in range(count)]


def _column(count: int, spacing_m: float) -> list[tuple[float, float]]:
    return [(-spacing_m * k, 0.0) for k in range(count)]


def _circle(count: int, spacing_m: float) -> list[tuple[float, float]]:
    radius_m = spacing_m / (2 * math.sin(math.pi / count)) if count > 1 else 0.0
    turns = [math.tau * k / count for k in range(count)]
    return [(radius_m * math.cos(turn), radius_m * math.sin(turn)) for turn in turns]


def _wedge(count: int, spacing_m: float) -> list[tuple[float, float]]:
    """Right angle at the tip: two robots of one row are at least as far apart as neighbours of a wing."""
    step = spacing_m / math.sqrt(2)
    rows = [(k + 1) // 2 for k in range(count)]
    return [(-step * row, step * row * (1 if k % 2 else -1)) for k, row in enumerate(rows)]


_PLACES = {
    Formation.LINE: _line,
    Formation.COLUMN: _column,
    Formation.CIRCLE: _circle,
    Formation.WEDGE: _wedge,
}
