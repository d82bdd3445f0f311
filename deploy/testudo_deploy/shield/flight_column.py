"""What take-off and landing need of the shield: a column of space in the arena, and an arena without its floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from testudo_deploy.shield.obstacles import segment_clearance
from testudo_deploy.shield.peer_table import PeerTable
from testudo_deploy.shield.reserved_space import ReservedSpace
from testudo_deploy.shield.segment_distance import point_distance, squeezed
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.tube_margins import StopTubeParameters
from testudo_deploy.shield.wall_constraints import Arena
from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.spec import RobotSpec

_BELOW_M = 10.0
"""The floor of a landing's arena lies so far below the arena's own: the ground, and not a wall, ends the way down."""


def column_below(space: ReservedSpace, top_m: float) -> ReservedSpace:
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


def requesting_landing_column(space: ReservedSpace, place_world: Array, ground_m: float) -> ReservedSpace:
    """Return the space of a robot whose vehicle lands by itself: it asks for the column below it, never to take it.

    Nobody may ask for what another one asks for, so that nobody comes into the column; what is owned stays, since a
    robot in whose space another one's appears would brake there. Arrays (2, 3) and (3,).
    """
    xp = array_namespace(space.owned_world)
    ground = xp.asarray(ground_m, dtype=place_world.dtype)
    foot = stacked(place_world[0], place_world[1], xp.where(place_world[2] < ground, place_world[2], ground))
    return replace(space, announced_world=stacked(place_world, foot), pending=0 * space.since > 0)


def unknown_robots_near(spec: RobotSpec, space: StopTubeParameters, lane_world: Array, table: PeerTable) -> Array:
    """Return which neighbours (K,) keep to no contract and can be in the lane of a take-off, ends (2, D), by now.

    From where each was seen it goes at its highest speed until the vehicle would follow another command.
    """
    xp = array_namespace(lane_world)
    if table.untrusted is None:
        return xp.zeros(table.age_s.shape, dtype=bool)
    ends = squeezed(lane_world, space.height_ratio, 1)[:, :, None]
    seen = squeezed(table.control_point_world, space.height_ratio)
    reach_m = space.untrusted_speed_m_s * (table.age_s + spec.command_delay_s + spec.hold_s)
    near = ~(point_distance(seen, ends[0, ...], ends[1, ...]) >= space.untrusted_m + reach_m)
    return near & table.untrusted


@dataclass(frozen=True)
class ClimbVolume:
    """Where a column may stand: no shield looks at a climb by the vehicle's own planner."""

    arena: Arena | None
    """None: a world without walls and obstacles."""
    wall_m: float
    """Kept from walls and obstacles: `StopTubeParameters.wall_m`."""

    def fault(self, foot_world: Sequence[float], top_m: float) -> str:
        """Return why the way straight up from a place (3,) [m] to a height [m] may not be flown; empty if it may.

        The foot may be as near to the floor as the vehicle stands; walls, ceiling and obstacles keep their distance.
        """
        arena = self.arena
        if arena is None:
            return ""
        top_world = (*foot_world[:2], top_m)
        for axis, found, low, high in zip("xyz", top_world, arena.low_world, arena.high_world, strict=False):
            least, most = low + self.wall_m, high - self.wall_m
            if not least <= found <= most:
                return f"found {axis} = {found:.2f} m at the end of the climb, allowed {least:.2f} to {most:.2f} m"
        for number, obstacle in enumerate(arena.obstacles):
            away_m = float(segment_clearance(obstacle, np.array(foot_world, float), np.array(top_world, float)))
            if not away_m >= self.wall_m:
                return (
                    f"found {max(away_m, 0.0):.2f} m from obstacle {number} ({obstacle.kind}) on the way up to "
                    f"{top_m:.2f} m, allowed {self.wall_m:.2f} m or more"
                )
        return ""


def landing_shield(shield: Shield) -> Shield:
    """Return the shield of a robot that lands: everything but the floor of its arena holds it."""
    arena = shield.arena
    if arena is None or len(arena.low_world) < 3:
        return shield
    low = (*arena.low_world[:2], arena.low_world[2] - _BELOW_M)
    return replace(shield, arena=replace(arena, low_world=low))
