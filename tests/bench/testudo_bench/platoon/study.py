"""The measurements of the platoon study: shields, the best driving, driving by rules, and learning."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from testudo_bench.platoon.cars import CarSpec
from testudo_bench.platoon.driving import Driver, Outcome, Task, drive, greedy_driver, random_driver
from testudo_bench.platoon.learners import Learning, learn
from testudo_bench.platoon.optimum import Optimum, follower_optimum, team_optimum
from testudo_bench.platoon.planning import plan_cascade
from testudo_bench.platoon.policy_gradient import learn_together
from testudo_bench.platoon.shields import BrakingShield, CarShield, Open, TableShield, exact_shield, tabulated

_SEED = 1_000_000  # of the episodes of evaluation; learning has others
_SLOW_LAG_S = 0.5  # of a car's drive

type Say = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """How much is measured."""

    episodes: int = 10_000  # of each evaluation
    controls: int = 1_000  # of what is not safe
    learned: tuple[int, ...] = (100, 1_000, 10_000)  # episodes of each car
    seeds: int = 3
    cars: int = 10


QUICK = Budget(episodes=500, controls=100, learned=(100,), seeds=1)


@dataclass(frozen=True)
class ShieldFigures:
    """A shield on the grid, beside the exact one."""

    shield: str
    states: int  # in which something is admitted
    admitted: int  # pairs of state and acceleration
    share_of_exact: float  # of the pairs that the exact shield admits
    forbidden: int  # pairs that it admits and the exact shield forbids
    build_s: float
    decision_us: float  # of one car among many


@dataclass(frozen=True)
class DrivingFigures:
    """Episodes of one driver; the cost of those that stayed safe, None if there are none."""

    driver: str
    shield: str
    lag_s: float
    sees: str
    episodes: int
    unsafe: int
    blocked: int
    cost_m: float | None


@dataclass(frozen=True)
class LearningFigures:
    """One seed of one way to learn."""

    arm: str
    learned_episodes: int  # of each car
    seed: int
    unsafe_in_learning: int
    cost_m: float  # with the shield
    unsafe: int  # with the shield
    cost_without_m: float | None  # without the shield, of the episodes that stayed safe
    unsafe_without: int


@dataclass
class Findings:
    """What has been measured so far."""

    budget: Budget
    shields: list[ShieldFigures] = field(default_factory=list)
    driving: list[DrivingFigures] = field(default_factory=list)
    learning: list[LearningFigures] = field(default_factory=list)
    optima: list[Optimum] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


def compare_shields(found: Findings, say: Say) -> tuple[TableShield, TableShield]:
    """Add what the shields admit on the grid, and return the exact shield and the braking rule as tables."""
    say("shields")
    spec = CarSpec()
    begin = time.perf_counter()
    exact = exact_shield(spec)
    exact_s = time.perf_counter() - begin
    rule = BrakingShield(spec)
    braking = tabulated(rule)
    for name, shield, table, build_s in (("exact", exact, exact, exact_s), ("braking rule", rule, braking, 0.0)):
        both = int(np.sum(table.table & exact.table))
        found.shields.append(
            ShieldFigures(
                name,
                int(np.sum(np.any(table.table, axis=0))),
                int(np.sum(table.table)),
                both / int(np.sum(exact.table)),
                int(np.sum(table.table)) - both,
                build_s,
                _decision_us(shield, exact),
            )
        )
    return exact, braking


def find_optima(found: Findings, braking: TableShield, say: Say) -> None:
    """Add the best driving of one follower, and of a small team."""
    say("best driving")
    found.optima.append(follower_optimum(braking, Task(braking.spec).start_gap_m))
    found.optima.append(team_optimum())


def drive_by_rules(found: Findings, shields: tuple[TableShield, TableShield], lag_s: float, say: Say) -> None:
    """Add greedy and random driving: under both shields, with lags, and without what makes them safe."""
    exact, braking = shields
    task = Task(braking.spec, found.budget.cars)
    drivers: tuple[tuple[str, Driver], ...] = (("random", random_driver), ("greedy", greedy_driver))
    close = replace(task, start_gap_m=10.0)
    cases: list[tuple[str, CarShield, Task]] = [
        ("braking rule", braking, task),
        ("exact", exact, task),
        ("braking rule, gaps of 10 m at first", braking, close),
    ]
    for lag in (lag_s, _SLOW_LAG_S):
        cases.append(("braking rule", braking, replace(task, lag_s=lag)))
        cases.append(("braking rule", BrakingShield(task.spec), replace(task, lag_s=lag, sees_stopping_points=False)))
    cases.append(("none", Open(task.spec), task))
    for name, shield, place in cases:
        for called, driver in drivers:
            say(f"{called} driving, shield: {name}, lag {place.lag_s:g} s")
            controls = isinstance(shield, Open) or not place.sees_stopping_points
            episodes = found.budget.controls if controls else found.budget.episodes
            outcome = drive(place, shield, driver, episodes, _SEED)
            found.driving.append(_driving(called, name, place, outcome))


def learn_all(found: Findings, braking: TableShield, say: Say) -> None:
    """Add every way to learn, budget and seed."""
    task = Task(braking.spec, found.budget.cars)
    for episodes in found.budget.learned:
        for seed in range(found.budget.seeds):
            for arm, shield, cascade in (
                ("cascade", braking, True),
                ("all at once", braking, False),
                ("cascade without the shield", Open(task.spec), True),
            ):
                text = f"{arm}, {episodes:,} episodes of each car, seed {seed}"
                learning = Learning(episodes=episodes, cascade=cascade)
                learned = learn(task, shield, learning, seed, lambda share, text=text: say(f"{text}: {share:.0%}"))
                _evaluate(found, braking, learned.driver, (arm, episodes, seed, learned.unsafe_episodes))
            for arm, shield in (("PPO, all at once", braking), ("PPO without the shield", Open(task.spec))):
                text = f"{arm}, {episodes:,} episodes, seed {seed}"
                trained = learn_together(
                    task, shield, Learning(episodes), seed, lambda share, text=text: say(f"{text}: {share:.0%}")
                )
                _evaluate(found, braking, trained.driver, (arm, episodes, seed, trained.unsafe_episodes))
            text = f"planned cascade, {episodes:,} episodes of each car, seed {seed}"
            planned = plan_cascade(task, braking, episodes, seed, lambda share, text=text: say(f"{text}: {share:.0%}"))
            _evaluate(found, braking, planned, ("planned cascade", episodes, seed, 0))


def _evaluate(found: Findings, braking: TableShield, driver: Driver, of: tuple[str, int, int, int]) -> None:
    task = Task(braking.spec, found.budget.cars)
    shielded = drive(task, braking, driver, found.budget.episodes, _SEED)
    alone = drive(task, Open(task.spec), driver, found.budget.controls, _SEED)
    unsafe, without = (int(np.sum(outcome.unsafe)) for outcome in (shielded, alone))
    found.learning.append(LearningFigures(*of, shielded.mean_cost_m, unsafe, _cost(alone), without))


def _driving(driver: str, shield: str, task: Task, outcome: Outcome) -> DrivingFigures:
    sees = "stopping points" if task.sees_stopping_points else "measured places"
    return DrivingFigures(
        driver,
        shield,
        task.lag_s,
        sees if task.lag_s else "",
        len(outcome.unsafe),
        int(np.sum(outcome.unsafe)),
        outcome.blocked,
        _cost(outcome),
    )


def _cost(outcome: Outcome) -> float | None:
    return None if np.all(outcome.unsafe) else outcome.mean_cost_m


def _decision_us(shield: CarShield, exact: TableShield) -> float:
    states = exact.grid.states
    shield.admits(*states)
    begin = time.perf_counter()
    shield.admits(*states)
    return 1e6 * (time.perf_counter() - begin) / states[0].size
