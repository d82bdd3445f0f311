"""Drop-out of neighbours and entities in the eyes of a policy, so that it does with fewer or more than in training.

FlickerFusion (ICLR 2025): in training a share is left out, in larger teams the surplus over that of the training; which
ones is drawn anew at each decision. The nearest two of a kind never are.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from testudo_sim.scenarios.scenario import POSITION, VALID

_KEPT = 2  # nearest ones of a kind that are never left out
_NOWHERE = 1e9  # squared distance, or chance, of who is not there
_STEPS, _BLOCK = 1024.0, 256.0  # steps in a metre or second, and numbers that are told apart
_FACTORS = (83.0, 61.0, 251.0, 127.0, 509.0, 313.0, 421.0)


def with_drop_out(signals: Mapping[str, jax.Array], share: float, key: jax.Array) -> dict[str, jax.Array]:
    """Return the signals with a share of the neighbours, and of the entities of each group, as absent.

    ``signals`` (..., K, C) are batch first; groups without a position or without a signal of their presence stay whole.
    """
    changed = dict(signals)
    for number, name in enumerate(sorted(name for name in signals if name.endswith(VALID))):
        place = f"{name.removesuffix(VALID)}{POSITION}"
        if place not in signals:
            continue
        present, point = signals[name], signals["control_point_world"]
        each = present.reshape(signals[place].shape[:-1])
        away_m = jnp.linalg.norm(signals[place] - point[..., None, :], axis=-1)
        away_m = jnp.where(each > 0, away_m, jnp.inf)
        rank = jnp.argsort(jnp.argsort(away_m, axis=-1), axis=-1)
        seen = (rank < _KEPT) | (jax.random.uniform(jax.random.fold_in(key, number), each.shape) >= share)
        changed[name] = jnp.where(seen, each, 0.0).reshape(present.shape)
    return changed


def without_surplus(signals: Mapping[str, jax.Array], most: int) -> dict[str, jax.Array]:
    """Return the signals with at most ``most`` neighbours: the nearest two, and of the others those that chance leaves.

    Chance is a function of the signals themselves, so that a recorded decision is inferred again exactly, and equal on
    every runtime: see `_chance`. Of equally near ones, or of equal chance, all stay.
    """
    present = signals["neighbour_valid"]
    there = present > 0
    offset = signals["neighbour_position_world"] - signals["control_point_world"][..., None, :]
    away = jnp.where(there, jnp.sum(offset**2, axis=-1), _NOWHERE)
    score = jnp.where(_before(away) < _KEPT, -1.0, jnp.where(there, _chance(signals), _NOWHERE))
    return {**signals, "neighbour_valid": jnp.where(_before(score) < most, present, 0.0)}


def _before(values: jax.Array) -> jax.Array:
    """Return how many of the values (..., K) are less than each; the exported graph cannot sort along free axes."""
    return jnp.sum((values[..., None, :] < values[..., :, None]).astype(jnp.float32), axis=-1)


def _chance(signals: Mapping[str, jax.Array]) -> jax.Array:
    """Return a number (..., K) of 0 to 1023 for each neighbour, from the places of both and the age of its message.

    It only has whole numbers that single precision holds exactly, whatever the order of the operations.
    """
    point, place = signals["control_point_world"][..., None, :], signals["neighbour_position_world"]
    total = _FACTORS[0] * _part(_STEPS * signals["neighbour_age"], _BLOCK)
    for axis in range(place.shape[-1]):
        theirs, own = _FACTORS[1 + 2 * axis], _FACTORS[2 + 2 * axis]
        total = total + theirs * _part(_STEPS * place[..., axis], _BLOCK)
        total = total + own * _part(_STEPS * point[..., axis], _BLOCK)
    mixed = _part(total, _STEPS)
    return _part(mixed * (mixed + 331.0) / 8.0, _STEPS)


def _part(values: jax.Array, size: float) -> jax.Array:
    """Return the whole part of the values, modulo a power of two."""
    whole = jnp.floor(values)
    return whole - size * jnp.floor(whole / size)
