"""Reserved space (layer 3): what a robot reserves and requests, when a request is granted, and one tick of it.

A robot reserves one segment: all places within `lane_m` of a line. It requests one segment at a time. The request
replaces the reserved segment once every peer has acknowledged it by a message whose own segments are clear of it.
docs/shield.md proves that two robots never reserve segments that are too close; the proof is checked by machine.
A tick takes the granted segment, chooses a command by the stop-tube check, releases space, and requests more.
"""

from dataclasses import dataclass

from testudo_deploy.shield.arena import Arena, segment_clearances
from testudo_deploy.shield.geometry import (
    clamped_fraction,
    fraction_along,
    point_distance,
    segment_distance,
    z_scaled,
)
from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.stop_tube import StopTubeParameters
from testudo_deploy.shield.stop_tube_check import (
    FACTORS,
    CommandCandidates,
    clear_of_bodies,
    clear_of_untrusted,
    command_candidates,
    within_segment,
    within_walls_or_away,
)
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.arrays import (
    Array,
    all_of,
    any_of,
    array_namespace,
    is_numpy,
    known_false,
    max_of,
    min_of,
    stacked,
)
from testudo_hardware.motion import MotionModel, MotionState, StoppingPoint
from testudo_hardware.motion.motion_state import TINY, length, sum_terms

NOTHING_HEARD = -1  # number of a message where there is none
_SHARES = (1.0, 0.6, 0.3, 0.12)  # shares of the wanted segment's length that are tried
_LONGEST_TRIP_S = 0.6  # older messages do not make segments longer
_TICKS_MORE = 2  # ticks by which a segment must reach further than the round trip


@dataclass(frozen=True)
class ReservedSpace:
    """What a robot reserves and requests; batch (...)."""

    owned_world: Array  # (2, D, ...) [m]: both ends of the reserved segment (E)
    announced_world: Array
    """(2, D, ...) [m]: both ends of the requested segment (P); a point of the reserved one if there is none."""
    pending: Array  # (...) bool: there is a request
    since: Array  # (...) number of the first message that carried the request


@dataclass(frozen=True)
class PeerReservations:
    """Reservations in the newest message of each peer; slots (K, ...)."""

    owned_world: Array  # (2, D, K, ...) [m]
    announced_world: Array  # (2, D, K, ...) [m]
    acknowledged: Array
    """(K, ...) number of the newest own message that the peer had received when it sent this; -1 for none."""
    excused: Array  # (K, ...) bool: the robot may proceed without the peer's acknowledgement (rule R4)
    first: Array  # (K, ...) bool: the own robot has priority: its name is before the peer's in the order of the fleet
    reserves: Array  # (K, ...) bool: the peer takes part; False for an untrusted one, which rule R5 keeps clear of


def reserved_at_rest(position_world: Array) -> ReservedSpace:
    """Return the space of robots at rest at (D, ...): a segment of no length; starts must be a clearance apart."""
    ends = stacked(position_world, position_world)
    number = 0 * position_world[0, ...]
    return ReservedSpace(ends, ends, number > 0, number)


def kept_at_rest(own: ReservedSpace, position_world: Array, lane_m: float) -> ReservedSpace | None:
    """Return the part of a segment that a robot at rest at (D,) [m] keeps (rule R3); None if it stands beside it."""
    start, along = own.owned_world[0, ...], own.owned_world[1, ...] - own.owned_world[0, ...]
    nearest = start + fraction_along(position_world - start, along) * along
    return reserved_at_rest(nearest) if float(length(position_world - nearest)) <= lane_m else None


@dataclass(frozen=True)
class GrantDecision:
    """What the peers' messages say of the own announcement; batch (...)."""

    granted: Array  # bool: it may be taken
    lost: Array  # bool: it must be dropped


def decide_grant(own: ReservedSpace, peers: PeerReservations, clearance_m: float, height_ratio: float) -> GrantDecision:
    """Return whether the request is granted (rules R2 and R4) or has lost against a peer's."""
    if known_false(own.pending):
        return GrantDecision(own.pending, own.pending)
    hits_owned, hits_announced = (
        hits[:, 0, ...] for hits in conflicts(own.announced_world[:, :, None, ...], peers, clearance_m, height_ratio)
    )
    heard = (peers.acknowledged >= own.since[None, ...]) | peers.excused
    granted = (heard & ~hits_owned & ~hits_announced) | ~peers.reserves
    lost = (hits_owned | (hits_announced & ~peers.first)) & peers.reserves
    return GrantDecision(own.pending & all_of(granted, axis=0), own.pending & any_of(lost, axis=0))


