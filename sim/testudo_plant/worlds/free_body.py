"""A free body of a scenario; without JAX, which the plant's process does not need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A free body of a scenario: it stands on the floor and can be pushed."""

    name: str
    size_m: tuple[float, float, float]
    """Length, width and height."""
    mass_kg: float
    friction: float = 0.3
    """Sliding friction on the floor [1]."""
