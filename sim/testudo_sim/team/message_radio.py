"""Simulates messages between robots: delay, loss, reordering, and age bounds by echo.

Every robot sends one message at every tick in which its process runs. A receiver keeps the newest by number and
acknowledges it to the senders; ages are bounded by that echo, never by the arrival (shield.md, "Age").
Arrays are (component, robot, world); slot k of robot i is robot i + 1 + k (modulo N).
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.reservations import NOTHING_HEARD, PeerReservations, ReservedSpace
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_sim import devices  # noqa: F401  (registers the pytrees)
from testudo_sim.team.fault_schedule import FALSE_SENDER, FIELDS, Faults
from testudo_sim.team.suspicions import Suspicions, by_receiver, excused, suspects

_PARTS = 7  # vectors (D,) in a message


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MessageRadio:
    """Messages in transit, and the last received ones."""

    sent: jax.Array
    """(L, C, N, E): messages of the last ticks, a ring by tick; point, velocity, reserved and requested segment,
    wanted velocity, learned message."""
    sent_heard: jax.Array  # (L, K, N, E): message numbers that the senders acknowledged; a ring
    on_air: jax.Array  # (L, N, E) bool: whether a robot sent one; a ring
    heard: jax.Array  # (K, N, E): number (tick) of the newest message received from each peer
    content: jax.Array  # (C, K, N, E): its content
    acknowledged: jax.Array  # (K, N, E): number of the newest own message acknowledged in it
    silence: jax.Array  # (K, N, E): ticks since the last reception
    suspicions: Suspicions
    message_size: int = field(default=0, metadata={"static": True})  # numbers in a learned message

    @property
    def dimension(self) -> int:
        """Return the number D of space dimensions."""
        return (self.content.shape[0] - self.message_size) // _PARTS

    def announcement(self, place: jax.Array) -> jax.Array:
        """Return point, velocity and learned message (2D + M, N, E) of the messages at a place of the ring."""
        content = self.sent[place]
        return jnp.concatenate([content[: 2 * self.dimension], content[_PARTS * self.dimension :]])


def receive_messages(announcement: jax.Array, slots: int, message_size: int = 0) -> MessageRadio:
    """Return the radio after all robots received the messages (C, N, E), with learned ones of ``message_size``."""
    size, worlds = announcement.shape[1:]
    links = (size - 1, size, worlds)
    return MessageRadio(
        jnp.broadcast_to(announcement, (slots, *announcement.shape)),
        jnp.full((slots, *links), float(NOTHING_HEARD)),
        jnp.ones((slots, size, worlds), bool),
        jnp.full(links, NOTHING_HEARD, jnp.float32),
        by_slot(announcement),
        jnp.full(links, 2.0 * NOTHING_HEARD),
        jnp.zeros(links),
        Suspicions.create(slots, links),
        message_size,
    )


def exchange(
    radio: MessageRadio,
    announcement: jax.Array,
    sends: jax.Array,
    tick: jax.Array,
    loss: jax.Array,
    faults: Faults,
    key: jax.Array,
    silent_ticks: float,
) -> MessageRadio:
    """Return the radio after the messages of this tick were sent and those that are due have arrived.

    Args:
        radio: before.
        announcement: messages (C, N, E).
        sends: (N, E) bool: the process runs and its pose is accepted.
        tick: number of these messages.
        loss: (E,) probability that a message is lost.
        faults: delays, losses of single links, blackout.
        key: randomness.
        silent_ticks: silence after which a robot suspects a peer.
    """
    slots = radio.sent.shape[0]
    place = tick % slots
    suspected = suspects(radio.silence, radio.acknowledged, silent_ticks)
    reports = radio.suspicions.sent.at[place].set(jnp.where(suspected, radio.heard, NOTHING_HEARD))
    sent = radio.sent.at[place].set(announcement)
    last = (jnp.arange(sends.shape[0]) == sends.shape[0] - 1)[:, None]
    pretends = last & (faults.hostile_kind == FALSE_SENDER) & faults.false_fields[FIELDS.index("acknowledged")]
    sent_heard = radio.sent_heard.at[place].set(jnp.where(pretends, tick.astype(jnp.float32), radio.heard))
    on_air = radio.on_air.at[place].set(sends)
    delay_key, loss_key = jax.random.split(key)
    low, high = faults.message_ticks
    delay = jax.random.randint(delay_key, low.shape, low, high + 1)
    number = tick + 1 - delay  # a message time of one tick means arrival at the next tick
    index = jnp.where(number >= 0, number, 0) % slots

    def due(ring: jax.Array) -> jax.Array:
        return jax.vmap(lambda values, i: values[i], in_axes=(-1, 0), out_axes=-1)(ring, index)

    chance = jax.random.uniform(loss_key, radio.heard.shape)
    dark = (tick >= faults.blackout[0]) & (tick < faults.blackout[1])
    lost = (chance < loss) | (chance < faults.link_loss) | dark
    arrived = by_slot(due(on_air)[None])[0] & ~lost & (number > radio.heard)
    # return, per receiver and slot, the message number of the receiver that the peer acknowledged (K, N, E)
    heard = due(sent_heard)
    slots = heard.shape[0]
    # slot k of robot i is robot j = i + 1 + k; in the table of j, robot i is in slot N - 2 - k
    echoed = jnp.stack([jnp.roll(heard[slots - 1 - k], -(k + 1), axis=0) for k in range(slots)])
    return MessageRadio(
        sent,
        sent_heard,
        on_air,
        jnp.where(arrived, number.astype(jnp.float32), radio.heard),
        jnp.where(arrived, by_slot(due(sent)), radio.content),
        jnp.where(arrived, echoed, radio.acknowledged),
        jnp.where(arrived, 0.0, radio.silence + 1),
        Suspicions(reports, jnp.where(arrived[:, None], by_receiver(due(reports)), radio.suspicions.received)),
        radio.message_size,
    )


def neighbour_table(radio: MessageRadio, tick: jax.Array, period_s: float, faults: Faults) -> PeerTable:
    """Return the peer table (D, K, N, E) of each robot at the start of tick number ``tick``."""
    dimension = radio.dimension
    age = (tick - radio.acknowledged) * period_s
    age = jnp.where(faults.blind_age, radio.silence * period_s, age)
    return PeerTable(
        radio.content[:dimension],
        radio.content[dimension : 2 * dimension],
        age,
        jnp.ones(age.shape, bool),
        wanted_world=radio.content[6 * dimension : _PARTS * dimension],
        message=radio.content[_PARTS * dimension :] if radio.message_size else None,
    )


def peer_spaces(radio: MessageRadio, silent_ticks: float, reserves: jax.Array) -> PeerReservations:
    """Return the reserved and requested segments (2, D, K, N, E) of the peers of each robot."""
    dimension = radio.dimension
    suspected = suspects(radio.silence, radio.acknowledged, silent_ticks) & reserves
    content = radio.content[2 * dimension : 6 * dimension]

    def judged() -> tuple[jax.Array, jax.Array]:
        return excused(radio.suspicions, suspected, radio.heard, content, reserves)

    excuses, content = jax.lax.cond(jnp.any(suspected), judged, lambda: (suspected, content))
    segments = content.reshape(2, 2, dimension, *content.shape[1:])
    first = lower_priority(radio.heard.shape[1], radio.heard)
    return PeerReservations(segments[0], segments[1], radio.acknowledged, excuses, first, reserves)


def peer_numbers(size: int) -> np.ndarray:
    """Return which robot is in each slot (K, N) of each of ``size`` robots."""
    return (np.arange(size) + 1 + np.arange(size - 1)[:, None]) % size


def lower_priority(size: int, like: jax.Array) -> jax.Array:
    """Return which peers (K, N, E) of each robot have a lower priority, in the shape of ``like``."""
    return jnp.broadcast_to((np.arange(size) < peer_numbers(size))[..., None], like.shape)


def message(
    control_point_world: jax.Array,
    velocity_world: jax.Array,
    space: ReservedSpace,
    wanted_world: jax.Array,
    said: jax.Array | None = None,
) -> jax.Array:
    """Return the messages (7 D + M, N, E) of the robots; ``said`` (M, N, E) are their learned messages."""
    segments = jnp.stack([space.owned_world, space.announced_world])
    segments = segments.reshape(-1, *segments.shape[3:])
    learned = () if said is None else (said,)
    return jnp.concatenate([control_point_world, velocity_world, segments, wanted_world, *learned])


def by_slot(values: jax.Array) -> jax.Array:
    """Return the values (C, N-1, N, E) of the peers of each robot from values (C, N, E)."""
    size = values.shape[1]
    return jnp.stack([jnp.roll(values, -(k + 1), axis=1) for k in range(size - 1)], axis=1)