def farthest_peer_position(
    peers: PeerReservations, point_world: Array, age_s: Array, silence_s: float, beside_m: float, height_ratio: float
) -> Array:
    """Return how far a peer's control point can be from the announced one, by what it reserves (K, ...) [m].

    ``point_world`` are the announced control points (D, K, ...) [m], ``age_s`` (K, ...) the ages of the newest
    messages. After ``silence_s`` a peer may proceed without this robot; ``beside_m`` is the largest distance of a
    control point from the middle line of its segment.
    """
    xp = array_namespace(point_world)
    ends = stacked(peers.owned_world, peers.announced_world)  # (2, 2, D, K, ...)
    offset = z_scaled(ends - point_world[None, None, ...], height_ratio, 2)
    square = sum_terms([offset[:, :, d, ...] ** 2 for d in range(point_world.shape[0])])
    bound = xp.sqrt(max_of(square, axis=(0, 1))) + beside_m
    return xp.where(stays_in_reserved_segments(peers, age_s, silence_s), bound, xp.inf)


def stays_in_reserved_segments(peers: PeerReservations, age_s: Array, silence_s: float) -> Array:
    """Return whether a peer (K, ...) is still in the segments of its newest message, however old that is.

    It leaves them only for a segment that this robot has acknowledged; or without that, if it received nothing from
    this robot for ``silence_s`` (rule R4): the age by echo (K, ...) bounds how long ago it received it. One that is
    itself excused is taken to stay there.
    """
    return peers.reserves & (peers.excused | (age_s < silence_s))


def conflicts(
    segments_world: Array, peers: PeerReservations, clearance_m: float, height_ratio: float
) -> tuple[Array, Array]:
    """Return whether segments (2, D, S, ...) are too close to what each peer reserves and requests, (K, S, ...) each.

    Heights count 1/``height_ratio``. What is not a number is a conflict.
    """
    xp = array_namespace(segments_world)
    theirs = xp.concat(
        [peers.owned_world[:, :, None, :, None, ...], peers.announced_world[:, :, None, :, None, ...]], axis=2
    )
    theirs = z_scaled(theirs, height_ratio, 1)
    ours = z_scaled(segments_world, height_ratio, 1)[:, :, None, None, ...]
    distance = segment_distance(ours[0, ...], ours[1, ...], theirs[0, ...], theirs[1, ...])
    hits = ~(distance >= clearance_m)
    return hits[0, ...], hits[1, ...]


def conflicting_peers(own: ReservedSpace, peers: PeerReservations, space: StopTubeParameters) -> Array:
    """Return which peers (K,) reserve or request a segment too close to the reserved one of a robot."""
    hits = conflicts(own.owned_world[:, :, None], peers, space.clearance_m, space.height_ratio)
    return any_of(any_of(stacked(*hits), axis=0), axis=1) & peers.reserves


@dataclass(frozen=True)
class StopTubeCheckResult:
    """The command that passes the stop-tube check; batch (...)."""

    velocity_world: Array  # (D, ...) [m/s]: of the control point
    command: Array  # (D, ...): for the actuators
    factor: Array  # (...) share of the velocity that passed; 0 is the brake
    clear: Array  # (...) bool: only reservations prevent full speed, not walls or untrusted neighbours
    space: ReservedSpace  # what the robot reserves and requests from now on


@dataclass(frozen=True)
class ShieldInputs:
    """State and neighbours of a robot at a tick; arrays (D, ...), slots (K, ...)."""

    measured_position_world: Array
    estimate: MotionState
    stop: StoppingPoint
    table: PeerTable
    peers: PeerReservations
    bodies: SensedBodies | None = None  # that ranges see and no map knows; None for a robot without ranges


