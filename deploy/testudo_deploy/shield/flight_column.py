"""Take-off and landing: the column of space that a vehicle needs, and how far a climb may leave it.

The vehicle's own planner flies a climb, so that the shield does not check it. What is checked before is the way
straight up from where the vehicle stands to its start height; others keep clear of that column by the errors of a stop
tube. The limits of the climb are half of these errors: the rest is for the brake.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from testudo_deploy.shield.arena import Arena, segment_clearance
from testudo_deploy.shield.geometry import point_distance, z_scaled
from testudo_deploy.shield.reservations import ReservedSpace
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec

_BELOW_M = 10.0
"""The floor of a landing's arena is this far below the arena's own: the ground, not a wall, ends the descent."""


def column_below(space: ReservedSpace, top_m: float) -> ReservedSpace:
    """Return the space of a robot at rest that also reserves the column straight up to a height.

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
    """Return the space of a robot whose vehicle lands by itself: it requests the column below it without reserving it.

    No robot may request what another one requests, so that none enters the column. The reserved space stays, since
    another robot brakes when a reservation appears in its own. Arrays (2, 3) and (3,).
    """
    xp = array_namespace(space.owned_world)
    ground = xp.asarray(ground_m, dtype=place_world.dtype)
    foot = stacked(place_world[0], place_world[1], xp.where(place_world[2] < ground, place_world[2], ground))
    return replace(space, announced_world=stacked(place_world, foot), pending=0 * space.since > 0)


def with_landing_column(space: ReservedSpace, anchor: MotionState | None, ground_m: float | None) -> ReservedSpace:
    """Return the space with the request of a vehicle that lands by itself, if it does and has a place."""
    if anchor is None or ground_m is None:
        return space
    return requesting_landing_column(space, np.asarray(anchor.position_world, float), ground_m)


def unknown_robots_near(spec: RobotSpec, space: StopTubeParameters, segment_world: Array, table: PeerTable) -> Array:
    """Return which untrusted neighbours (K,) can be in the segment of a take-off, ends (2, D), by now.

    From where it was measured, each moves at its highest speed until the vehicle can follow another command.
    """
    xp = array_namespace(segment_world)
    if table.untrusted is None:
        return xp.zeros(table.age_s.shape, dtype=bool)
    ends = z_scaled(segment_world, space.height_ratio, 1)[:, :, None]
    seen = z_scaled(table.control_point_world, space.height_ratio)
    reach_m = space.untrusted_speed_m_s * (table.age_s + spec.command_delay_s + spec.hold_s)
    near = ~(point_distance(seen, ends[0, ...], ends[1, ...]) >= space.untrusted_m + reach_m)
    return near & table.untrusted


@dataclass(frozen=True)
class ClimbVolume:
    """Where a column may be; the shield does not check a climb by the vehicle's own planner."""

    arena: Arena | None  # none: a world without walls and obstacles
    wall_m: float  # distance kept from walls and obstacles: `StopTubeParameters.wall_m`

    def fault(self, foot_world: Sequence[float], top_m: float) -> str:
        """Return why the vehicle must not climb straight up from a place (3,) [m] to a height [m]; empty if it may.

        The lower end may be at the floor; walls, ceiling and obstacles keep their distance.
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
    """Return the shield of a robot that lands: all of it but the floor of the arena."""
    arena = shield.arena
    if arena is None or len(arena.low_world) < 3:
        return shield
    low = (*arena.low_world[:2], arena.low_world[2] - _BELOW_M)
    return replace(shield, arena=replace(arena, low_world=low))


_SHARE = 0.5  # share of the error of a tube; the rest is for the time until the vehicle rests again


@dataclass(frozen=True)
class ClimbLimits:
    """How far a climbing vehicle may be from its column."""

    beside_m: float
    above_m: float  # above the end of the column, where it comes to rest
    highest_m: float  # height at which it has to rest under the ceiling of its arena; infinite without one
    reaction_s: float  # time for which a climb continues unchanged after a brake was sent
    deceleration_m_s2: float

    @staticmethod
    def of(spec: RobotSpec, room: ClimbVolume | None) -> ClimbLimits:
        """Return the limits of a robot in the volume of its climb."""
        space = stop_tube_parameters(spec)
        spare_m = _SHARE * space.tube_error_m
        beside_m = space.lane_m + spare_m
        highest_m = math.inf
        if room is not None and room.arena is not None and len(room.arena.high_world) > 2:
            highest_m = room.arena.high_world[2] - room.wall_m + spare_m
        reaction_s = sum(spec.quantities[f"dynamics.{key}"].high for key in ("command_delay", "velocity_lag"))
        # others count heights 1/height_ratio
        return ClimbLimits(beside_m, space.height_ratio * beside_m, highest_m, reaction_s, spec.acceleration_limit_m_s2)

    def fault(self, foot_world: Sequence[float], top_m: float, place_world: Sequence[float], climb_m_s: float) -> str:
        """Return how a vehicle leaves its column; empty if it stays in it.

        It stood at ``foot_world`` and is at ``place_world``, (3,) [m]; ``top_m`` is the height of the column's end.
        """
        beside_m = math.dist(foot_world[:2], place_world[:2])
        if not beside_m <= self.beside_m:
            return f"found {beside_m:.2f} m beside its column, allowed {self.beside_m:.2f} m"
        up_m_s = 0.0 if climb_m_s < 0 else climb_m_s  # NaN stays NaN
        rest_m = place_world[2] + up_m_s * self.reaction_s + up_m_s**2 / (2 * self.deceleration_m_s2)
        most_m = min(top_m + self.above_m, self.highest_m)
        if not rest_m <= most_m:
            return (
                f"found {place_world[2]:.2f} m of height, rising by {climb_m_s:.2f} m/s, so that it rests at "
                f"{rest_m:.2f} m; allowed {most_m:.2f} m"
            )
        return ""
