"""Layer 1: the nearest control-point velocity that keeps its share of every gap (docs/shield.md).

Zero velocity is always allowed. Where a gap is negative, the row requires a retreat: a row that only forbade the
approach would let errors of direction (held arcs, unequal scales) reduce the gap without end. If the retreats
contradict each other, the robot stands.
"""

from dataclasses import dataclass
from enum import IntEnum

from testudo_deploy.shield.arena import Arena, nearest_rows, obstacle_rows, wall_rows
from testudo_deploy.shield.geometry import project_onto_halfspaces, z_scaled
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.sensed_bodies import SensedBodies, body_rows
from testudo_hardware.arrays import Array, all_of, array_namespace, known_false, min_of
from testudo_hardware.motion import MotionModel, StoppingPoint
from testudo_hardware.motion.motion_model import actuator_command
from testudo_hardware.motion.motion_state import TINY, length, shorten, sum_terms


@dataclass(frozen=True)
class PeerTable:
    """One slot for each peer; component first, then slot, then batch."""

    control_point_world: Array  # (D, K, ...) [m]: the announced stopping point of the peer's control point
    control_velocity_world: Array  # (D, K, ...) [m/s]: the announced velocity of that point
    age_s: Array  # (K, ...) [s]: upper bound of the announcement's age
    valid: Array  # (K, ...) bool: the slot holds a peer that has been heard
    untrusted: Array | None = None
    """(K, ...) bool: a body that keeps to no contract; its point is where its middle was seen, its velocity zero.

    None: all are trusted.
    """
    farthest_m: Array | None = None
    """(K, ...) [m]: how far at most the control point is from the announced one, by the space that the peer owns.

    None: nothing is known of that.
    """
    wanted_world: Array | None = None
    """(D, K, ...) [m/s]: the velocity that the peer announced to want; only for the right of way. None: unknown."""
    message: Array | None = None
    """(M, K, ...) in -1 to 1: the peer's learned message, for the policy only; zero if it said nothing. None: no policy
    of the team has one."""


def update_peer_table(table: PeerTable, heard: PeerTable, period_s: float) -> PeerTable:
    """Return the table one tick later: slots that were heard (``heard.valid``) are taken, others age."""
    xp = array_namespace(table.age_s)
    new = heard.valid
    return PeerTable(
        xp.where(new[None, ...], heard.control_point_world, table.control_point_world),
        xp.where(new[None, ...], heard.control_velocity_world, table.control_velocity_world),
        xp.where(new, heard.age_s, table.age_s + period_s),
        table.valid | new,
        table.untrusted,
        table.farthest_m,
        message=None if table.message is None else xp.where(new[None, ...], heard.message, table.message),
    )


def extrapolated(table: PeerTable, limit_s: float) -> Array:
    """Return where the control points are now (D, K, ...) [m] if the announced velocity was kept.

    A silent peer brakes when its dead-man time is over, so that the motion ends after ``limit_s``.
    """
    xp = array_namespace(table.age_s)
    time_s = xp.minimum(table.age_s, limit_s)
    return table.control_point_world + table.control_velocity_world * time_s[None, ...]


_TOUCHED_M_S = 1e-4
_VIOLATION_M_S = 1e-4
_FAR_M = 1e3
RECENT_S = 0.5
"""A retreat makes room for at most what a peer can have done in this time; a robot does not flee from a silent peer."""
RETREAT_SHARE = 0.3  # fastest retreat as a share of the control-point speed; more than errors of direction can cause


class ShieldStatus(IntEnum):
    """How the shield changed the nominal command."""

    PASSED = 0
    PROJECTED = 1
    BRAKED = 2
    GATED = 3  # shortened by the stop-tube check
    WAITING = 4  # stands until its peers have acknowledged the segment that it requests


@dataclass(frozen=True)
class ShieldResult:
    """Output of the shield; batch shape (...)."""

    command: Array  # (D, ...): actuator command
    control_velocity_world: Array  # (D, ...) [m/s]: velocity of the control point that the command causes
    change_m_s: Array  # (...) [m/s]: its difference from the nominal one
    status: Array  # (...) int: `ShieldStatus`