def apply_stop_tube_check(
    model: MotionModel,
    space: StopTubeParameters,
    arena: Arena | None,
    inputs: ShieldInputs,
    own: ReservedSpace,
    velocity_world: Array,
    number: Array,
) -> StopTubeCheckResult:
    """Return the command that may be sent.

    Layer 1 allows ``velocity_world`` (D, ...) [m/s] of the control point; ``own`` is the robot's space so far, and
    ``number`` (...) that of the message that will be sent after this tick.
    """
    xp = array_namespace(velocity_world)
    tried = command_candidates(
        model, space, inputs.measured_position_world, inputs.estimate, inputs.stop, velocity_world
    )
    # one that is too near, by drift or by noise, must be able to leave
    clear = within_walls_or_away(tried.tube_world, arena, space.wall_m) & clear_of_untrusted(
        model, space, tried.tube_world, tried.velocity_world, inputs.estimate, inputs.table
    )
    if inputs.bodies is not None:
        clear = clear & clear_of_bodies(model, space, tried, inputs.estimate, inputs.bodies)
    segments = xp.concat([own.owned_world[:, :, None, ...], own.announced_world[:, :, None, ...]], axis=2)
    within = within_segment(tried.tube_world[:, :, :, None, ...], segments, space.lane_m, space.height_ratio)
    owned, asked = within[:, 0, ...], within[:, 1, ...]
    decision = decide_grant(own, inputs.peers, space.clearance_m, space.height_ratio)
    better = xp.argmax(xp.astype(asked, xp.int8), axis=0) <= xp.argmax(xp.astype(owned, xp.int8), axis=0)
    takes = decision.granted & asked[-1, ...] & better
    drops = decision.lost | (decision.granted & ~takes) | (own.pending & ~asked[-1, ...])
    held = ReservedSpace(
        xp.where(takes, own.announced_world, own.owned_world),
        own.announced_world,
        own.pending & ~takes & ~drops,
        own.since,
    )
    inside = xp.where(takes, asked, owned)
    chosen = _first(clear & inside, tried)
    ends = _wanted_ends(model, inputs, tried, velocity_world)
    trimmed = _release(space, held, chosen, ends[1])
    after = _request(space, arena, inputs, trimmed, ends, number)
    return StopTubeCheckResult(chosen.velocity_world, chosen.command, chosen.factor, clear[0, ...], after)


@dataclass(frozen=True)
class _Chosen:
    """The candidate that passes; the tube (D, P, ...)."""

    velocity_world: Array
    command: Array
    tube_world: Array
    factor: Array
    fits: Array  # (...) bool: its tube is clear and reserved; False for a brake that may leave the segment by noise


def _first(passes: Array, tried: CommandCandidates) -> _Chosen:
    """Return the first candidate that passes (C, ...), or the brake."""
    xp = array_namespace(passes)
    last = len(FACTORS) - 1
    if is_numpy(passes) and passes.ndim == 1:  # one robot: one index in place of a choice for each factor
        k = int(passes.argmax()) if passes.any() else last
        velocity = tried.velocity_world[:, k]
        return _Chosen(
            velocity, tried.command[:, k], tried.tube_world[:, :, k], FACTORS[k] + 0 * velocity[0], passes.any()
        )
    # the two as one: each choice is a call. With the tube XLA would copy all of it
    both = xp.concat([tried.velocity_world[:, None, ...], tried.command[:, None, ...]], axis=1)
    found, tube = both[:, :, last, ...], tried.tube_world[:, :, last, ...]
    factor = 0 * found[0, 0, ...]
    for k in reversed(range(last)):
        this = passes[k, ...]
        found = xp.where(this, both[:, :, k, ...], found)
        tube = xp.where(this, tried.tube_world[:, :, k, ...], tube)
        factor = xp.where(this, FACTORS[k], factor)
    return _Chosen(found[:, 0, ...], found[:, 1, ...], tube, factor, any_of(passes, axis=0))


def _wanted_ends(
    model: MotionModel, inputs: ShieldInputs, tried: CommandCandidates, velocity_world: Array
) -> tuple[Array, Array]:
    """Return how far the reserved segment must reach now, and how far a requested one should; (D, ...) each.

    A request takes a round trip to every peer, which the ages by echo bound; a requested segment reaches further than
    the next need, so that there is no request at every tick.
    """
    xp = array_namespace(velocity_world)
    age = inputs.table.age_s
    period = model.spec.control_period_s
    oldest = max_of(age, axis=0) if age.shape[0] else 0 * velocity_world[0, ...]
    trip = xp.minimum(xp.maximum(oldest, 0.0), _LONGEST_TRIP_S)
    need = trip + _TICKS_MORE * period
    end = tried.tube_world[:, -1, 0, ...]
    return end + need * velocity_world, end + (2 * need) * velocity_world


