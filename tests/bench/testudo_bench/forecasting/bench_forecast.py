"""`testudo bench forecast`: forecasts of plants with hidden parameters, scored by one run of each."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from testudo_analysis.forecast.forecast import quantity_forecasts
from testudo_analysis.forecast.sampled_fleets import FleetSimulator, SampledTeam
from testudo_analysis.forecast.score_forecast import ScoredQuantity, mean_crps, scored, summary
from testudo_bench.forecasting.hidden_plants import HiddenPlant, hidden_plants
from testudo_bench.forecasting.policy_ranking import policy_ranking
from testudo_bench.forecasting.saved_results import SavedResults
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec, parse_robot
from testudo_sim.physics.fleet_parameters import with_longest_delay

COLUMNS = ("robot files", "numbers", "in 80 %", "in 95 %", "CRPS over nominal")
IDENTIFIED, PRIOR, SHUFFLED = "identified", "prior", "shuffled"
_SHOWN = {
    IDENTIFIED: "identified, of each robot",
    PRIOR: "as shipped, with its intervals",
    SHUFFLED: "identified, of another plant's robot (control)",
}
_ROBOTS, _HORIZON_S, _NOMINAL = 4, 40.0, 50
_PLANTS, _FLEETS, _QUICK = 20, 1000, (3, 60)
_ROOM_M = (1.2, 0.7)
_SEEDS = 1_000_000  # apart of the kinds of worlds


def bench_forecast(
    *,
    policy: Path | None = None,
    repeats: int = _PLANTS,
    worlds: int = _FLEETS,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Forecast the next run of plants with hidden parameters, and count how often it comes true.

    Four robots of each plant have lag, delay and scales from the intervals of the robot file, are identified from a
    minute of driving, and begin elsewhere. One simulated run of the true plant scores three forecasts of it, and that
    of the nominal file: with the identified files, with the intervals as shipped, and with the identified files of
    another plant's robots, which must lose coverage. Then ten policies are ranked by their forecasts.

    Args:
        policy: policy file; by default the shipped one of navigation.
        repeats: number of plants.
        worlds: fleets of each forecast.
        quick: 3 plants and 60 fleets.
        saved: JSON file that keeps what was identified of each plant, and each score, so that the same command goes on.
        say: called with progress messages.
    """
    began = perf_counter()
    count, fleets = _QUICK if quick else (repeats, worlds)
    if count < 2 or fleets < 2:
        raise TestudoError(f"bench forecast: found {count} plants and {fleets} fleets, expected at least 2 of each")
    file = policy_file(Path("navigation")) if policy is None else policy
    artefact = PolicyArtefact.load(file)
    spec = parse_robot(artefact.contract.robot_spec, str(file))
    kept = SavedResults(None if quick else saved, {"policy_sha256": artefact.sha256, "fleets": fleets})
    plants = hidden_plants(spec, _ROBOTS, count, _ROOM_M, kept, say)
    simulator = simulator_of(artefact, spec, plants)
    scores = _all_scores(simulator, plants, fleets, kept, say)
    ranking = policy_ranking(simulator, plants, fleets, kept, say)
    values: dict[str, Any] = {
        "plant_count": count,
        "fleets": fleets,
        "robot": spec.name,
        "arms": {name: _figures(found) for name, found in scores.items()},
        "ranking": ranking,
        "seconds": perf_counter() - began,
        **kept.values,
    }
    title = f"forecasts of {count} plants of {_ROBOTS} {spec.name}, {fleets} fleets each"
    return BenchResult(
        title, COLUMNS, [_row(name, found) for name, found in scores.items()], values, (_ranked(ranking),)
    )


def simulator_of(artefact: PolicyArtefact, spec: RobotSpec, plants: Sequence[HiddenPlant]) -> FleetSimulator:
    """Return a simulator whose histories hold the delays of all plants."""
    every = [one for plant in plants for one in (*plant.true, *plant.identified)]
    names = tuple(f"r{k}" for k in range(_ROBOTS))
    files = (with_longest_delay(spec, every),) * _ROBOTS
    return FleetSimulator(SampledTeam(names, spec, files, artefact, artefact.contract.arena, _HORIZON_S))


