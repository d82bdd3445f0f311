"""A study: groups of training runs in all cells of declared factors, on the same held-out episodes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import (
    Evaluation,
    Programs,
    compiled_programs,
    evaluate_policy,
)
from testudo_policies.evaluation.factors import CLASSES, TEAM_SIZE, Cell
from testudo_policies.evaluation.policy_under_test import PolicyUnderTest, load_policy_under_test
from testudo_policies.evaluation.scores import Aggregates, Estimate, Score, aggregates, improvements
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_sim.environment import Environment

ALL = "all cells"


@dataclass(frozen=True)
class Group:
    """Training runs that differ by their seed."""

    label: str
    runs: Mapping[str, PolicyUnderTest]  # by path

    @classmethod
    def load(cls, paths: Sequence[Path]) -> "Group":
        """Read policy files and training runs; a folder with ``seed_*`` stands for all of them.

        Raises:
            TestudoError: a path is neither, its contents are invalid, or it was named twice.
        """
        found = [one for path in paths for one in _seeds(path)]
        if len(set(found)) < len(found):
            raise TestudoError(f"evaluate: found {_twice(found)} twice; a run counts once")
        return cls(_label(found), {str(path): load_policy_under_test(path) for path in found})


def _seeds(path: Path) -> list[Path]:
    """Return the runs of a folder that `testudo train --seeds` made, or the path itself."""
    below = sorted(path.glob("seed_*/config.json"), key=lambda file: (len(file.parent.name), file.parent.name))
    return [file.parent for file in below] if below and not (path / "config.json").exists() else [path]


def _label(paths: Sequence[Path]) -> str:
    """Return the only path, or the folder that all paths have in common."""
    if len(paths) == 1:
        return str(paths[0])
    common = Path(os.path.commonpath([path.absolute() for path in paths]))
    return str(common.relative_to(Path.cwd()) if common.is_relative_to(Path.cwd()) else common)


def is_several(paths: Sequence[Path]) -> bool:
    """Return whether paths name several runs."""
    return sum(len(_seeds(path)) for path in paths) > 1


def _twice(paths: Sequence[Path]) -> Path:
    return next(path for path in paths if paths.count(path) > 1)


@dataclass(frozen=True)
class Place:
    """One cell under one set of layers."""

    cell: Cell
    layers: str
    found: Mapping[str, Mapping[str, Evaluation]]  # by group and run
    by_hand: Evaluation | None = None  # the hand-written velocities in the same episodes

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return the evaluations of all runs."""
        return [one for runs in self.found.values() for one in runs.values()]