def project_velocity(
    model: MotionModel,
    parameters: ProjectionParameters,
    arena: Arena | None,
    stop: StoppingPoint,
    neighbours: PeerTable,
    nominal_world: Array,
    bodies: SensedBodies | None = None,
) -> ShieldResult:
    """Return the shielded command.

    The stopping point includes pending commands, arrays (D, ...); slots of the table are (K, ...); ``nominal_world`` is
    the nominal velocity of the control point (D, ...) [m/s]; ``bodies`` are those that ranges see and no map knows.
    """
    xp = array_namespace(nominal_world)
    table_rows, cap, uncertainty = pair_rows(parameters, stop, neighbours)
    retreat = -RETREAT_SHARE * model.spec.control_point_speed_m_s
    normals: list[Array] = []
    bounds: list[Array] = []
    firm: list[Array] = []
    among = obstacle_rows(parameters, arena, stop)
    obstacles, obstacle_cap = (None, None) if among is None else nearest_rows(among)
    unknown, unknown_cap = (None, None) if bodies is None else nearest_rows(body_rows(parameters, stop, bodies))
    for rows in (table_rows, wall_rows(parameters, arena, stop), obstacles, unknown):
        if rows is not None:
            normals.append(rows[0])
            bounds.append(xp.maximum(rows[1], retreat))
            firm.append(xp.maximum(rows[1], 0.0))
    limits = model.limit_rows(stop)
    if limits is not None:
        normals.append(limits[0])
        bounds.append(limits[1])
        firm.append(limits[1])
    all_normals, all_bounds = xp.concat(normals, axis=1), xp.concat(bounds, axis=0)
    target = shorten(nominal_world, model.spec.control_point_speed_m_s)
    target = _slow_while_retreating(target, bounds[0] * uncertainty.share, uncertainty)
    velocity, _ = project_onto_halfspaces(target, all_normals, all_bounds)  # zero if the retreats contradict each other
    velocity = _within_uncertainty(velocity, table_rows[0], uncertainty)
    velocity = _scaled_back(model, stop, velocity, (cap, obstacle_cap, unknown_cap))
    values = sum_terms([all_normals[d, ...] * velocity[d, ...] for d in range(velocity.shape[0])])
    kept = all_of(values <= xp.concat(firm, axis=0) + _VIOLATION_M_S, axis=0)
    command = actuator_command(model, stop, velocity)
    change = length(velocity - nominal_world)
    # a comparison with NaN is false, so that anything not finite ends in `sound` being false
    sound = kept & all_of(xp.abs(command) < xp.inf, axis=0) & (change < xp.inf)
    velocity = xp.where(sound, velocity, 0.0)
    command = xp.where(sound, command, 0.0)
    status = xp.astype(change > _TOUCHED_M_S, xp.int32)  # PASSED or PROJECTED
    status = xp.where(sound, status, int(ShieldStatus.BRAKED))
    return ShieldResult(command, velocity, xp.where(sound, change, 0.0), status)


@dataclass(frozen=True)
class PeerUncertainty:
    """Uncertainty of each peer's place, which grows with the age of its message; arrays (K, ...)."""

    sine: Array  # [1]: share of the distance by which the peer can be elsewhere: the sine of its bearing's error
    allowed_m_s: Array  # highest speed towards the nearest place where it can be, zero or above, heights scaled
    share: Array  # [1]: speed towards it, heights scaled, over the speed along its row
    height_ratio: float


def pair_rows(
    parameters: ProjectionParameters, stop: StoppingPoint, neighbours: PeerTable
) -> tuple[tuple[Array, Array], Array | None, PeerUncertainty]:
    """Return rows of the nearest peers, a speed cap (...) that covers the others, and the uncertainty.

    With S the matrix that scales heights, distances are those of S times the offsets: the peer's side of the gap
    closes at n . S u, n the unit vector of S times the offset. The row is a = S n in the velocity u itself, brought to
    length one with its bound, so that the nearest velocity stays the nearest one.

    A bound is negative, asking for a retreat, where the margins are used up by what the peer can have done within
    `RECENT_S`.
    """
    xp = array_namespace(neighbours.age_s)
    kappa = parameters.direction_factor
    half = rate = parameters.gap_share / (2 * parameters.reach_s)
    point, reach = reachable_peer_positions(parameters, neighbours)
    offset = z_scaled(stop.position_world[:, None, ...] - point, parameters.height_ratio)
    distance = length(offset)
    away, share = _rows_along(offset / (distance + TINY), parameters.height_ratio)
    if neighbours.untrusted is not None:  # it does not avoid this robot, which keeps the whole gap
        rate = rate * (1.0 + xp.astype(neighbours.untrusted, distance.dtype))
    recent = xp.minimum(reach, parameters.peer_speed_m_s * RECENT_S)
    beyond = distance - parameters.separation_m
    gap, retreat_gap = beyond - kappa * reach, beyond - kappa * recent
    gap = xp.where(neighbours.valid, gap, _FAR_M)
    bounds = rate * xp.maximum(gap, xp.minimum(retreat_gap, 0.0))
    sine = xp.where(neighbours.valid, reach / (distance + TINY), 0.0)
    allowed = rate * xp.where(neighbours.valid, xp.maximum(beyond - reach, 0.0), _FAR_M)
    rows = parameters.neighbour_rows
    if gap.shape[0] <= rows:
        return (-away, bounds / share), None, PeerUncertainty(sine, allowed, share, parameters.height_ratio)
    order = xp.argsort(gap, axis=0, stable=True)  # NumPy's default order of equal gaps depends on the processor

    def nearest(values: Array) -> Array:
        return xp.take_along_axis(values, order[:rows, ...], axis=0)

    left_out = xp.take_along_axis(gap, order[rows : rows + 1, ...], axis=0)[0, ...]
    known = all_of(xp.abs(gap) < xp.inf, axis=0)  # what is not finite sorts last, where no row would see it
    cap = xp.where(known, half * xp.maximum(left_out, 0.0), xp.nan)
    away = xp.stack([nearest(away[d, ...]) for d in range(away.shape[0])])
    uncertainty = PeerUncertainty(nearest(sine), nearest(allowed), nearest(share), parameters.height_ratio)
    return (-away, nearest(bounds) / uncertainty.share), cap, uncertainty