def _all_scores(
    simulator: FleetSimulator,
    plants: Sequence[HiddenPlant],
    fleets: int,
    kept: SavedResults,
    say: Callable[[str], None],
) -> dict[str, list[ScoredQuantity]]:
    """Return the scores of all plants by kind of robot file."""
    scores: dict[str, list[ScoredQuantity]] = {name: [] for name in _SHOWN}
    for number in range(len(plants)):
        say(f"plant {number + 1} of {len(plants)}: {3 * fleets} fleets")
        # the last one's control are the robots of the first one, wherever the row ends
        name = f"plant {number}, control {(number + 1) % len(plants)}"
        found = kept.known(name, lambda k=number: _plain(plant_scores(simulator, plants, k, fleets)))
        for kind, rows in found.items():
            scores[kind] += [ScoredQuantity(**row) for row in rows]
    return scores


def plant_scores(
    simulator: FleetSimulator,
    plants: Sequence[HiddenPlant],
    number: int,
    fleets: int,
    share: Callable[[float], None] = lambda _: None,
) -> dict[str, list[ScoredQuantity]]:
    """Return the scores of one of the plants by each kind of robot file; all its worlds are one batch after another."""
    plant, spec = plants[number], simulator.team.described
    other = plants[(number + 1) % len(plants)].identified
    kinds = (IDENTIFIED, PRIOR, SHUFFLED)
    files = (plant.identified, (spec,) * _ROBOTS, (*other[1:], other[0]))
    nominal = simulator.worlds(number + _SEEDS, _NOMINAL, [plant.start], [spec] * _ROBOTS, 0.0, noisy=False)
    whole = simulator.worlds(number, 1, [plant.start], plant.true, 0.0).and_also(nominal)
    for k, own in enumerate(files):
        whole = whole.and_also(simulator.worlds(number + (k + 2) * _SEEDS, fleets, [plant.start], own, 1.0))
    found = simulator.outcomes(whole, number, share)
    ends = np.cumsum([0, 1, _NOMINAL, fleets, fleets, fleets])
    true, plain, *sampled = (slice(low, high) for low, high in itertools.pairwise(ends))
    return {kind: _scored(found, own, plain, true) for kind, own in zip(kinds, sampled, strict=True)}


def _scored(found: Mapping[str, np.ndarray], own: slice, nominal: slice, true: slice) -> list[ScoredQuantity]:
    """Return the scores of one forecast against the true plant's run."""
    sampled, plain, seen = ({name: values[of] for name, values in found.items()} for of in (own, nominal, true))
    return [
        scored(one, float(seen[one.name][0]))
        for one in quantity_forecasts(sampled, plain, {})
        if np.isfinite(seen[one.name][0])
    ]


def _plain(scores: Mapping[str, Sequence[ScoredQuantity]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [asdict(one) for one in found] for name, found in scores.items()}


def _figures(found: list[ScoredQuantity]) -> dict[str, Any]:
    kinds = {kind: [own, plain] for kind, (own, plain) in mean_crps(found).items()}
    return {**summary(found), "crps_by_kind": kinds}


def _row(name: str, found: list[ScoredQuantity]) -> tuple[str, ...]:
    figures = summary(found)
    return (
        _SHOWN[name],
        str(figures["covered_of"]),
        f"{figures['coverage_80']:.1%}",
        f"{figures['coverage_95']:.1%}",
        f"{figures['crps_over_nominal']:.2f}",
    )


def _ranked(ranking: Mapping[str, Any]) -> BenchResult:
    rows = [
        (name, f"{forecast:.2f} s", f"{real:.2f} s")
        for name, forecast, real in zip(ranking["policies"], ranking["forecast_s"], ranking["real_s"], strict=True)
    ]
    title = f"mean time to goal of {len(rows)} policies: rank correlation {ranking['rank_correlation']:.3f}"
    return BenchResult(title, ("policy", "forecast", "true plants"), rows, dict(ranking))
