"""Reserved space: what a robot has reserved, what it requests, and when a request is granted (layer 3).

A robot reserves one segment: all places within `lane_m` of a line. It requests one segment at a time. The request
replaces the reserved segment once every peer has acknowledged it by a message whose own segments are clear of it.
docs/shield.md proves that two robots never reserve segments that are too close; the proof is checked by machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from testudo_deploy.shield.segment_distance import segment_distance, squeezed
from testudo_hardware.arrays import Array, array_namespace, known_false, stacked
from testudo_hardware.motion.motion_state import sum_terms

NOTHING_HEARD = -1
"""Number of a message where there is none."""


@dataclass(frozen=True)
class ReservedSpace:
    """What a robot reserves and requests; batch (...)."""

    owned_world: Array
    """(2, D, ...) [m]: both ends of the reserved segment (E)."""
    announced_world: Array
    """(2, D, ...) [m]: both ends of the requested segment (P); a point of the reserved one if there is none."""
    pending: Array
    """(...) bool: there is a request."""
    since: Array
    """(...) number of the first message that carried the request."""


@dataclass(frozen=True)
class PeerReservations:
    """Reservations in the newest message of each peer; slots (K, ...)."""

    owned_world: Array
    """(2, D, K, ...) [m]."""
    announced_world: Array
    """(2, D, K, ...) [m]."""
    acknowledged: Array
    """(K, ...) number of the newest own message that the peer had received when it sent this; -1 for none."""
    silent: Array
    """(K, ...) bool: no message arrived for `StopTubeParameters.silence_s`."""
    first: Array
    """(K, ...) bool: the own robot has priority: its name is before the peer's in the order of the fleet."""
    reserves: Array
    """(K, ...) bool: the peer takes part; False for an untrusted one, which rule R5 keeps clear of."""


def reserved_at_rest(position_world: Array) -> ReservedSpace:
    """Return the space of robots at rest at (D, ...): a segment of no length; starts must be a clearance apart."""
    ends = stacked(position_world, position_world)
    number = 0 * position_world[0, ...]
    return ReservedSpace(ends, ends, number > 0, number)


@dataclass(frozen=True)
class GrantDecision:
    """What the peers' messages say of the own announcement; batch (...)."""

    granted: Array
    """bool: it may be taken."""
    lost: Array
    """bool: it must be dropped."""


def decide_grant(own: ReservedSpace, peers: PeerReservations, clearance_m: float, height_ratio: float) -> GrantDecision:
    """Return whether the request is granted (rules R2 and R4) or has lost against a peer's."""
    xp = array_namespace(own.owned_world)
    if known_false(own.pending):
        return GrantDecision(own.pending, own.pending)
    hits_owned, hits_announced = (
        hits[:, 0, ...] for hits in conflicts(own.announced_world[:, :, None, ...], peers, clearance_m, height_ratio)
    )
    # past a silent peer only if its newest message acknowledges this process of the robot: what an earlier process
    # had acknowledged is not known any more
    alone = peers.silent & peers.first & (peers.acknowledged > NOTHING_HEARD)
    heard = (peers.acknowledged >= own.since[None, ...]) | alone
    granted = (heard & ~hits_owned & ~hits_announced) | ~peers.reserves
    lost = (hits_owned | (hits_announced & ~peers.first)) & peers.reserves
    return GrantDecision(own.pending & xp.all(granted, axis=0), own.pending & xp.any(lost, axis=0))


def farthest_peer_position(
    peers: PeerReservations, point_world: Array, age_s: Array, silence_s: float, beside_m: float, height_ratio: float
) -> Array:
    """Return how far a peer's control point can be from the announced one, by what it reserves (K, ...) [m].

    Args:
        peers: the newest messages.
        point_world: announced control points (D, K, ...) [m].
        age_s: (K, ...).
        silence_s: after this time a robot with priority may proceed alone.
        beside_m: largest distance of a control point from the middle line of its segment.
        height_ratio: heights count 1/this.
    """
    xp = array_namespace(point_world)
    ends = stacked(peers.owned_world, peers.announced_world)  # (2, 2, D, K, ...)
    offset = squeezed(ends - point_world[None, None, ...], height_ratio, 2)
    square = sum_terms([offset[:, :, d, ...] ** 2 for d in range(point_world.shape[0])])
    bound = xp.sqrt(xp.max(square, axis=(0, 1))) + beside_m
    return xp.where(stays_in_reserved_segments(peers, age_s, silence_s), bound, xp.inf)


def stays_in_reserved_segments(peers: PeerReservations, age_s: Array, silence_s: float) -> Array:
    """Return whether a peer (K, ...) is still in the segments of its newest message, however old that is.

    It leaves them only for a segment that this robot has acknowledged; or without that, if it has priority and received
    nothing from this robot for ``silence_s`` (rule R4). The age by echo (K, ...) bounds how long ago it received it.
    """
    return peers.reserves & (peers.first | (age_s < silence_s))


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
    theirs = squeezed(theirs, height_ratio, 1)
    ours = squeezed(segments_world, height_ratio, 1)[:, :, None, None, ...]
    distance = segment_distance(ours[0, ...], ours[1, ...], theirs[0, ...], theirs[1, ...])
    hits = ~(distance >= clearance_m)
    return hits[0, ...], hits[1, ...]