@dataclass(frozen=True)
class Study:
    """What was found."""

    task: str  # scenario and physics
    groups: tuple[Group, ...]
    score: Score
    places: tuple[Place, ...]

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The sets of layers."""
        return tuple(dict.fromkeys(place.layers for place in self.places))

    @cached_property
    def estimates(self) -> Mapping[tuple[str, str], Aggregates]:
        """The estimates by group and set of layers."""
        return {
            (group.label, layers): aggregates(self.scores(group, layers), self.classes(layers))
            for group in self.groups
            for layers in self.layers
        }

    @cached_property
    def better(self) -> Mapping[str, Mapping[str, Estimate]]:
        """By set of layers and class: the probability that the first group is better; empty of a single group."""
        if len(self.groups) < 2:
            return {}
        first, second = self.groups
        return {
            layers: improvements(self.scores(first, layers), self.scores(second, layers), self.classes(layers))
            for layers in self.layers
        }

    def places_of(self, layers: str) -> list[Place]:
        """Return the places under one set of layers."""
        return [place for place in self.places if place.layers == layers]

    def classes(self, layers: str) -> dict[str, np.ndarray]:
        """Return masks (cells,) of the classes that occur, and of all cells where there are several classes."""
        found = np.array([place.cell.distribution for place in self.places_of(layers)])
        masks = {name: found == name for name in CLASSES if (found == name).any()}
        return masks | ({ALL: np.ones(len(found), bool)} if len(masks) > 1 else {})

    def scores(self, group: Group, layers: str) -> np.ndarray:
        """Return the scores (runs, cells) of a group."""
        found = [place.found[group.label].values() for place in self.places_of(layers)]
        return np.array([[self.score.of(one) for one in runs] for runs in found]).T


def check_alike(groups: Sequence[Group]) -> None:
    """Refuse runs that cannot be averaged: of one group they differ by their seed only.

    Raises:
        TestudoError: they do not.
    """
    scenarios = {one.scenario for group in groups for one in group.runs.values()}
    if len(scenarios) > 1:
        raise TestudoError(f"evaluate: found runs of {' and '.join(sorted(scenarios))}; expected one scenario")
    if len({group.label for group in groups}) < len(groups):
        raise TestudoError(f"--against: found runs of {groups[0].label} again; expected those of another folder")
    for group in groups:
        for name in ("team_size", "spec", "map"):
            path, first = next(iter(group.runs.items()))
            other = next((at for at, one in group.runs.items() if getattr(one, name) != getattr(first, name)), None)
            if other is not None:
                raise TestudoError(
                    f"evaluate: {path} and {other} were trained with another {name}; the runs of a group differ by "
                    "their seed; give the others with --against"
                )


@dataclass(frozen=True)
class Runner:
    """What is the same in all places of a study."""

    make: Callable[..., Environment]  # environment of a policy, see `PolicyUnderTest.environment`
    episodes: int
    seed: int
    by_hand: bool
    counted: Callable[[str, int], Any]  # context of the progress of a number of episodes

    def environment(self, tested: PolicyUnderTest, cell: Cell, layers: str) -> Environment:
        """Return the environment of a policy in a cell; the compiled programs of equal ones are shared."""
        return self.make(
            cell.placed(tested),
            cell.value(TEAM_SIZE, tested.team_size),
            all_layers=layers == "all",
            channels=cell.channels,
            task_channel=cell.task_channel,
        )

    def place(self, groups: Sequence[Group], cell: Cell, layers: str) -> Place:
        """Run all policies in one cell under one set of layers."""
        prepared: list[tuple[PolicyUnderTest, Environment, Programs]] = []

        def programs_for(tested: PolicyUnderTest) -> tuple[Environment, Programs]:
            for other, environment, programs in prepared:
                if _same_task(tested, other):
                    return environment, programs
            made = self.environment(tested, cell, layers)
            prepared.append((tested, made, compiled_programs(made)))
            return prepared[-1][1:]

        def evaluated(tested: PolicyUnderTest, name: str, *, by_hand: bool = False) -> Evaluation:
            environment, programs = programs_for(tested)
            acting, memory = (None, 0) if by_hand else (tested.policy, tested.memory)
            with self.counted(f"{cell.name}, {name}", self.episodes) as done:
                found = evaluate_policy(environment, acting, memory, self.episodes, self.seed, done, programs)
            return replace(found, policy=name)

        found = {group.label: {name: evaluated(one, name) for name, one in group.runs.items()} for group in groups}
        first = next(iter(groups[0].runs.values()))
        return Place(cell, layers, found, evaluated(first, HAND_WRITTEN, by_hand=True) if self.by_hand else None)


def run_study(
    groups: Sequence[Group], cells: Sequence[Cell], layers: Sequence[str], score: str, runner: Runner
) -> Study:
    """Run all policies of the groups in all cells, under each set of ``layers``.

    Raises:
        TestudoError: an environment cannot be built, which is known before the first episode, or the score is unknown.
    """
    for group in groups:
        for cell in cells:
            first = runner.environment(next(iter(group.runs.values())), cell, layers[-1])
    places = []
    for cell in cells:
        for one in layers:
            places.append(runner.place(groups, cell, one))
            chosen = Score.parsed(score, places[0].evaluations[0])  # refuses an unknown one after the first place
    return Study(f"{first.scenario.name} on {first.team.physics.name}", tuple(groups), chosen, tuple(places))


def _same_task(one: PolicyUnderTest, other: PolicyUnderTest) -> bool:
    """Return whether two policies have the same environments."""
    names = ("scenario", "spec", "shield", "team_size", "obstacles", "yaw_rate_limit", "tracking", "message_size")
    return all(getattr(one, name) == getattr(other, name) for name in names)
