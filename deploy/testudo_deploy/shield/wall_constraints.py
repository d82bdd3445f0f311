"""What stands still, as rows of layer 1: the walls of the arena and the obstacles in it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from testudo_deploy.shield.obstacles import Obstacle, clearance
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.files.strict_json import OPTIONAL
from testudo_hardware.motion import StoppingPoint

_OUTWARD = {size: np.concatenate([np.eye(size), -np.eye(size)], axis=1) for size in (2, 3)}
"""Outward normals (D, 2 D) of a box: upper walls, then lower ones."""


@dataclass(frozen=True)
class Arena:
    """The box that robots stay in, and what stands in it; None is a world without either."""

    low_world: tuple[float, ...]
    """(D,) [m]."""
    high_world: tuple[float, ...]
    """(D,) [m]."""
    obstacles: tuple[Obstacle, ...] = field(default=(), metadata=OPTIONAL)
    """What robots must stay off."""

    def corners(self, like: Array) -> tuple[Array, Array]:
        """Return the low and the high corner [m] in the shape that goes with ``like`` (D, ...): (D, 1, ...) each."""
        xp = array_namespace(like)
        column = (len(self.low_world),) + (1,) * (like.ndim - 1)
        low, high = (
            xp.reshape(xp.asarray(corner, dtype=like.dtype), column) for corner in (self.low_world, self.high_world)
        )
        return low, high


def wall_rows(parameters: ProjectionParameters, arena: Arena | None, stop: StoppingPoint) -> tuple[Array, Array] | None:
    """Return two rows for each axis of the arena; walls take the whole share, since they do not move."""
    if arena is None:
        return None
    xp = array_namespace(stop.position_world)
    q = stop.position_world
    size, batch = q.shape[0], q.shape[1:]
    rate = parameters.gap_share / parameters.reach_s
    column = (2 * size,) + (1,) * len(batch)
    limits = xp.reshape(xp.asarray((*arena.high_world, *(-x for x in arena.low_world)), dtype=q.dtype), column)
    gap = limits - parameters.wall_m - xp.concat([q, -q], axis=0)
    outward = xp.reshape(xp.asarray(_OUTWARD[size], dtype=q.dtype), (size, *column))
    return xp.broadcast_to(outward, (size, 2 * size, *batch)), rate * gap


def obstacle_rows(
    parameters: ProjectionParameters, arena: Arena | None, stop: StoppingPoint
) -> tuple[Array, Array] | None:
    """Return a row for each obstacle: the control point closes in by its share of the gap in a hold at most.

    Let x be the obstacle's point nearest to q, n the unit vector from q to x, and d their distance. An obstacle is
    convex, so that all of it lies beyond the plane through x across n. The row n . q' <= gap_share (d - margin) /
    hold therefore bounds the distance to all of it, not to x alone: after a time t of the hold q is at least
    d - t n . q' >= margin + (1 - gap_share t / hold) (d - margin) before that plane, whatever the motion along it.
    The margin is that of walls, and so is the share: obstacles do not move either.
    """
    if arena is None or not arena.obstacles:
        return None
    xp = array_namespace(stop.position_world)
    found = [clearance(obstacle, stop.position_world) for obstacle in arena.obstacles]
    rate = parameters.gap_share / parameters.reach_s
    gap = xp.stack([distance for distance, _ in found]) - parameters.wall_m
    return xp.stack([-away for _, away in found], axis=1), rate * gap
