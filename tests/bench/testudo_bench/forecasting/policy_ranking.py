"""Policies of different quality, ranked by what is forecast of them and by what plants with hidden parameters do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from scipy.stats import rankdata

from testudo_analysis.forecast.outcomes import TIME_TO_GOAL, base_name
from testudo_analysis.forecast.sampled_fleets import FleetSimulator, Worlds
from testudo_bench.forecasting.hidden_plants import HiddenPlant
from testudo_bench.forecasting.saved_results import SavedResults
from testudo_sim.team.batch_policy import BatchPolicy, artefact_policy

_GAINS = (1.0, 0.9, 0.75, 0.6)
_TURNED_RAD = 0.5
_FEWEST = 12  # fleets of each plant and policy: their mean is compared, no interval
_SEED = 9_000_000


def policy_ranking(
    simulator: FleetSimulator,
    plants: Sequence[HiddenPlant],
    fleets: int,
    saved: SavedResults,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return policies, their mean time to goal as forecast and of the true plants [s], and Spearman's correlation."""
    policies = ranked_policies(simulator)
    count = min(fleets, _FEWEST)
    worlds: Worlds | None = None
    for k, plant in enumerate(plants):
        drawn = simulator.worlds(_SEED + k, count, [plant.start], plant.identified, 1.0)
        true = simulator.worlds(k, 1, [plant.start], plant.true, 0.0)
        both = true.and_also(drawn)
        worlds = both if worlds is None else worlds.and_also(both)
    assert worlds is not None

    def means(number: int, policy: BatchPolicy) -> list[float]:
        found = simulator.outcomes(worlds, number, policy=policy)
        times = np.mean([values for name, values in found.items() if base_name(name) == TIME_TO_GOAL], axis=0)
        by_plant = times.reshape(len(plants), count + 1)
        return [float(by_plant[:, 1:].mean()), float(by_plant[:, 0].mean())]

    rows = []
    for number, (name, policy) in enumerate(policies.items()):
        say(f"policy {number + 1} of {len(policies)}: {name}")
        part = f"policy {name}, {len(plants)} plants"
        rows.append(saved.known(part, lambda number=number, policy=policy: means(number, policy)))
    forecast, real = zip(*rows, strict=True)
    correlation = float(np.corrcoef(rankdata(forecast), rankdata(real))[0, 1])
    found = {"policies": list(policies), "forecast_s": list(forecast), "real_s": list(real)}
    return found | {"rank_correlation": correlation}


def ranked_policies(simulator: FleetSimulator) -> dict[str, BatchPolicy]:
    """Return the policy of a simulator and one by hand, both also with lower gains, turned aside, and an idle one."""
    contract = simulator.team.artefact.contract
    trained, limit = artefact_policy(simulator.team.artefact), contract.command.limit

    def by_hand(signals: Mapping[str, jax.Array], hidden: jax.Array) -> tuple[Any, Any]:
        way = np.asarray(signals["goal_world"]) - np.asarray(signals["control_point_world"])
        return way * np.minimum(1.0, limit / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-6)), hidden

    made: dict[str, BatchPolicy] = {}
    for name, policy in (("trained", trained), ("by hand", by_hand)):
        made |= {f"{name}, gain {gain:g}": changed(policy, gain, 0.0) for gain in _GAINS}
    made["by hand, turned aside"] = changed(by_hand, 1.0, _TURNED_RAD)
    made["by hand, nearly idle"] = changed(by_hand, 0.2, 0.0)
    return made


def changed(policy: BatchPolicy, gain: float, turned_rad: float) -> BatchPolicy:
    """Return a policy with another gain, whose velocities in the plane are turned by an angle."""
    cos, sin = np.cos(turned_rad), np.sin(turned_rad)
    turn = gain * np.array([[cos, sin], [-sin, cos]], np.float32)

    def acting(signals: Mapping[str, jax.Array], hidden: jax.Array) -> tuple[Any, Any]:
        velocity, after = policy(signals, hidden)
        return np.asarray(velocity) @ turn, after

    return acting
