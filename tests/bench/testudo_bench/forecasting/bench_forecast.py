"""`testudo bench forecast`: forecasts of plants with hidden parameters, scored by one run of each."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from testudo_analysis.forecast.forecast import quantity_forecasts
from testudo_analysis.forecast.sampled_fleets import FleetSimulator, SampledTeam, Worlds
from testudo_analysis.forecast.score_forecast import ScoredQuantity, mean_crps, scored, summary
from testudo_bench.forecasting.hidden_plants import HiddenPlant, hidden_plants
from testudo_bench.forecasting.policy_ranking import policy_ranking
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
        saved: JSON file that keeps what was identified of each plant, so that the same command goes on.
        say: called with progress messages.
    """
    began = perf_counter()
    count, fleets = _QUICK if quick else (repeats, worlds)
    if count < 2 or fleets < 2:
        raise TestudoError(f"bench forecast: found {count} plants and {fleets} fleets, expected at least 2 of each")
    file = policy_file(Path("navigation")) if policy is None else policy
    artefact = PolicyArtefact.load(file)
    spec = parse_robot(artefact.contract.robot_spec, str(file))
    plants = hidden_plants(spec, _ROBOTS, count, _ROOM_M, None if quick else saved, say)
    simulator = simulator_of(artefact, spec, plants)
    say(f"simulating {count} plants and {3 * count * fleets} fleets")
    scores = plant_scores(simulator, plants, spec, fleets, lambda done: say(f"simulating, {done:.0%}"))
    ranking = policy_ranking(simulator, plants, fleets, lambda done: say(f"ranking policies, {done:.0%}"))
    values: dict[str, Any] = {
        "plant_count": count,
        "fleets": fleets,
        "robot": spec.name,
        "arms": {name: _figures(found) for name, found in scores.items()},
        "ranking": ranking,
        "seconds": perf_counter() - began,
    }
    if saved is not None and saved.exists() and not quick:
        values |= saved_plants(saved)
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


def plant_scores(
    simulator: FleetSimulator,
    plants: Sequence[HiddenPlant],
    spec: RobotSpec,
    fleets: int,
    share: Callable[[float], None],
) -> dict[str, list[ScoredQuantity]]:
    """Return the scores of each kind of robot file, of all plants; all worlds are one batch after the other."""
    whole: Worlds | None = None
    places: dict[tuple[int, str], slice] = {}
    for k, plant in enumerate(plants):
        other = plants[(k + 1) % len(plants)].identified
        made = {
            "true": simulator.worlds(k, 1, [plant.start], plant.true, 0.0),
            "nominal": simulator.worlds(k + _SEEDS, _NOMINAL, [plant.start], [spec] * _ROBOTS, 0.0, noisy=False),
            IDENTIFIED: simulator.worlds(k + 2 * _SEEDS, fleets, [plant.start], plant.identified, 1.0),
            PRIOR: simulator.worlds(k + 3 * _SEEDS, fleets, [plant.start], [spec] * _ROBOTS, 1.0),
            SHUFFLED: simulator.worlds(k + 4 * _SEEDS, fleets, [plant.start], (*other[1:], other[0]), 1.0),
        }
        for name, worlds in made.items():
            begin = 0 if whole is None else len(whole.starts)
            places[k, name] = slice(begin, begin + len(worlds.starts))
            whole = worlds if whole is None else whole.and_also(worlds)
    assert whole is not None
    found = simulator.outcomes(whole, 0, share)
    scores: dict[str, list[ScoredQuantity]] = {name: [] for name in _SHOWN}
    for k, name in places:
        if name in scores:
            scores[name] += _scored(found, *(places[k, of] for of in (name, "nominal", "true")))
    return scores


def _scored(found: Mapping[str, np.ndarray], own: slice, nominal: slice, true: slice) -> list[ScoredQuantity]:
    """Return the scores of one forecast against the true plant's run."""
    sampled, plain, seen = ({name: values[of] for name, values in found.items()} for of in (own, nominal, true))
    return [
        scored(one, float(seen[one.name][0]))
        for one in quantity_forecasts(sampled, plain, {})
        if np.isfinite(seen[one.name][0])
    ]


def saved_plants(saved: Path) -> dict[str, Any]:
    """Return what the file of results keeps of the plants."""
    values = json.loads(saved.read_text(encoding="utf-8"))
    return {key: values[key] for key in ("plant_settings", "plants")}


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