def _release(space: StopTubeParameters, own: ReservedSpace, chosen: _Chosen, wanted_world: Array) -> ReservedSpace:
    """Return the space without what lies behind the robot and beyond what it may need (rule R3)."""
    xp = array_namespace(wanted_world)
    start, end = own.owned_world[0, ...], own.owned_world[1, ...]
    along = end - start
    # shares are measured in the metric of the segment
    way = z_scaled(along, space.height_ratio)
    slack = space.noise_m / (length(way) + TINY)
    used = fraction_along(z_scaled(chosen.tube_world - start[:, None, ...], space.height_ratio), way[:, None, ...])
    front = xp.maximum(max_of(used, axis=0), fraction_along(z_scaled(wanted_world - start, space.height_ratio), way))
    low = xp.where(chosen.fits, clamped_fraction(min_of(used, axis=0) - slack), 0.0)
    high = xp.where(chosen.fits, clamped_fraction(front + slack), 1.0)
    return ReservedSpace(
        stacked(start + low * along, start + high * along), own.announced_world, own.pending, own.since
    )


def _request(
    space: StopTubeParameters,
    arena: Arena | None,
    inputs: ShieldInputs,
    own: ReservedSpace,
    ends: tuple[Array, Array],
    number: Array,
) -> ReservedSpace:
    """Return the space with a new request where one is needed and a free segment is found (rule R2)."""
    xp = array_namespace(own.owned_world)
    first = own.owned_world[0, ...]
    near = _between_walls(ends[0], arena, space.wall_m)
    tolerance_m = space.lane_m / 2
    needed = (_distance_to_reserved(space, near, own) > tolerance_m) & ~own.pending
    announced = own.announced_world
    if not known_false(needed):
        start, tip, free = _free_segment(space, arena, inputs, own, ends[1])
        needed = needed & free & (_distance_to_reserved(space, tip, own) > tolerance_m)
        announced = xp.where(needed, stacked(start, tip), announced)
    pending = own.pending | needed
    return ReservedSpace(
        own.owned_world, xp.where(pending, announced, first), pending, xp.where(needed, number, own.since)
    )


def _distance_to_reserved(space: StopTubeParameters, point_world: Array, own: ReservedSpace) -> Array:
    """Return the distance (...) [m] of points (D, ...) from the middle line of the reserved segment, heights scaled."""
    segment = z_scaled(own.owned_world, space.height_ratio, 1)
    return point_distance(z_scaled(point_world, space.height_ratio), segment[0, ...], segment[1, ...])


def _free_segment(
    space: StopTubeParameters, arena: Arena | None, inputs: ShieldInputs, own: ReservedSpace, wanted_world: Array
) -> tuple[Array, Array, Array]:
    """Return both ends (D, ...) of the longest free segment towards a place, and whether there is one (...)."""
    xp = array_namespace(wanted_world)
    first = own.owned_world[0, ...]
    start = _segment_start(space, first, own.owned_world[1, ...] - first, inputs.measured_position_world)
    far = _between_walls(wanted_world, arena, space.wall_m)
    shares = xp.reshape(xp.asarray(_SHARES, dtype=start.dtype), (1, len(_SHARES)) + (1,) * (start.ndim - 1))
    tips = start[:, None, ...] + shares * (far - start)[:, None, ...]
    starts = xp.broadcast_to(start[:, None, ...], tips.shape)
    hits_owned, hits_announced = conflicts(stacked(starts, tips), inputs.peers, space.clearance_m, space.height_ratio)
    reserves = inputs.peers.reserves[:, None, ...]
    free = ~any_of((hits_owned | hits_announced) & reserves, axis=0)
    if arena is not None and arena.obstacles:
        free = free & all_of(segment_clearances(arena.groups, starts, tips) >= space.wall_m, axis=0)
    tip = tips[:, -1, ...]
    for k in reversed(range(len(_SHARES) - 1)):
        tip = xp.where(free[k, ...], tips[:, k, ...], tip)
    return start, tip, any_of(free, axis=0)


def _segment_start(space: StopTubeParameters, first_world: Array, along: Array, place_world: Array) -> Array:
    """Return where a new segment begins (D, ...): on the reserved one, or at the robot if it is outside of it.

    Otherwise a robot that came to rest beside its segment, which the errors of a tube allow, could never leave.
    """
    xp = array_namespace(along)
    offset, way = (z_scaled(vector, space.height_ratio) for vector in (place_world - first_world, along))
    share = fraction_along(offset, way)
    off_m = length(offset - share * way)
    return xp.where(off_m > space.lane_m / 2, place_world, first_world + share * along)


def _between_walls(point_world: Array, arena: Arena | None, wall_m: float) -> Array:
    """Return the points (D, ...) moved to where a tube may be."""
    if arena is None:
        return point_world
    xp = array_namespace(point_world)
    low, high = arena.corners(point_world)
    return xp.minimum(xp.maximum(point_world, low + wall_m), high - wall_m)
