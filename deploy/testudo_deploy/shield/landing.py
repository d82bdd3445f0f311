"""What take-off and landing need of the shield: a column of owned space, and an arena without its floor."""

from __future__ import annotations

from dataclasses import replace

from testudo_deploy.shield.space import OwnSpace
from testudo_deploy.shield.stack import Shield
from testudo_hardware.arrays import array_namespace, stacked

_BELOW_M = 10.0
"""The floor of a landing's arena lies so far below the arena's own: the ground, and not a wall, ends the way down."""


def column_below(space: OwnSpace, top_m: float) -> OwnSpace:
    """Return the space of a robot at rest that also owns the way straight up to a height.

    Args:
        space: of one robot at rest, see `at_rest`; arrays (2, 3).
        top_m: z of the upper end [m]; where the robot is higher, nothing is added.
    """
    xp = array_namespace(space.owned_world)
    foot = space.owned_world[0, ...]
    above = xp.where(foot[2] > top_m, foot[2], xp.asarray(top_m, dtype=foot.dtype))
    top = stacked(foot[0], foot[1], above)
    return replace(space, owned_world=stacked(foot, top), announced_world=stacked(foot, foot))


def landing_shield(shield: Shield) -> Shield:
    """Return the shield of a robot that lands: everything but the floor of its arena holds it."""
    arena = shield.arena
    if arena is None or len(arena.low_world) < 3:
        return shield
    low = (*arena.low_world[:2], arena.low_world[2] - _BELOW_M)
    return replace(shield, arena=replace(arena, low_world=low))
