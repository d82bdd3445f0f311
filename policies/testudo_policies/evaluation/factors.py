"""Factors of a generalisation study: their levels, the cells of all combinations, and which of them training had."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.policy_under_test import PolicyUnderTest
from testudo_policies.learning.builder import obstacles_of_map
from testudo_sim.physics.world_parameters import Channels
from testudo_sim.team.task_channel import TaskChannel

IN, OUT, HELD_OUT = "in distribution", "out of distribution", "held-out combination"
CLASSES = (IN, OUT, HELD_OUT)
TEAM_SIZE, ROBOT, MAP = "team_size", "robot", "map"
_LOSS, _TICKS, _TASK_LOSS, _TASK_DELAY_S = "message_loss", "message_ticks", "task_loss", "task_delay_s"


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"a whole number from {least} on")
    return int(text)


def _share(text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise ValueError(f"a number from 0 to {most:g}")
    return value


_READERS: Mapping[str, Callable[[str], Any]] = {
    TEAM_SIZE: lambda text: _whole(text, 2),
    ROBOT: load_robot,
    MAP: lambda text: "" if text == "none" else text,
    _LOSS: lambda text: _share(text, 0.9),
    _TICKS: lambda text: _whole(text, 1),
    _TASK_LOSS: lambda text: _share(text, 0.9),
    _TASK_DELAY_S: lambda text: _share(text, 1.0),
}
"""The factors, and what reads a level."""
_RADIO: Mapping[str, str] = {_LOSS: "message_loss", _TICKS: "message_ticks"}
_TASK_RADIO: Mapping[str, str] = {_TASK_LOSS: "loss", _TASK_DELAY_S: "delay_s"}


@dataclass(frozen=True)
class Level:
    """One level of a factor."""

    factor: str
    text: str  # as the user wrote it
    value: Any  # a number, the name of a map, or a `RobotSpec`
    trained: bool = False  # whether training had it


@dataclass(frozen=True)
class Cell:
    """One level of each factor; empty without factors: as in training."""

    levels: tuple[Level, ...] = ()
    held_out: bool = False

    @property
    def distribution(self) -> str:
        """Return which of `CLASSES` it is: a level that training had not is out, whatever the others."""
        if not all(level.trained for level in self.levels):
            return OUT
        return HELD_OUT if self.held_out else IN

    @property
    def untrained(self) -> tuple[str, ...]:
        """Return the factors of which training had another level."""
        return tuple(level.factor for level in self.levels if not level.trained)

    @property
    def name(self) -> str:
        """Return its levels as text."""
        return ", ".join(f"{level.factor} {level.text}" for level in self.levels) or "as in training"

    def value(self, factor: str, default: Any = None) -> Any:
        """Return the value of a factor, or the default where the factor was not declared."""
        return next((level.value for level in self.levels if level.factor == factor), default)

    def placed(self, tested: PolicyUnderTest) -> PolicyUnderTest:
        """Return a policy with the robot and map of this cell.

        Raises:
            TestudoError: the robot is of another kind than that of the training, or the scenario takes no map.
        """
        spec, name = self.value(ROBOT, tested.spec), self.value(MAP, tested.map)
        if (spec.kind, spec.dimension) != (tested.spec.kind, tested.spec.dimension):
            raise TestudoError(
                f"--factor robot: found {spec.name}, a {spec.kind}; the policy drives a {tested.spec.kind}: "
                f"{tested.spec.name}"
            )
        shield = tested.shield if spec == tested.spec else projection_parameters(spec)
        obstacles = () if self.value(MAP) is not None else tested.obstacles
        if name:
            obstacles = obstacles_of_map(name, tested.scenario, spec, shield)
        return replace(tested, spec=spec, shield=shield, obstacles=obstacles, map=name)

    @property
    def channels(self) -> Channels:
        """Return the radio between robots: as in training, but for declared levels."""
        found = {field: self.value(factor) for factor, field in _RADIO.items()}
        return replace(Channels(), **{name: (value, value) for name, value in found.items() if value is not None})

    @property
    def task_channel(self) -> TaskChannel | None:
        """Return the radio of the task with declared levels; None where none is declared."""
        found = {field: self.value(factor) for factor, field in _TASK_RADIO.items()}
        changes: dict[str, Any] = {name: (value, value) for name, value in found.items() if value is not None}
        return replace(TaskChannel(), **changes) if changes else None


def cells(
    factors: Sequence[str], trained: Sequence[str], held_out: Sequence[str], policies: Sequence[PolicyUnderTest]
) -> list[Cell]:
    """Return the cells of all combinations of levels, in the order in which they were declared.

    Training had a level where the files of all ``policies`` say so, or where ``trained`` declares it.

    Args:
        factors: such as ``team_size=4,6``.
        trained: further levels that training had, written in the same way.
        held_out: combinations of such levels that training left out, such as ``team_size=6,message_loss=0.5``.
        policies: what is evaluated.

    Raises:
        TestudoError: an option cannot be read, or names what no factor declares.
    """
    levels = _levels(factors)
    further = _named(trained, levels, "--trained")
    for name, found in levels.items():
        levels[name] = [
            replace(level, trained=level.text in further[name] or all(_had(level, one) for one in policies))
            for level in found
        ]
    left_out = [_combination(text, levels) for text in held_out]
    made = [Cell(chosen) for chosen in itertools.product(*levels.values())]
    return [replace(cell, held_out=any(_has(cell, one) for one in left_out)) for cell in made]


def _levels(factors: Sequence[str]) -> dict[str, list[Level]]:
    """Return the declared levels by factor."""
    levels: dict[str, list[Level]] = {}
    for text in factors:
        name, _, listed = text.partition("=")
        words = list(dict.fromkeys(filter(None, listed.split(","))))
        if name not in _READERS or not words:
            raise TestudoError(f"--factor: found {text!r}, expected NAME=LEVEL,LEVEL with one of {', '.join(_READERS)}")
        if name in levels:
            raise TestudoError(f"--factor: found {name} twice; give all of its levels once")
        levels[name] = [_level(name, word) for word in words]
    return levels


def _level(name: str, word: str) -> Level:
    try:
        return Level(name, word, _READERS[name](word))
    except ValueError as error:
        raise TestudoError(f"--factor {name}: found {word!r}, expected {error}") from None


def _had(level: Level, tested: PolicyUnderTest) -> bool:
    """Return whether the training of a policy had a level, by what its file says."""
    if level.factor == TEAM_SIZE:
        return bool(level.value == tested.team_size)
    if level.factor == ROBOT:
        return bool(level.value == tested.spec)
    if level.factor == MAP:
        return level.value == tested.map and bool(level.value or not tested.obstacles)
    if level.factor in _RADIO:
        low, high = getattr(Channels(), _RADIO[level.factor])
        return bool(low <= level.value <= high)
    low, high = getattr(TaskChannel(), _TASK_RADIO[level.factor])
    return tested.task_messages and bool(low <= level.value <= high)


def _named(texts: Sequence[str], levels: Mapping[str, Sequence[Level]], option: str) -> dict[str, set[str]]:
    """Return the texts of declared levels by factor."""
    found: dict[str, set[str]] = {name: set() for name in levels}
    for text in texts:
        name, _, listed = text.partition("=")
        words = set(listed.split(","))
        known = {level.text for level in levels.get(name, ())}
        if not words <= known:
            raise TestudoError(f"{option}: found {text!r}, expected levels that --factor {name or 'NAME'} declares")
        found[name] |= words
    return found


def _combination(text: str, levels: Mapping[str, Sequence[Level]]) -> dict[str, set[str]]:
    """Return one level for each of at least two factors."""
    parts = text.split(",")
    found = {name: words for name, words in _named(parts, levels, "--held-out").items() if words}
    if len(found) < 2 or len(found) != len(parts):
        raise TestudoError(f"--held-out: found {text!r}, expected one level of two factors or more, such as A=1,B=2")
    return found


def _has(cell: Cell, combination: Mapping[str, set[str]]) -> bool:
    own = {level.factor: level.text for level in cell.levels}
    return all(own[name] in words for name, words in combination.items())
