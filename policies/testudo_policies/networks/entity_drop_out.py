"""Drop-out of neighbours and entities in the eyes of a policy in training, so that it does with fewer, and others.

FlickerFusion (ICLR 2025): which ones are left out is drawn anew at each decision. The nearest two of a kind never are.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from testudo_sim.scenarios.scenario import POSITION, VALID

_KEPT = 2  # nearest ones of a kind that are never left out


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
