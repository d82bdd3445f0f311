"""What a robot knows of its peers: last announcement, its age, and whether there is one.

The same code keeps the table in simulation (many worlds) and on the robot (one). A peer that falls
silent is never dropped: its age grows, and with it the distance that the shield keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace


@dataclass(frozen=True)
class PeerTable:
    """One slot for each peer; component first, then slot, then batch."""

    control_point_world: Array
    """(D, K, ...) [m]: the announced stopping point of the peer's control point."""
    control_velocity_world: Array
    """(D, K, ...) [m/s]: the announced velocity of that point."""
    age_s: Array
    """(K, ...) [s]: upper bound of the announcement's age."""
    valid: Array
    """(K, ...) bool: the slot holds a peer that has been heard."""
    untrusted: Array | None = None
    """(K, ...) bool: a body that keeps to no contract; its point is where its middle was seen, its velocity zero.

    None: all are trusted.
    """
    farthest_m: Array | None = None
    """(K, ...) [m]: how far at most the control point is from the announced one, by the space that the peer owns.

    None: nothing is known of that.
    """


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
    )


def extrapolated(table: PeerTable, limit_s: float) -> Array:
    """Return where the control points are now (D, K, ...) [m] if the announced velocity was kept.

    A silent peer brakes when its dead-man time is over, so that the motion ends after ``limit_s``.
    """
    xp = array_namespace(table.age_s)
    time_s = xp.minimum(table.age_s, limit_s)
    return table.control_point_world + table.control_velocity_world * time_s[None, ...]
