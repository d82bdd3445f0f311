"""Simulates rule R4 for teams: reports of silent peers, and who need not answer.

The same rules as `control/failure_detector.py`, for arrays (slot, robot, world); slot k of robot i is robot i + 1 + k
(modulo N). Numbers of messages are ticks. One simplification: what a report says of a suspected peer is read from the
reporter's present table; if the reporter has heard the peer again meanwhile, the report does not count.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.reservations import NOTHING_HEARD


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Suspicions:
    """Reports of silent peers: the number of the newest message that the reporter has of each; -1: not suspected."""

    sent: jax.Array  # (L, K, N, E): of the last ticks, a ring by tick
    received: jax.Array  # (K, K, N, E): in the newest message of each peer, by its slot, then by that of the suspected

    @classmethod
    def create(cls, slots: int, links: tuple[int, int, int]) -> "Suspicions":
        """Return those of a team in which nobody suspects anybody; ``links`` is (K, N, E), ``slots`` is L."""
        none = float(NOTHING_HEARD)
        return cls(jnp.full((slots, *links), none), jnp.full((links[0], *links), none))


def suspects(silence: jax.Array, acknowledged: jax.Array, silent_ticks: float) -> jax.Array:
    """Return the peers (K, N, E) that each robot suspects: silent, after they had answered it."""
    return (silence > silent_ticks) & (acknowledged > NOTHING_HEARD)


def by_receiver(sent: jax.Array) -> jax.Array:
    """Return what peers report (K, N, E) as (K, K, N, E): by the receiver's slot of the reporter, then of the peer."""
    return _of_pairs(sent, *_slots_of_peers(sent.shape[1]))


def excused(
    state: Suspicions,
    suspected: jax.Array,
    heard: jax.Array,
    content: jax.Array,
    trusted: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the peers (K, N, E) that need not answer, and the newest content (C, K, N, E) known of each peer.

    ``heard`` (K, N, E) are the numbers of the newest messages received, ``content`` what they say. Reports of peers
    that are not ``trusted`` (K, N, E), or are suspected themselves, do not count.
    """
    count = heard.shape[0]
    first = jnp.arange(count + 1)[None, :, None] == 0
    if count == 1:
        return suspected & first, content
    reporter, slot = _slots_of_peers(count + 1)
    counts = (
        (state.received > NOTHING_HEARD)
        & (trusted & ~suspected)[:, None]
        & (_of_pairs(heard, reporter, slot) == state.received)
    )
    with_first = jnp.any(counts & jnp.asarray(reporter == 0)[..., None], axis=0) | first
    double = 2 * (1 + jnp.sum(counts, axis=0))
    majority = (double > count + 1) | ((double == count + 1) & with_first)
    newest, known = heard, content
    for k in range(count):
        theirs = jnp.where(counts[k], state.received[k], NOTHING_HEARD)
        relayed = jnp.stack([_of_pairs(part, reporter[k : k + 1], slot[k : k + 1])[0] for part in content])
        known = jnp.where(theirs > newest, relayed, known)
        newest = jnp.maximum(newest, theirs)
    found = suspected & majority
    return found, jnp.where(found, known, content)


def _slots_of_peers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for slot a of a robot (N) and its slot b (K, K, N): the robot in a, and the slot in which that has b's."""
    robot, slots = np.arange(size), np.arange(size - 1)
    reporter = np.broadcast_to((robot + 1 + slots[:, None, None]) % size, (size - 1, size - 1, size))
    peer = (robot + 1 + slots[None, :, None]) % size
    return reporter, (peer - reporter - 1) % size


def _of_pairs(values: jax.Array, reporter: np.ndarray, slot: np.ndarray) -> jax.Array:
    """Return the reporters' values (K, N, E) of peers as (..., N, E); nothing of themselves."""
    own = slot == values.shape[0]
    found = values[jnp.asarray(np.where(own, 0, slot)), jnp.asarray(reporter)]
    return jnp.where(jnp.asarray(own)[..., None], NOTHING_HEARD, found)