def _rows_along(unit: Array, height_ratio: float) -> tuple[Array, Array]:
    """Return the rows S n of unit vectors n (D, K, ...), of length one, and the lengths that they had (K, ...)."""
    xp = array_namespace(unit)
    row = z_scaled(unit, height_ratio)
    if row is unit:
        return unit, xp.ones_like(unit[0, ...])
    # the length is zero only if the offset is zero: two control points at one place, with no direction between them
    size = xp.maximum(length(row), 0.1 / height_ratio + 0 * row[0, ...])
    return row / size, size


def reachable_peer_positions(parameters: ProjectionParameters, neighbours: PeerTable) -> tuple[Array, Array]:
    """Return balls that hold the peers' control points: middles (D, K, ...) [m] and radii (K, ...) [m].

    During its control tick a peer moves as announced. Of the time of sending only an upper bound is known, so the peer
    is on a part of its announced path. Afterwards it may move in any way up to top speed: a control point follows
    commands without delay, so no bound of acceleration holds. The space that it owns may restrict it further. An
    untrusted body may move in any way from the start, and during the hold, too, and no reserved space restricts it.
    """
    xp = array_namespace(neighbours.age_s)
    age = xp.where(neighbours.age_s >= 0, neighbours.age_s, xp.nan)  # a message from the future is invalid
    certain = xp.minimum(age, parameters.peer_period_s + 0 * age)
    if neighbours.untrusted is not None:
        age = xp.where(neighbours.untrusted, age + parameters.hold_s, age)
        certain = xp.where(neighbours.untrusted, 0 * age, certain)
    half_way = 0.5 * certain[None, ...] * neighbours.control_velocity_world
    on_way = length(half_way)
    reach = on_way + parameters.peer_speed_m_s * (age - certain)
    if neighbours.farthest_m is not None:
        within = xp.minimum(reach, neighbours.farthest_m + on_way)
        reach = within if neighbours.untrusted is None else xp.where(neighbours.untrusted, reach, within)
    return neighbours.control_point_world + half_way, reach


def _slow_while_retreating(target: Array, bounds: Array, uncertainty: PeerUncertainty) -> Array:
    """Shorten the target until the retreat of rows (K, ...), heights scaled, leads away from all places of the peer.

    Otherwise `_within_uncertainty` would stop the robot, and two robots would stand side by side permanently.
    """
    if uncertainty.sine.shape[0] == 0 or known_false(bounds < 0):
        return target
    xp = array_namespace(target)
    # a retreat r leaves sine * |v| <= r + allowed; without `allowed` a gap of rounding size below zero would stop it
    fastest = xp.minimum((uncertainty.allowed_m_s - bounds) / (uncertainty.sine + TINY), _FAR_M)
    beside = xp.where(bounds < 0, xp.sqrt(xp.maximum(fastest**2 - bounds**2, 0 * bounds)), _FAR_M)
    return shorten(target, min_of(beside, axis=0))


def _within_uncertainty(velocity: Array, towards_peer: Array, uncertainty: PeerUncertainty) -> Array:
    """Shorten ``velocity`` until it is slow enough towards every place where a peer can be.

    With fresh messages the rows ensure that. An old message leaves the peer's place so uncertain that finally only
    standing still is safe.
    """
    if uncertainty.sine.shape[0] == 0:
        return velocity
    xp = array_namespace(velocity)
    towards = sum_terms([towards_peer[d, ...] * velocity[d, None, ...] for d in range(velocity.shape[0])])
    fastest = (
        uncertainty.share * towards + uncertainty.sine * length(z_scaled(velocity, uncertainty.height_ratio))[None, ...]
    )
    over = fastest > uncertainty.allowed_m_s
    if known_false(over):
        return velocity
    share = xp.where(over, uncertainty.allowed_m_s / xp.where(over, fastest, 1.0), 1.0)
    return velocity * min_of(share, axis=0)


def _scaled_back(model: MotionModel, stop: StoppingPoint, velocity: Array, caps: tuple[Array | None, ...]) -> Array:
    """Shorten ``velocity`` to the caps and to what the acceleration allows; shorter keeps every row."""
    for cap in caps:
        if cap is not None:
            velocity = shorten(velocity, cap)
    share = model.braking_share(stop, velocity)
    return velocity if share is None else velocity * share
