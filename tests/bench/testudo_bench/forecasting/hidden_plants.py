"""Plants with hidden parameters: robots, the file that identification finds of each, and a start and goals."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from testudo_analysis.forecast.sampled_fleets import TeamStart
from testudo_analysis.identify.identify_run import identify_run
from testudo_bench.forecasting.saved_results import SavedResults
from testudo_bench.synthetic_data.synthetic_runs import Truth, synthetic_run
from testudo_hardware.schema import QUANTITIES
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import prepare
from testudo_runs.recording.recording import Recording, RobotRecording

_DRIVEN_S = 60.0  # of the run from which each plant is identified
_APART_M = 0.35  # of two starts, and of two goals
_HIDDEN = {
    "velocity_lag_s": "dynamics.velocity_lag",
    "command_delay_s": "dynamics.command_delay",
    "speed_scale": "dynamics.speed_scale",
    "turn_scale": "dynamics.turn_scale",
}
Values = list[dict[str, list[float]]]
"""Value, low and high by key, for each robot."""


@dataclass(frozen=True)
class HiddenPlant:
    """Robots whose parameters nobody knows."""

    true: tuple[RobotSpec, ...]  # (N,): files with the hidden values, without intervals
    identified: tuple[RobotSpec, ...]  # (N,): what `identify` finds of a run of each
    start: TeamStart  # of the run that is forecast


def hidden_plants(
    spec: RobotSpec,
    size: int,
    count: int,
    room_m: tuple[float, float],
    saved: SavedResults,
    say: Callable[[str], None] = lambda _: None,
) -> list[HiddenPlant]:
    """Return ``count`` plants of ``size`` robots; ``saved`` keeps what was identified of each.

    ``room_m`` are half the sides of the rectangle of starts and goals.

    Raises:
        TestudoError: the file has other contents, or plants of other robots.
    """
    known = saved.begin_plants({"robot_sha256": spec.sha256, "robots": size, "driven_s": _DRIVEN_S})
    for number in range(len(known), count):
        say(f"identifying plant {number + 1} of {count}")
        saved.add_plant(_identified(spec, _truths(spec, size, number), size * number))
    return [_plant(spec, size, number, found, room_m) for number, found in enumerate(known[:count])]


def with_quantity(spec: RobotSpec, key: str, value: float, low: float, high: float) -> RobotSpec:
    """Return a robot file with another value and interval of one quantity; one that it does not have is left out."""
    if key not in spec.quantities:
        return spec
    changed = replace(spec.quantities[key], value=value, low=min(low, value), high=max(high, value), source="bench")
    return replace(spec, quantities={**spec.quantities, key: changed}, **{QUANTITIES[key].attribute: value})


def _truths(spec: RobotSpec, size: int, number: int) -> list[Truth]:
    """Return hidden parameters of each robot, from the intervals of the robot file."""
    rng = np.random.default_rng([number, 22])
    ends = {name: (spec.quantities[key].low, spec.quantities[key].high) for name, key in _HIDDEN.items()}
    return [Truth(**{name: rng.uniform(*of) for name, of in ends.items()}) for _ in range(size)]


def _identified(spec: RobotSpec, truths: list[Truth], seed: int) -> Values:
    """Return what is identified of each robot from a minute of driving.

    The run steps the model by 2 ms with exact delays, has noise and losses of poses, and is no run of the simulation
    that forecasts.
    """
    robots: dict[str, RobotRecording] = {}
    for k, truth in enumerate(truths):
        run = synthetic_run(spec, truth, robots=1, duration_s=_DRIVEN_S, seed=seed + k)
        robots[f"r{k}"] = replace(next(iter(run.robots.values())), name=f"r{k}")
    found = identify_run(prepare(Recording(robots, run.start_ns, None, run.info)), hold_out=())[0]
    return [{one.key: list(one.by_robot[name]) for one in found.estimates if name in one.by_robot} for name in robots]


def _plant(spec: RobotSpec, size: int, number: int, found: Values, room_m: tuple[float, float]) -> HiddenPlant:
    true, identified = [], []
    for truth, values in zip(_truths(spec, size, number), found, strict=True):
        own, file = spec, spec
        for name, key in _HIDDEN.items():
            own = with_quantity(own, key, *[getattr(truth, name)] * 3)
        for key, (value, low, high) in values.items():
            file = with_quantity(file, key, value, low, high)
        true.append(own)
        identified.append(file)
    return HiddenPlant(tuple(true), tuple(identified), _start(np.random.default_rng([number, 23]), size, room_m))


def _start(rng: np.random.Generator, size: int, room_m: tuple[float, float]) -> TeamStart:
    """Return starts and goals within a rectangle, each kind apart."""

    def places() -> np.ndarray:
        while True:
            drawn = rng.uniform(-1, 1, (size, 2)) * room_m
            if all(np.linalg.norm(drawn[i] - drawn[j]) >= _APART_M for i, j in combinations(range(size), 2)):
                return drawn.T

    return TeamStart(places(), rng.uniform(-np.pi, np.pi, size), places())
