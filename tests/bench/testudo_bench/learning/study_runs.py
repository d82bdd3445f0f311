"""Arms, budget, runs and saved results of the shield study."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.learning.team_cost import Cost
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_policies.train_config import TrainConfig


@dataclass(frozen=True)
class StudyArm:
    """One use of the shield in training and evaluation."""

    name: str  # When the shield runs
    trained_shielded: bool
    evaluated_shielded: bool


ARMS = (
    StudyArm("always", trained_shielded=True, evaluated_shielded=True),
    StudyArm("evaluation only", trained_shielded=False, evaluated_shielded=True),
    StudyArm("never", trained_shielded=False, evaluated_shielded=False),
    StudyArm("training only", trained_shielded=True, evaluated_shielded=False),
)
"""The last arm needs no separate training; it shows how much a policy depends on its shield."""

SOLVED = 0.97  # success at which the task counts as solved


@dataclass(frozen=True)
class Budget:
    """Training and evaluation effort of every run, equal for all arms."""

    robot: str = "gritsbot_x"
    team_size: int = 4
    worlds: int = 256
    rollout: int = 32
    updates: int = 60
    points: int = 7  # Evaluations of a training, the first before it and the last at its end
    episodes: int = 256  # Episodes of each evaluation, with the same held-out seeds for all
    seeds: int = 3
    contact_cost: float = 5.0
    """Reward lost at a contact without a shield, which ends the episode; equal to the reward of success."""

    @property
    def config(self) -> TrainConfig:
        """Return the training configuration; the seed is set for each run."""
        return TrainConfig(
            robot=self.robot,
            team_size=self.team_size,
            worlds=self.worlds,
            rollout=self.rollout,
            decisions=self.updates * self.worlds * self.rollout,
        )

    @property
    def evaluated_at(self) -> tuple[int, ...]:
        """Return the updates after which policies are evaluated, in order; denser at the start."""
        share = np.linspace(0.0, 1.0, self.points) ** 2
        return tuple(sorted({round(float(x) * self.updates) for x in share}))

    def decisions(self, update: int) -> int:
        """Return the environment steps (decisions of a team) that ``update`` updates have taken."""
        return update * self.worlds * self.rollout


QUICK = Budget(updates=6, points=4, episodes=64, seeds=1)  # a small budget, only to test that all works


@dataclass(frozen=True)
class Point:
    """Held-out episodes of one policy at one point of its training."""

    update: int
    shielded: bool
    success: float  # share of episodes in which all robots reach their goals without a contact
    reached: float  # Share of episodes in which all robots reach their goals
    touched: float  # Share of episodes with a contact before their end
    contacts_per_robot_hour: float  # Number of decisions in which a contact begins, per robot-hour
    time_to_goal_s: float | None  # Mean over successful episodes [s]; None without one
    interventions: float  # Share of robot-ticks in which the shield changes the command


@dataclass(frozen=True)
class Run:
    """One training with its evaluations."""

    shielded: bool
    seed: int
    points: tuple[Point, ...]
    training_contacts: int
    """Sum over control ticks of pairs in contact during training: the cost of learning on real robots."""
    training_s: float  # Training time [s] without compilation and evaluation

    @property
    def key(self) -> tuple[bool, int]:
        """Return the key of the run in its study."""
        return self.shielded, self.seed

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Run":
        """Return a run from the values of `asdict`.

        Raises:
            TypeError: keys are missing or unknown.
        """
        return cls(**{**values, "points": tuple(Point(**point) for point in values["points"])})


def open_runs(budget: Budget, done: Sequence[Run]) -> list[tuple[bool, int]]:
    """Return the remaining runs (shielded, seed), in the order of seeds, so that all arms have equally many."""
    known = {run.key for run in done}
    wanted = [(shielded, seed) for seed in range(budget.seeds) for shielded in (True, False)]
    return [key for key in wanted if key not in known]


def curve(runs: Sequence[Run], arm: StudyArm, field: str) -> tuple[list[int], np.ndarray]:
    """Return the updates (P,) and the values (S, P) of an arm's runs; NaN without a value."""
    chosen = [run for run in runs if run.shielded == arm.trained_shielded]
    rows = [[point for point in run.points if point.shielded == arm.evaluated_shielded] for run in chosen]
    if not rows:
        return [], np.empty((0, 0))
    values = [[_number(getattr(point, field)) for point in row] for row in rows]
    return [point.update for point in rows[0]], np.array(values)


def solved_at(updates: Sequence[int], success: np.ndarray) -> list[int | None]:
    """Return for each run (S, P) the update after which success stays at least `SOLVED`; None: never."""
    found: list[int | None] = []
    for row in success >= SOLVED:
        below = np.flatnonzero(~row)
        first = 0 if not len(below) else int(below[-1]) + 1
        found.append(updates[first] if first < len(updates) else None)
    return found


def has_flattened(success: np.ndarray) -> bool:
    """Return whether the median curve (S, P) changed by at most 0.01 in its last two steps."""
    last = np.median(success, axis=0)[-3:]
    return bool(np.ptp(last) <= 0.01)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


@dataclass
class SavedResults:
    """Results of a study, written to its file after each step."""

    budget: Budget
    file: Path | None = None
    runs: list[Run] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    @classmethod
    def open(cls, budget: Budget, file: Path | None) -> "SavedResults":
        """Return the saved results of a study with this budget; empty without a file.

        Raises:
            TestudoError: the file has other contents or another budget (the number of seeds may differ).
        """
        if file is None or not file.exists():
            return cls(budget, file)
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            found, runs = values["budget"], [Run.from_dict(run) for run in values["runs"]]
            costs = [Cost(**cost) for cost in values["costs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(
                f"--json {file}: expected the results of a `bench learning` study; give another file"
            ) from error
        for name, expected in asdict(budget).items():
            if name != "seeds" and found.get(name) != expected:
                raise TestudoError(
                    f"--json {file}: budget.{name}: found {found.get(name)!r}, expected {expected!r}; "
                    "give another file, or the options of the saved study"
                )
        return cls(budget, file, [run for run in runs if run.seed < budget.seeds], costs)

    def add_run(self, run: Run) -> None:
        """Add a training run."""
        self.runs.append(run)
        self._write()

    def add_cost(self, cost: Cost) -> None:
        """Add the cost of a team size."""
        self.costs.append(cost)
        self._write()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "budget": asdict(self.budget),
            "runs": [asdict(run) for run in self.runs],
            "costs": [asdict(cost) for cost in self.costs],
        }

    def _write(self) -> None:
        if self.file is None:
            return
        try:
            write_whole(self.file, json.dumps(self.to_dict(), indent=2) + "\n")
        except OSError as error:
            raise TestudoError(f"--json {self.file}: cannot be written: {error.strerror}") from error
