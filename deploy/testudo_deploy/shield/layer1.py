"""Layer 1: the nearest control-point velocity that keeps its share of every gap (shield.md).

Standing still is always allowed. Where a gap has come out negative, the row asks for a retreat: a row that
only forbade the approach would let errors of direction (held arcs, unequal scales) creep inwards for ever.
If the retreats contradict each other, the robot stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from testudo_deploy.neighbours import NeighbourTable, extrapolated
from testudo_deploy.shield.margins import ShieldParameters
from testudo_deploy.shield.projection import project
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import MotionModel, StoppingPoint
from testudo_hardware.motion.model import actuator_command
from testudo_hardware.motion.state import sum_terms

_TINY = 1e-9
_TOUCHED_M_S = 1e-4
_VIOLATION_M_S = 1e-4
RETREAT_SHARE = 0.3
"""Fastest retreat as a share of the control-point speed; above what errors of direction can creep."""


class ShieldStatus(IntEnum):
    """What the shield did with the nominal command."""

    PASSED = 0
    PROJECTED = 1
    BRAKED = 2


@dataclass(frozen=True)
class Arena:
    """The box that control points stay in; None is a world without walls."""

    low_world: tuple[float, ...]
    """(D,) [m]."""
    high_world: tuple[float, ...]
    """(D,) [m]."""


@dataclass(frozen=True)
class ShieldResult:
    """What leaves the shield; batch shape (...)."""

    command: Array
    """(D, ...): actuator command."""
    control_velocity_world: Array
    """(D, ...) [m/s]: velocity of the control point that the command causes."""
    change_m_s: Array
    """(...) [m/s]: how far it is from the nominal one."""
    status: Array
    """(...) int: `ShieldStatus`."""


def shield_layer1(model: MotionModel, parameters: ShieldParameters, arena: Arena | None,
                  stop: StoppingPoint, neighbours: NeighbourTable, nominal_world: Array) -> ShieldResult:
    """Return the shielded command.

    Args:
        model: the robot's motion model.
        parameters: margins and rates.
        arena: walls.
        stop: the robot's stopping point, pending commands included; arrays (D, ...).
        neighbours: the table, slots (K, ...).
        nominal_world: wanted velocity of the control point (D, ...) [m/s].
    """
    xp = array_namespace(nominal_world)
    table_rows, cap = pair_rows(parameters, stop, neighbours)
    retreat = -RETREAT_SHARE * model.spec.control_point_speed_m_s
    normals, bounds, firm = [], [], []
    for rows in (table_rows, wall_rows(parameters, arena, stop)):
        if rows is not None:
            normals.append(rows[0])
            bounds.append(xp.maximum(rows[1], retreat + 0 * rows[1]))
            firm.append(xp.maximum(rows[1], 0 * rows[1]))
    limits = model.limit_rows(stop)
    if limits is not None:
        normals.append(limits[0])
        bounds.append(limits[1])
        firm.append(limits[1])
    all_normals, all_bounds = xp.concat(normals, axis=1), xp.concat(bounds, axis=0)
    target = _within_speed(nominal_world, model.spec.control_point_speed_m_s)
    velocity, _ = project(target, all_normals, all_bounds)  # zero if the retreats contradict each other
    velocity = _scaled_back(model, stop, velocity, cap)
    values = sum_terms([all_normals[d, ...] * velocity[d, ...] for d in range(velocity.shape[0])])
    kept = xp.all(values <= xp.concat(firm, axis=0) + _VIOLATION_M_S, axis=0)
    command = actuator_command(model, stop, velocity)
    # a comparison with NaN is false, so that anything not finite ends in `sound` being false
    sound = kept & xp.all(xp.abs(command) < xp.inf, axis=0) & xp.all(
        xp.abs(nominal_world) < xp.inf, axis=0)
    velocity = xp.where(sound, velocity, xp.zeros_like(velocity))
    command = xp.where(sound, command, xp.zeros_like(command))
    change = _length(velocity - nominal_world)
    status = xp.where(sound, xp.where(change > _TOUCHED_M_S, int(ShieldStatus.PROJECTED),
                                      int(ShieldStatus.PASSED)), int(ShieldStatus.BRAKED))
    return ShieldResult(command, velocity, xp.where(sound, change, xp.zeros_like(change)), status)


def gap_to_peers(parameters: ShieldParameters, stop: StoppingPoint, neighbours: NeighbourTable
                 ) -> tuple[Array, Array]:
    """Return the gap h (K, ...) [m] that is left to each peer, and the unit vector from it (D, K, ...)."""
    xp = array_namespace(neighbours.age_s)
    offset = stop.position_world[:, None, ...] - extrapolated(neighbours, parameters.hold_s)
    distance = _length(offset)
    time_s = neighbours.age_s
    announced = _length(neighbours.control_velocity_world)
    by_acceleration = parameters.peer_acceleration_m_s2 * time_s * (0.5 * time_s + parameters.peer_lag_s)
    by_speed = (parameters.peer_speed_m_s + announced) * time_s
    reach = parameters.direction_factor * xp.minimum(by_acceleration, by_speed)
    gap = distance - parameters.separation_m - reach
    return gap, offset / (distance + _TINY)


def pair_rows(parameters: ShieldParameters, stop: StoppingPoint, neighbours: NeighbourTable
               ) -> tuple[tuple[Array, Array], Array | None]:
    """Return rows of the nearest peers, and the speed cap (...) that covers the others (None if none)."""
    xp = array_namespace(neighbours.age_s)
    gap, away = gap_to_peers(parameters, stop, neighbours)
    rate = parameters.gap_share / (2 * parameters.hold_s)
    gap = xp.where(neighbours.valid, gap, xp.full_like(gap, 1e3))
    cap = None
    if gap.shape[0] > parameters.neighbour_rows:
        order = xp.argsort(gap, axis=0)
        nearest = order[:parameters.neighbour_rows, ...]
        left_out = xp.take_along_axis(gap, order[parameters.neighbour_rows:parameters.neighbour_rows + 1, ...],
                                      axis=0)[0, ...]
        known = xp.all(xp.abs(gap) < xp.inf, axis=0)  # what is not finite sorts last, where no row would see it
        cap = xp.where(known, rate * xp.maximum(left_out, 0 * left_out), xp.nan + 0 * left_out)
        gap = xp.take_along_axis(gap, nearest, axis=0)
        away = xp.stack([xp.take_along_axis(away[d, ...], nearest, axis=0) for d in range(away.shape[0])])
    return (-away, rate * gap), cap


def wall_rows(parameters: ShieldParameters, arena: Arena | None, stop: StoppingPoint
               ) -> tuple[Array, Array] | None:
    """Return two rows for each axis of the arena; walls take the whole share, since they do not move."""
    if arena is None:
        return None
    xp = array_namespace(stop.position_world)
    q = stop.position_world
    size, batch = q.shape[0], q.shape[1:]
    rate = parameters.gap_share / parameters.hold_s
    low, high = (xp.reshape(xp.asarray(edge, dtype=q.dtype), (size,) + (1,) * len(batch))
                 for edge in (arena.low_world, arena.high_world))
    gap = xp.concat([high - q, q - low], axis=0) - parameters.wall_m
    unit = xp.eye(size, dtype=q.dtype)
    outward = xp.reshape(xp.concat([unit, -unit], axis=1), (size, 2 * size) + (1,) * len(batch))
    return xp.broadcast_to(outward, (size, 2 * size, *batch)), rate * xp.maximum(gap, 0 * gap)


def _scaled_back(model: MotionModel, stop: StoppingPoint, velocity: Array, cap: Array | None) -> Array:
    """Shorten ``velocity`` to the cap and to what the acceleration allows; shorter keeps every row."""
    xp = array_namespace(velocity)
    if cap is not None:
        length = _length(velocity)
        velocity = velocity * xp.minimum(xp.ones_like(length), cap / (length + _TINY))
    share = model.braking_share(stop, velocity)
    return velocity if share is None else velocity * share


def _within_speed(vector: Array, limit: float) -> Array:
    xp = array_namespace(vector)
    length = _length(vector)
    return vector * xp.minimum(xp.ones_like(length), limit / (length + _TINY))


def _length(vector: Array) -> Array:
    xp = array_namespace(vector)
    return xp.sqrt(sum_terms([vector[d, ...] ** 2 for d in range(vector.shape[0])]))
