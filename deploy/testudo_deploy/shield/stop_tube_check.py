"""The stop-tube check (layer 2): the first of a command and shorter ones whose stop tube is clear, or a brake."""

from dataclasses import dataclass

import numpy as np

from testudo_deploy.shield.arena import Arena, clearances, hull_clearances
from testudo_deploy.shield.geometry import point_distance, z_scaled
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube, tube_segments
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.arrays import Array, all_of, any_of, array_namespace, is_numpy, known_false, min_of, stacked
from testudo_hardware.motion import MotionModel, MotionState, StoppingPoint
from testudo_hardware.motion.motion_model import actuator_command, brake_time_s, effective_command
from testudo_hardware.motion.motion_state import length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

FACTORS = (1.0, 0.6, 0.3, 0.1, 0.0)  # shares of the velocity that are tried in this order; the last is the brake
_AWAY = 0.2
"""A robot too near to a wall moves away by at least this share of its path: no direction is wrong by 11 degrees."""


@dataclass(frozen=True)
class CommandCandidates:
    """The commands that are tried; C is the number of `FACTORS`."""

    velocity_world: Array  # (D, C, ...) [m/s]: of the control point
    command: Array  # (D, C, ...): for the actuators
    tube_world: Array  # (D, P, C, ...) [m]: see `stop_tube`


def command_candidates(
    model: MotionModel,
    space: StopTubeParameters,
    measured_position_world: Array,
    estimate: MotionState,
    stop: StoppingPoint,
    velocity_world: Array,
) -> CommandCandidates:
    """Return the velocity (D, ...) and its shorter versions with their commands and tubes."""
    xp = array_namespace(velocity_world)
    factors = xp.reshape(
        xp.asarray(np.array(FACTORS), dtype=velocity_world.dtype), (1, len(FACTORS)) + (1,) * (velocity_world.ndim - 1)
    )
    velocity = factors * velocity_world[:, None, ...]
    command = actuator_command(model, _with_candidates(stop), velocity)
    tube = stop_tube(
        model,
        measured_position_world[:, None, ...],
        _with_candidates(estimate),
        effective_command(model, command),
        space.hold_ticks,
        space.sample_ticks,
    )
    return CommandCandidates(velocity, command, tube)


def _with_candidates[Values: (MotionState, StoppingPoint)](values: Values) -> Values:
    """Return a state or stopping point with an axis for the candidates before the batch."""
    return type(values)(
        **{name: value[(slice(None),) * _COMPONENTS.get(name, 1) + (None,)] for name, value in vars(values).items()}
    )


_COMPONENTS = {"yaw": 0, "jacobian": 2, "inverse": 2}  # component axes of a field; one if it is not here


def within_segment(tube_world: Array, segment_world: Array, lane_m: float, height_ratio: float) -> Array:
    """Return whether tubes (D, P, C, ...) lie within a segment with ends (2, D, ...), half-width [m]: (C, ...)."""
    ends = z_scaled(segment_world, height_ratio, 1)[:, :, None, None, ...]
    tube = z_scaled(tube_world, height_ratio)
    return all_of(point_distance(tube, ends[0, ...], ends[1, ...]) <= lane_m, axis=0)


def within_walls(tube_world: Array, arena: Arena | None, wall_m: float) -> Array:
    """Return whether tubes (D, P, C, ...) keep their distance from walls and obstacles: (C, ...).

    A tube is the hull of its points. The arena is convex, so that points inside it have their hull inside; an obstacle
    may lie between points that are all far from it, so that the hull itself is compared.
    """
    xp = array_namespace(tube_world)
    inside = all_of(tube_world[0, ...] < xp.inf, axis=0)
    if arena is None:
        return inside
    low, high = arena.corners(tube_world)
    inside = inside & all_of((tube_world >= low + wall_m) & (tube_world <= high - wall_m), axis=(0, 1))
    if arena.obstacles:
        inside = inside & all_of(hull_clearances(arena.groups, tube_world) >= wall_m, axis=0)
    return inside


def within_walls_or_away(tube_world: Array, arena: Arena | None, wall_m: float) -> Array:
    """Return the same as `within_walls`, and also tubes that lead away a robot that is too near already: (C, ...).

    The last tube is the brake's, which runs if no other does. Where that one is too near to a wall or an obstacle, a
    tube that comes no nearer passes if it ends farther away, by `_AWAY` of its path beyond the brake's: a path along
    the wall could come nearer by errors of direction. Without this rule a drone that brakes there would keep sinking,
    by its controller's drift (`hover_drift_m_s`) and in the downwash of others, and a wheeled robot would stand there
    for good.
    """
    xp = array_namespace(tube_world)
    if is_numpy(tube_world) or arena is None:
        far = within_walls(tube_world, arena, wall_m)
        if arena is None or far.all():
            return far
    passes = all_of(tube_world[0, ...] < xp.inf, axis=0)
    rest = tube_world[:, -1, ...]
    way = rest - rest[:, -1:, ...]
    least = _AWAY * length(way)
    low, high = (corner[:, 0, ...] for corner in arena.corners(tube_world))
    for sign, limit in ((1.0, low + wall_m), (-1.0, -(high - wall_m))):
        nearest = min_of(sign * tube_world, axis=1)
        brake = nearest[:, -1:, ...]
        away = (nearest >= brake) & (sign * way >= least[None, ...])
        passes = passes & all_of((nearest >= limit) | ((brake < limit) & away), axis=0)
    if arena.obstacles:
        nearest, ends = hull_clearances(arena.groups, tube_world), clearances(arena.groups, rest)[0]
        brake = nearest[:, -1:, ...]
        away = (nearest >= brake) & (ends - ends[:, -1:, ...] >= least)
        passes = passes & all_of((nearest >= wall_m) | ((brake < wall_m) & away), axis=0)
    return passes


