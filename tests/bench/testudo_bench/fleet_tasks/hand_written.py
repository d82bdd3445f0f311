"""Policies by hand for five scenarios, from the signals of one robot alone, so that they run on the fleet.

They follow `Scenario.nominal_world`, which may read the whole task; a robot knows less. Signals are (B, C), of entities
and peers (B, K, C); a velocity is (B, 2) [m/s].
"""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from testudo_sim.environment import Environment

Signals = Mapping[str, jax.Array]
_BESIDE_RAD = 0.7  # angle from straight behind the box at which robots push beside each other
_SWEPT = 0.7  # of half the arena: the lanes of robots that search


def hand_written(environment: Environment) -> Callable[[Signals, jax.Array], tuple[jax.Array, jax.Array]]:
    """Return the policy of a scenario of `LAWS`: signals and memory (B, 0) to velocity and the same memory."""
    law, spec = LAWS[environment.scenario.name], environment.team.model.spec
    speed_m_s = spec.control_point_speed_m_s
    full_step_m = speed_m_s * environment.decision_s

    def step(signals: Signals, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        way = law(environment, signals) - signals["position_world"]
        length = jnp.sqrt(jnp.sum(way**2, axis=-1, keepdims=True) + 1e-12)
        return way / length * speed_m_s * jnp.minimum(length / full_step_m, 1.0), hidden

    return step


def _foraging(_: Environment, signals: Signals) -> jax.Array:
    """Return the first resource that is left: all robots go to the same one."""
    places, left = signals["resource_position_world"], signals["resource_valid"][:, 0]
    return left * places[:, 0] + (1 - left) * places[:, 1]


def _predator_prey(_: Environment, signals: Signals) -> jax.Array:
    return signals["prey_position_world"]


def _discovery(environment: Environment, signals: Signals) -> jax.Array:
    """Return the nearest known landmark that is not tagged; one that senses drives up and down in a lane of its own."""
    place = signals["position_world"]
    apart = jnp.sqrt(jnp.sum((signals["landmark_position_world"] - place[:, None]) ** 2, axis=-1))
    apart = apart + 1e3 * (1 - signals["landmark_open"][..., 0])
    first = (apart <= jnp.min(apart, axis=1, keepdims=True)) & (apart < 1e3)
    share = jnp.where(first, 1.0, 0.0)
    found = jnp.sum(share[..., None] * signals["landmark_position_world"], axis=1)
    tags = jnp.where(jnp.sum(share, axis=1, keepdims=True) > 0, found, place)
    # lanes in the order of the robots that search, from low to high
    peers = jnp.where(signals["neighbour_reach"][..., 0] > 0, signals["neighbour_valid"], 0.0)
    below = jnp.sum(peers * jnp.where(signals["neighbour_position_world"][..., 1] < place[:, 1:], 1.0, 0.0), axis=1)
    half_x, half_y = (_SWEPT * side for side in environment.scenario.arena.high_world)
    lane = half_y * (2 * (below + 0.5) / (jnp.sum(peers, axis=1) + 1) - 1)
    onwards = jnp.where(jnp.abs(place[:, 0]) > half_x, -place[:, 0], jnp.cos(signals["yaw"][:, 0]))
    sweep = jnp.stack([jnp.where(onwards > 0, 1.2 * half_x, -1.2 * half_x), lane], axis=-1)
    return jnp.where(signals["reach"][:, :1] > 0, sweep, tags)


def _push_box(environment: Environment, signals: Signals) -> jax.Array:
    """Return a place on the way round the box to its rear; there two robots push side by side."""
    scenario, box, place = environment.scenario, signals["box_position_world"], signals["position_world"]
    rear = _unit(box - signals["goal_world"])
    left = _turned(rear)  # seen from the goal
    offset = _unit(place - box)
    cosine = jnp.sum(offset * rear, axis=-1, keepdims=True)
    side = jnp.where(jnp.sum(offset * left, axis=-1, keepdims=True) > 0, -1.0, 1.0)  # the shorter way to the rear
    ahead = math.cos(_BESIDE_RAD) * offset + side * math.sin(_BESIDE_RAD) * _turned(offset)
    around = box + 1.3 * (scenario.contact_m + scenario.body_radius_m) * ahead
    # each of two keeps a quarter of a side from the middle, on its side of the other
    across = jnp.sum((place - box) * left, axis=-1, keepdims=True)
    other = jnp.sum((signals["neighbour_position_world"][:, 0] - box) * left, axis=-1, keepdims=True)
    lane = jnp.where(across > other, 1.0, -1.0) * scenario.boxes[0].size_m[0] / 4
    push = place - rear + 2 * (lane - across) * left
    return jnp.where(cosine > math.cos(_BESIDE_RAD), push, around)


def _unit(way: jax.Array) -> jax.Array:
    return way / jnp.sqrt(jnp.sum(way**2, axis=-1, keepdims=True) + 1e-12)


def _turned(way: jax.Array) -> jax.Array:
    """Return directions (B, 2) a quarter turn to the left."""
    return jnp.concatenate([-way[:, 1:], way[:, :1]], axis=-1)


def _crossing_map(_: Environment, signals: Signals) -> jax.Array:
    """Return the next place of the shortest way; near the goal, the goal."""
    left = jnp.sqrt(jnp.sum((signals["goal_world"] - signals["position_world"]) ** 2, axis=-1, keepdims=True))
    return jnp.where(left < 0.1, signals["goal_world"], signals["way_position_world"])


LAWS: Mapping[str, Callable[..., jax.Array]] = {
    "foraging": _foraging,
    "predator_prey": _predator_prey,
    "discovery": _discovery,
    "push_box": _push_box,
    "crossing_map": _crossing_map,
}
"""By scenario: the places (B, 2) [m] to which robots drive straight."""
