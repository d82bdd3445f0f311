"""Result of re-inference: the largest deviation of every field by robot, and the verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TOLERANCE = 1e-5
"""Largest deviation of an unchanged record, in the unit of the field (m, rad, m/s, rad/s or s)."""


@dataclass(frozen=True)
class FieldCheck:
    """One recomputed quantity compared with the record."""

    name: str
    what: str  # how it was recomputed
    compared: int  # number of compared ticks
    error: float  # largest absolute deviation; infinite where it cannot be computed
    sequence: int | None  # tick of the largest deviation; None without any


@dataclass(frozen=True)
class RobotCheck:
    """One robot's ticks."""

    robot: str
    ticks: int
    lost: int  # missing ticks by the sequence numbers of the record
    decisions: int  # ticks in which the policy was inferred again
    reinferred: int  # ticks whose sent command was recomputed by policy and shield
    skipped: Mapping[str, int]  # ticks without a command to infer, by reason: the brake reason, or the lost input
    unverified: int  # inputs whose source is not recorded
    fields: tuple[FieldCheck, ...]

    @property
    def error(self) -> float:
        """Return the largest deviation of all fields."""
        return max((check.error for check in self.fields), default=math.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; an infinite error is null."""
        names = ("ticks", "lost", "decisions", "reinferred", "skipped", "unverified")
        counts = {name: getattr(self, name) for name in names}
        fields = {check.name: _field_values(check) for check in self.fields}
        return counts | {"skipped": dict(self.skipped), "error": _finite(self.error), "fields": fields}


@dataclass(frozen=True)
class Reinference:
    """The verdict on a run."""

    tolerance: float
    policy_sha256: str  # of the artefact that was used
    robots: tuple[RobotCheck, ...]

    @property
    def error(self) -> float:
        """Return the largest deviation of all robots and fields."""
        return max((robot.error for robot in self.robots), default=math.inf)

    @property
    def reinferred(self) -> int:
        """Return the number of commands that were inferred again."""
        return sum(robot.reinferred for robot in self.robots)

    @property
    def ticks(self) -> int:
        """Return the number of recorded ticks."""
        return sum(robot.ticks for robot in self.robots)

    @property
    def passed(self) -> bool:
        """Return whether every robot has inferred commands without deviation."""
        return bool(self.robots) and all(
            robot.reinferred > 0 and robot.error <= self.tolerance for robot in self.robots
        )

    @property
    def fields(self) -> tuple[FieldCheck, ...]:
        """Return every field over all robots."""
        merged: dict[str, FieldCheck] = {}
        for robot in self.robots:
            for check in robot.fields:
                merged[check.name] = _worse(merged.get(check.name), check)
        return tuple(merged.values())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; an infinite error is null."""
        return {
            "passed": self.passed,
            "error": _finite(self.error),
            "tolerance": self.tolerance,
            "ticks": self.ticks,
            "reinferred": self.reinferred,
            "policy_sha256": self.policy_sha256,
            "fields": {check.name: _field_values(check) for check in self.fields},
            "robots": {robot.robot: robot.to_dict() for robot in self.robots},
        }


@dataclass
class FieldErrors:
    """Collects the deviations of one robot's fields."""

    what: Mapping[str, str]  # description of each field by name
    _compared: dict[str, int] = field(default_factory=dict)
    _worst: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, name: str, sequence: int, found: Any, recorded: Any) -> None:
        """Compare two vectors or numbers; None or another shape on one side is an infinite deviation."""
        error = _deviation(found, recorded)
        self._compared[name] = self._compared.get(name, 0) + 1
        if name not in self._worst or error > self._worst[name][0]:
            self._worst[name] = (error, sequence)

    def add_all(self, name: str, sequences: Sequence[int], found: np.ndarray, recorded: np.ndarray) -> None:
        """Compare the vectors of many ticks, (T, ...) each; see `add`."""
        if not len(sequences):
            return
        errors = np.full(len(sequences), math.inf)
        if found.shape == recorded.shape:
            away = np.abs(found - recorded).reshape(len(sequences), -1)
            errors = np.max(away, axis=1, initial=0.0)
            errors[~np.isfinite(errors)] = math.inf
        row = int(np.argmax(errors))
        self._compared[name] = self._compared.get(name, 0) + len(sequences)
        if name not in self._worst or errors[row] > self._worst[name][0]:
            self._worst[name] = (float(errors[row]), sequences[row])

    def checks(self) -> tuple[FieldCheck, ...]:
        """Return the result of each field, in the order of ``what``."""
        return tuple(
            FieldCheck(name, what, self._compared.get(name, 0), *self._worst.get(name, (0.0, None)))
            for name, what in self.what.items()
        )


def _deviation(found: Any, recorded: Any) -> float:
    if found is None or recorded is None:
        return 0.0 if found is recorded else math.inf
    kind = type(found)
    if kind is type(recorded) and (kind is tuple or kind is list) and found == recorded and _is_finite(found):
        return 0.0  # most are equal in every digit
    error = _quick_deviation(found, recorded)
    if error is None:
        first, second = np.asarray(found, float), np.asarray(recorded, float)
        if first.shape != second.shape:
            return math.inf
        error = float(np.max(np.abs(first - second), initial=0.0))
    return error if math.isfinite(error) else math.inf


def _is_finite(row: Sequence[float]) -> bool:
    """Return whether a row is known to hold finite numbers alone; not, if their sum is too large."""
    try:
        return math.isfinite(sum(row))
    except TypeError:  # rows of rows
        return False


def _quick_deviation(found: Any, recorded: Any) -> float | None:
    """Return the deviation of two numbers or rows of numbers without NumPy, which takes longer; None for others."""
    if isinstance(found, float) and isinstance(recorded, float):
        return abs(found - recorded)
    if not (isinstance(found, tuple | list) and isinstance(recorded, tuple | list)):
        return None
    if len(found) != len(recorded):
        return math.inf
    try:
        away = [abs(a - b) for a, b in zip(found, recorded, strict=True)]
        return float(max(away, default=0.0)) if math.isfinite(sum(away)) else math.inf
    except TypeError:  # rows of rows
        return None


def _worse(known: FieldCheck | None, new: FieldCheck) -> FieldCheck:
    if known is None:
        return new
    worst = new if new.error > known.error else known
    return FieldCheck(new.name, new.what, known.compared + new.compared, worst.error, worst.sequence)


def _field_values(check: FieldCheck) -> dict[str, Any]:
    return {
        "compared": check.compared,
        "error": _finite(check.error),
        "sequence": check.sequence,
        "what": check.what,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
