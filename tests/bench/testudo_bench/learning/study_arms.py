"""The arms of the study, its budget, and the curves that it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_policies.train_config import TrainConfig


@dataclass(frozen=True)
class StudyArm:
    """One way of using the shield."""

    name: str
    """When the shield runs."""
    trained_shielded: bool
    evaluated_shielded: bool


ARMS = (
    StudyArm("always", trained_shielded=True, evaluated_shielded=True),
    StudyArm("evaluation only", trained_shielded=False, evaluated_shielded=True),
    StudyArm("never", trained_shielded=False, evaluated_shielded=False),
    StudyArm("training only", trained_shielded=True, evaluated_shielded=False),
)
"""The last one costs no training of its own: it tells how far a policy relies on its shield."""

SOLVED = 0.97
"""Success at which a policy counts as solved, as in `learning_benchmark`."""


@dataclass(frozen=True)
class Budget:
    """What every run of the study may spend; the same for all arms."""

    robot: str = "gritsbot_x"
    team_size: int = 4
    worlds: int = 256
    rollout: int = 32
    updates: int = 60
    points: int = 7
    """Evaluations along a training, the first before it and the last at its end."""
    episodes: int = 256
    """Of each evaluation, the same held-out seeds for all."""
    seeds: int = 3
    contact_cost: float = 5.0
    """Reward that a contact costs without a shield, and it ends the episode; success is worth as much."""

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


QUICK = Budget(updates=6, points=4, episodes=64, seeds=1)
"""Says that all works, and nothing about learning."""


@dataclass(frozen=True)
class Point:
    """Held-out episodes of one policy at one point of its training."""

    update: int
    shielded: bool
    success: float
    """Share of episodes in which all reach their goals and nobody touches anything before."""
    reached: float
    """The same, contacts forgiven."""
    touched: float
    """Share of episodes with a contact before their end."""
    contacts_per_robot_hour: float
    """Onsets of contact, counted once for each decision in which one begins."""
    time_to_goal_s: float | None
    """Mean over the episodes that succeed; None without one."""
    interventions: float
    """Share of robot-ticks in which the shield changes the command."""


@dataclass(frozen=True)
class Run:
    """One training with its evaluations."""

    shielded: bool
    seed: int
    points: tuple[Point, ...]
    training_contacts: int
    """Control ticks times touching pairs in the whole training: what learning on real robots would have cost."""
    training_s: float
    """Without compilation and evaluation."""

    @property
    def key(self) -> tuple[bool, int]:
        """Return what names the run within its study."""
        return self.shielded, self.seed

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Run:
        """Return what `asdict` wrote.

        Raises:
            TypeError: keys are missing or unknown.
        """
        return cls(**{**values, "points": tuple(Point(**point) for point in values["points"])})


def open_runs(budget: Budget, done: Sequence[Run]) -> list[tuple[bool, int]]:
    """Return the runs that are left, (shielded, seed); seed after seed, so that all kinds have as many."""
    known = {run.key for run in done}
    wanted = [(shielded, seed) for seed in range(budget.seeds) for shielded in (True, False)]
    return [key for key in wanted if key not in known]


def curve(runs: Sequence[Run], arm: StudyArm, field: str) -> tuple[list[int], np.ndarray]:
    """Return the updates (P,) and the values (S, P) of an arm's runs; NaN where there is no value."""
    chosen = [run for run in runs if run.shielded == arm.trained_shielded]
    rows = [[point for point in run.points if point.shielded == arm.evaluated_shielded] for run in chosen]
    if not rows:
        return [], np.empty((0, 0))
    values = [[_number(getattr(point, field)) for point in row] for row in rows]
    return [point.update for point in rows[0]], np.array(values)


def solved_at(updates: Sequence[int], success: np.ndarray) -> list[int | None]:
    """Return for each run (S, P) the first update from which its success stays at least `SOLVED`; None: never."""
    found: list[int | None] = []
    for row in success >= SOLVED:
        below = np.flatnonzero(~row)
        first = 0 if not len(below) else int(below[-1]) + 1
        found.append(updates[first] if first < len(updates) else None)
    return found


def has_flattened(success: np.ndarray) -> bool:
    """Return whether the median curve (S, P) moved by at most 0.01 in its last two steps."""
    last = np.median(success, axis=0)[-3:]
    return bool(np.ptp(last) <= 0.01)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