def clear_of_untrusted(
    model: MotionModel,
    space: StopTubeParameters,
    tube_world: Array,
    velocity_world: Array,
    estimate: MotionState,
    table: PeerTable,
) -> Array:
    """Return whether the robot rests before an untrusted neighbour can be on its tube (rule R5): (C, ...).

    Tubes (D, P, C, ...), velocities of the control point (D, C, ...) [m/s], arrays of the estimate (D, ...), slots of
    the table (K, ...). A slow command does not make a fast robot rest sooner, so that the estimate's speed counts, too.

    The lines of a tube stand for every moment of a stop. One between two ticks leads to rest beside both lines by half
    their distance at most, T/2 times the speed of the resting place; it also comes to rest earlier than the end of the
    hold, and the braking time counts the lag's decay and the braking at the limit one after the other: the untrusted
    body's way in that time is longer.
    """
    xp = array_namespace(tube_world)
    if table.untrusted is None or known_false(table.untrusted):
        return all_of(tube_world[0, ...] < xp.inf, axis=0)
    reach = space.untrusted_speed_m_s * (table.age_s[:, None, ...] + _rest_s(model.spec, velocity_world, estimate))
    # distance to the lines of the tube: its points can be far apart
    starts, ends = tube_segments(z_scaled(tube_world, space.height_ratio), space.hold_ticks)
    seen = z_scaled(table.control_point_world, space.height_ratio)[:, :, None, None, ...]
    distance = point_distance(seen, starts[:, None, ...], ends[:, None, ...])
    near = ~(min_of(distance, axis=1) >= space.untrusted_m + reach)
    return ~any_of(near & table.untrusted[:, None, ...], axis=0)


def clear_of_bodies(
    model: MotionModel, space: StopTubeParameters, tried: CommandCandidates, estimate: MotionState, bodies: SensedBodies
) -> Array:
    """Return whether the robot rests before a body that ranges see, and no map knows, can touch it: (C, ...).

    As rule R5, for points of a surface in place of the middle of a body: the margin is that of an obstacle. Among
    bodies that stand still a robot that is too near by noise may leave, as in `within_walls_or_away`.
    """
    xp = array_namespace(tried.tube_world)
    age_s = xp.broadcast_to(bodies.age_s, bodies.there.shape)[:, None, ...]
    reach = bodies.speed_m_s * (age_s + _rest_s(model.spec, tried.velocity_world, estimate))
    starts, ends = tube_segments(tried.tube_world, space.hold_ticks)
    seen = bodies.point_world[:, :, None, None, ...]
    distance = min_of(point_distance(seen, starts[:, None, ...], ends[:, None, ...]), axis=1)
    rest = tried.tube_world[:, -1, ...]
    left = length(rest[:, None, ...] - bodies.point_world[:, :, None, ...])
    farther = left - left[:, -1:, ...] >= (_AWAY * length(rest - rest[:, -1:, ...]))[None, ...]
    away = (distance >= distance[:, -1:, ...]) & farther & (bodies.speed_m_s <= 0)
    near = ~((distance >= space.wall_m + reach) | away)
    return ~any_of(near & bodies.there[:, None, ...], axis=0)


def _rest_s(spec: RobotSpec, velocity_world: Array, estimate: MotionState) -> Array:
    """Return how long from now until a robot rests that gets commands (D, C, ...) [m/s]: (1, C, ...)."""
    xp = array_namespace(velocity_world)
    return rest_time_s(spec, xp.maximum(length(velocity_world), _speed(spec, estimate)[None, ...]))[None, ...]


def rest_time_s(spec: RobotSpec, speed_m_s: Array) -> Array:
    """Return how long from now until a robot rests, below 1 cm/s, that gets commands of a speed (...) [m/s]."""
    return spec.command_delay_s + spec.hold_s + spec.coast_s + brake_time_s(spec, speed_m_s)


def _speed(spec: RobotSpec, state: MotionState) -> Array:
    """Return the speed (...) [m/s] of the control point."""
    if spec.kind != DIFFERENTIAL_DRIVE:
        return length(state.velocity)
    return length(stacked(state.velocity[0, ...], spec.look_ahead_m * state.velocity[1, ...]))
