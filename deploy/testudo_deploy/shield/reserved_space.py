"""Owned space: what a robot holds, what it asks for, and when it may take it (shield.md, layer 3).

A robot owns one lane: all places within `lane_m` of a segment. It announces one lane at a time, and takes it in
place of its own once every peer has acknowledged the announcement by a message whose own lanes are clear of it.
Why two robots never own lanes that are too close is argued, and checked by machine, in docs/shield.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from testudo_deploy.shield.segment_distance import segment_distance, squeezed
from testudo_hardware.arrays import Array, array_namespace, known_false, stacked
from testudo_hardware.motion.motion_state import sum_terms

NOTHING_HEARD = -1
"""In place of the number of a message, where there is none."""


@dataclass(frozen=True)
class ReservedSpace:
    """What a robot owns and asks for; batch (...)."""

    owned_world: Array
    """(2, D, ...) [m]: both ends of the lane that it owns (E)."""
    announced_world: Array
    """(2, D, ...) [m]: both ends of the lane that it asks for (P); a point of its own lane if there is none."""
    pending: Array
    """(...) bool: there is an announcement."""
    since: Array
    """(...) number of the first message that carried the announcement."""


@dataclass(frozen=True)
class PeerReservations:
    """What the newest message of each peer said; slots (K, ...)."""

    owned_world: Array
    """(2, D, K, ...) [m]."""
    announced_world: Array
    """(2, D, K, ...) [m]."""
    acknowledged: Array
    """(K, ...) number of the newest own message that the peer had heard when it sent this; -1 for none."""
    silent: Array
    """(K, ...) bool: nothing was heard for `SpaceParameters.silence_s`."""
    first: Array
    """(K, ...) bool: of the two the own robot goes first: its place in the fleet's list is before the peer's."""
    reserves: Array
    """(K, ...) bool: the peer takes part; False for an untrusted one, which the gate keeps clear of."""


def reserved_at_rest(position_world: Array) -> ReservedSpace:
    """Return the space of robots at rest at (D, ...): a lane of no length; starts must be a clearance apart."""
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
    """Return whether the announcement may be taken (rules R2 and R4) or has lost against a peer's."""
    xp = array_namespace(own.owned_world)
    if known_false(own.pending):
        return GrantDecision(own.pending, own.pending)
    hits_owned, hits_announced = (
        hits[:, 0, ...] for hits in conflicts(own.announced_world[:, :, None, ...], peers, clearance_m, height_ratio)
    )
    # past a silent peer only if its newest message knows of this life of the robot: what an earlier life had
    # acknowledged is not known any more
    alone = peers.silent & peers.first & (peers.acknowledged > NOTHING_HEARD)
    heard = (peers.acknowledged >= own.since[None, ...]) | alone
    granted = (heard & ~hits_owned & ~hits_announced) | ~peers.reserves
    lost = (hits_owned | (hits_announced & ~peers.first)) & peers.reserves
    return GrantDecision(own.pending & xp.all(granted, axis=0), own.pending & xp.any(lost, axis=0))


def farthest_peer_position(
    peers: PeerReservations, point_world: Array, age_s: Array, silence_s: float, beside_m: float, height_ratio: float
) -> Array:
    """Return how far a peer's control point can be from one that it announced, by what it owns (K, ...) [m].

    Args:
        peers: the newest messages.
        point_world: announced control points (D, K, ...) [m].
        age_s: (K, ...).
        silence_s: after this time a robot that goes first may go alone.
        beside_m: farthest that a control point is from the middle of a lane.
        height_ratio: heights count 1/this.
    """
    xp = array_namespace(point_world)
    ends = stacked(peers.owned_world, peers.announced_world)  # (2, 2, D, K, ...)
    offset = squeezed(ends - point_world[None, None, ...], height_ratio, 2)
    square = sum_terms([offset[:, :, d, ...] ** 2 for d in range(point_world.shape[0])])
    bound = xp.sqrt(xp.max(square, axis=(0, 1))) + beside_m
    return xp.where(stays_in_reserved_segments(peers, age_s, silence_s), bound, xp.inf)


def stays_in_reserved_segments(peers: PeerReservations, age_s: Array, silence_s: float) -> Array:
    """Return whether a peer (K, ...) is still in a lane that its newest message shows, however old that is.

    It leaves them only for a lane that this robot has acknowledged; or without, if it goes first and has not heard
    this robot for ``silence_s`` (rule R4). The age by echo (K, ...) bounds how long ago it heard it.
    """
    return peers.reserves & (peers.first | (age_s < silence_s))


def conflicts(
    lanes_world: Array, peers: PeerReservations, clearance_m: float, height_ratio: float
) -> tuple[Array, Array]:
    """Return whether lanes (2, D, S, ...) are too close to what each peer owns and announces, (K, S, ...) each.

    Heights count 1/``height_ratio``. What is not a number is a conflict.
    """
    xp = array_namespace(lanes_world)
    theirs = xp.concat(
        [peers.owned_world[:, :, None, :, None, ...], peers.announced_world[:, :, None, :, None, ...]], axis=2
    )
    theirs = squeezed(theirs, height_ratio, 1)
    ours = squeezed(lanes_world, height_ratio, 1)[:, :, None, None, ...]
    distance = segment_distance(ours[0, ...], ours[1, ...], theirs[0, ...], theirs[1, ...])
    hits = ~(distance >= clearance_m)
    return hits[0, ...], hits[1, ...]
