"""The watch over a climb: whether a vehicle that takes off by its own planner stays in the column that was checked.

No shield looks at a climb. What was checked before is the way straight up from where the vehicle stands to its start
height, and what others keep clear of is that column with the errors of a tube (shield.md). The watch speaks at half
of these errors: what is left is for the brake. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_deploy.shield.flight_column import ClimbVolume
from testudo_deploy.shield.tube_margins import stop_tube_parameters
from testudo_hardware.spec import RobotSpec

_SHARE = 0.5
"""Of the error of a tube; the rest is used up until the vehicle rests again."""


@dataclass(frozen=True)
class ClimbLimits:
    """How far a vehicle that climbs may be from its column."""

    beside_m: float
    above_m: float
    """Above the end of the column, where it comes to rest."""
    highest_m: float
    """Height at which it has to rest under the ceiling of its arena; infinite without one."""
    reaction_s: float
    """For so long a climb goes on as it is, once a brake was sent."""
    deceleration_m_s2: float

    @staticmethod
    def of(spec: RobotSpec, room: ClimbVolume | None) -> ClimbLimits:
        """Return the limits of a robot in the room of its climb."""
        space = stop_tube_parameters(spec)
        spare_m = _SHARE * space.tube_error_m
        beside_m = space.lane_m + spare_m
        arena = None if room is None else room.arena
        bounded = arena is not None and len(arena.high_world) > 2
        highest_m = arena.high_world[2] - room.wall_m + spare_m if bounded else math.inf
        reaction_s = sum(spec.quantities[f"dynamics.{key}"].high for key in ("command_delay", "velocity_lag"))
        # others count heights 1/height_ratio
        return ClimbLimits(beside_m, space.height_ratio * beside_m, highest_m, reaction_s, spec.acceleration_limit_m_s2)

    def fault(self, foot_world: Sequence[float], top_m: float, place_world: Sequence[float], climb_m_s: float) -> str:
        """Return how a vehicle leaves its column; empty if it stays in it.

        Args:
            foot_world: (3,) [m]: where it stood.
            top_m: height of the end of the column.
            place_world: (3,) [m]: where it is.
            climb_m_s: how fast it rises.
        """
        beside_m = math.dist(foot_world[:2], place_world[:2])
        if not beside_m <= self.beside_m:
            return f"found {beside_m:.2f} m beside its column, allowed {self.beside_m:.2f} m"
        up_m_s = 0.0 if climb_m_s < 0 else climb_m_s  # what is no number stays none
        rest_m = place_world[2] + up_m_s * self.reaction_s + up_m_s**2 / (2 * self.deceleration_m_s2)
        most_m = min(top_m + self.above_m, self.highest_m)
        if not rest_m <= most_m:
            return (
                f"found {place_world[2]:.2f} m of height, rising by {climb_m_s:.2f} m/s, so that it rests at "
                f"{rest_m:.2f} m; allowed {most_m:.2f} m"
            )
        return ""
