"""Whom the robots of a crowd hear: their nearest peers within a range, found by sorted cells.

In place of a table of all peers, which grows with the square of the robots, each robot has slots for its nearest ones.
They are found again whenever a robot has moved by `SLACK_M`, as much as which the range of the search is wider on both
sides. A peer that keeps its neighbourhood keeps its entry, with the age of its last message. One that comes into it
begins with the message that is due, which is not lost: its earlier ones are not simulated.

Arrays are (component, slot, robot, world); which robot is in a slot says `NearestPeers.index`.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.shield.geometry import z_scaled
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.velocity_projection import RECENT_S, PeerTable, update_peer_table
from testudo_sim import devices  # noqa: F401  (registers the pytrees)
from testudo_sim.physics.neighbour_cells import CROWD, NearestPeers, nearest_peers

SEEN_M = 1.5
"""Range within which peers are heard; policies weigh farther ones with zero."""
SLACK_M = 0.1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CrowdLinks:
    """Who is in the slots of each robot."""

    peers: NearestPeers
    found_at_world: jax.Array  # (D, N, E) [m]: the control points for which the peers were found


def heard_range_m(shield: ProjectionParameters) -> float:
    """Return the range of the search [m]: what policies see, and at least all that layer 1 heeds.

    A peer restricts a robot if the gap lets it use less than its full speed, after up to `RECENT_S` without a message.
    """
    use_s = 2 * shield.reach_s / shield.gap_share + shield.direction_factor * RECENT_S
    return max(SEEN_M, shield.separation_m + shield.peer_speed_m_s * use_s) + 2 * SLACK_M


def find_links(shield: ProjectionParameters, point_world: jax.Array) -> CrowdLinks | None:
    """Return the links of robots with control points (D, N, E) [m]; None for teams in which everybody hears all."""
    return None if point_world.shape[1] < CROWD else _found(shield, point_world)


def _found(shield: ProjectionParameters, point_world: jax.Array) -> CrowdLinks:
    scaled = z_scaled(point_world, shield.height_ratio)
    return CrowdLinks(nearest_peers(scaled, heard_range_m(shield)), point_world)


def of_peers(links: CrowdLinks, values: jax.Array) -> jax.Array:
    """Return the values (C, K, N, E) of the peers of each robot from values (C, N, E)."""
    return jnp.take_along_axis(values[:, None], links.peers.index[None], axis=2)


def heard_in_crowd(
    shield: ProjectionParameters,
    links: CrowdLinks,
    table: PeerTable,
    point_world: jax.Array,
    due: jax.Array,
    arrived: jax.Array,
    age_s: jax.Array,
    period_s: float,
) -> tuple[CrowdLinks, PeerTable]:
    """Return links and table one tick later.

    Args:
        shield: of the robots; its distances are those that count.
        links: before.
        table: before.
        point_world: control points (D, N, E) [m] that are announced.
        due: announcements (2D + M, N, E) that are due: control points, velocities and learned messages.
        arrived: (K, N, E) bool: those that are not lost, by slot.
        age_s: (K, N, E): age bound of a message that arrives.
        period_s: control period.
    """
    moved = jnp.sum((point_world - links.found_at_world) ** 2, axis=0)

    def found_again() -> tuple[CrowdLinks, PeerTable, jax.Array]:
        new = _found(shield, point_world)
        return new, *_carried(links.peers, new.peers, table)

    links, table, known = jax.lax.cond(
        jnp.all(moved <= SLACK_M**2), lambda: (links, table, links.peers.valid), found_again
    )
    heard = of_peers(links, due)
    dimension = point_world.shape[0]
    # an empty slot holds the robot itself, without effect
    takes = arrived | ~known
    message = None if table.message is None else heard[2 * dimension :]
    new = PeerTable(heard[:dimension], heard[dimension : 2 * dimension], age_s, takes, message=message)
    table = update_peer_table(table, new, period_s)
    return links, replace(table, valid=links.peers.valid)


def _carried(old: NearestPeers, new: NearestPeers, table: PeerTable) -> tuple[PeerTable, jax.Array]:
    """Return the table with the entries of peers in their new slots, and which slots (K, N, E) have an earlier one."""
    count = old.index.shape[0]
    same = (new.index[:, None] == old.index[None]) & new.valid[:, None] & old.valid[None]
    slots = jnp.arange(count, dtype=jnp.int32)[None, :, None, None]
    slot = jnp.min(jnp.where(same, slots, count), axis=1)
    known, slot = slot < count, jnp.minimum(slot, count - 1)

    def moved(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, jnp.broadcast_to(slot, values.shape), axis=-3)

    carried = PeerTable(
        moved(table.control_point_world),
        moved(table.control_velocity_world),
        moved(table.age_s),
        table.valid,
        message=None if table.message is None else moved(table.message),
    )
    return carried, known
