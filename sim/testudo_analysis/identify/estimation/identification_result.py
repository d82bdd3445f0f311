"""The result of an identification of any kind of robot: estimates, and errors on held-out data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from testudo_hardware.errors import TestudoError

IDENTIFICATION_SCHEMA = "testudo/identification/1"
HALF, ROBOTS, RUNS = "half", "robots", "runs"
"""Held-out data: the second half of the run, each robot in turn, or each run in turn with all its robots."""
RECORDED = "recorded"
"""Split of the coverage of a run by a robot file, to which nothing is fitted."""


ANGLES = ("turn", "tilt", "heading")
"""Channels of `Coverage` in [rad]; all others in [m]."""


@dataclass(frozen=True)
class Estimate:
    """One parameter of a robot type, in the unit of its robot file."""

    key: str  # key of the robot file, such as `dynamics.velocity_lag`, or another name without such a key
    value: float
    low: float  # lower end of the 95 % interval
    high: float
    unit: str
    determined: bool = True  # the run narrows the prior interval; otherwise the robot file keeps its value
    note: str = ""  # why it is not determined, and which manoeuvre would determine it; or another remark
    by_robot: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """Value, low and high of single robots; the robot file's interval covers them all."""

    @property
    def hull(self) -> tuple[float, float]:
        """Return the interval that covers the estimate and those of single robots."""
        parts = [(self.low, self.high), *((low, high) for _, low, high in self.by_robot.values())]
        return min(low for low, _ in parts), max(high for _, high in parts)


@dataclass(frozen=True)
class Quantiles:
    """Errors of many windows."""

    median: float
    p90: float
    count: int

    @classmethod
    def create(cls, errors: np.ndarray) -> "Quantiles":
        """Return the quantiles of errors (S,), at least one."""
        return cls(float(np.median(errors)), float(np.percentile(errors, 90)), len(errors))


@dataclass(frozen=True)
class HeldOut:
    """Open-loop error after one horizon on held-out windows."""

    robot: str
    horizon_s: float
    channel: str
    unit: str
    baseline: Quantiles  # of the simplest prediction: dead reckoning, or ballistic flight
    nominal: Quantiles  # of the original robot file
    identified: Quantiles
    split: str = HALF  # `HALF`, `ROBOTS` or `RUNS`

    @classmethod
    def of(
        cls, robot: str, horizon_s: float, channel: str, unit: str, errors: Iterable[np.ndarray], split: str
    ) -> Self:
        """Return the row of errors (S,) of the baseline, the original and the identified robot file."""
        baseline, nominal, identified = map(Quantiles.create, errors)
        return cls(robot, horizon_s, channel, unit, baseline, nominal, identified, split)

    def reduction(self) -> tuple[float, float]:
        """Return the relative reduction of median and p90 to the baseline."""
        ours, theirs = self.identified, self.baseline
        median = 1 - ours.median / theirs.median if theirs.median > 0 else 0.0
        return median, 1 - ours.p90 / theirs.p90 if theirs.p90 > 0 else 0.0


@dataclass(frozen=True)
class Coverage:
    """Share of held-out motions inside the nominal 95 % band of sampled futures."""

    robot: str  # empty: all robots together
    horizon_s: float
    channel: str  # along, across, up, turn, or of a drone's rotor model horizontal, vertical, tilt, heading
    inside: float
    without_noise: float
    """The same for bands of the parameters' intervals and the measured poses alone: the negative control."""
    width: float  # median width of the bands [m], [rad]
    count: int
    split: str = HALF


@dataclass(frozen=True)
class Identification:
    """Identification of one robot type from a run."""

    robot_type: str
    robots: tuple[str, ...]  # the fitted robots of the run
    estimates: tuple[Estimate, ...]
    held_out: tuple[HeldOut, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Provenance and choices: JSON-ready values, such as run, run_sha256, recorded, version, windows."""
    coverage: tuple[Coverage, ...] = ()

    def find(self, key: str) -> Estimate:
        """Return the estimate of a parameter.

        Raises:
            TestudoError: there is none.
        """
        for estimate in self.estimates:
            if estimate.key == key:
                return estimate
        raise TestudoError(
            f"identification of {self.robot_type}: found no {key}, expected one of "
            f"{', '.join(estimate.key for estimate in self.estimates) or 'nothing'}"
        )

    def reductions(self, channel: str, horizon_s: float, split: str) -> tuple[float, float]:
        """Return the relative reductions of median and p90 to the baseline: medians over robots.

        Raises:
            TestudoError: there are no such held-out data.
        """
        shares = [
            row.reduction()
            for row in self.held_out
            if (row.channel, row.horizon_s, row.split) == (channel, horizon_s, split)
        ]
        if not shares:
            raise TestudoError(
                f"identification of {self.robot_type}: no held-out {channel} at {horizon_s:g} s with split {split!r}"
            )
        median, p90 = np.median(shares, axis=0)
        return float(median), float(p90)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "schema": IDENTIFICATION_SCHEMA,
            "robot_type": self.robot_type,
            "robots": list(self.robots),
            "estimates": [
                asdict(estimate) | {"by_robot": {name: list(values) for name, values in estimate.by_robot.items()}}
                for estimate in self.estimates
            ],
            "held_out": [asdict(row) for row in self.held_out],
            "coverage": [asdict(row) for row in self.coverage],
            "facts": dict(self.facts),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "identification") -> Self:
        """Return the identification of `to_dict`.

        Raises:
            TestudoError: it is not an identification, or keys are missing or unknown.
        """
        try:
            if values["schema"] != IDENTIFICATION_SCHEMA:
                raise TestudoError(f"{where}: schema: found {values['schema']!r}, expected {IDENTIFICATION_SCHEMA!r}")
            return cls(
                values["robot_type"],
                tuple(values["robots"]),
                _estimates(values["estimates"]),
                _held_out(values["held_out"]),
                values["facts"],
                tuple(Coverage(**row) for row in values.get("coverage", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise TestudoError(f"{where}: not an identification: {error!r}") from error


def _estimates(rows: Sequence[Mapping[str, Any]]) -> tuple[Estimate, ...]:
    return tuple(
        Estimate(**{**row, "by_robot": {name: tuple(map(float, numbers)) for name, numbers in row["by_robot"].items()}})
        for row in rows
    )


def _held_out(rows: Sequence[Mapping[str, Any]]) -> tuple[HeldOut, ...]:
    return tuple(
        HeldOut(**{**row, **{name: Quantiles(**row[name]) for name in ("baseline", "nominal", "identified")}})
        for row in rows
    )
