"""`Forecast`: samples of what the next run will show, with what they were made from, and a hash of it all."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from testudo_analysis.forecast.outcomes import SUCCESS, UNITS, base_name
from testudo_analysis.forecast.past_runs import PastCoverage, PastError
from testudo_analysis.forecast.scoring import LEVELS, interval
from testudo_deploy.files.strict_yaml import read_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import read_as

SCHEMA = "testudo/forecast/2"
TRUE, MEASURED = "true", "measured"
"""Poses by which a run is seen: recorded from outside without error, as of a simulated plant, or by the robots."""
_DIGITS = 6  # of samples: micrometres and microseconds


class ForecastError(TestudoError):
    """A forecast cannot be read, made or scored: the text gives the file, what was found and what is expected."""


@dataclass(frozen=True)
class QuantityForecast:
    """Samples of one quantity."""

    name: str  # such as `time_to_goal.r0`
    unit: str
    samples: tuple[float, ...] = field(repr=False)  # one for each sampled fleet that determines it
    nominal: tuple[float, ...] = field(repr=False)
    """The same by the robot file that the policy was made for: its values, without intervals and motion noise."""
    last: float | None  # measured in the run that the forecast starts from; None without one

    @property
    def is_chance(self) -> bool:
        """Return whether it is a yes or no, of which the mean is the probability."""
        return base_name(self.name) == SUCCESS

    @property
    def mean(self) -> float:
        """Return the mean of the samples."""
        return float(np.mean(self.samples))

    @property
    def median(self) -> float:
        """Return the median of the samples."""
        return float(np.median(self.samples))

    def interval(self, level: float) -> tuple[float, float]:
        """Return the central interval of a share of the samples."""
        return interval(np.array(self.samples), level)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, with mean, median and intervals for readers."""
        shown = {f"interval_{round(100 * level)}": list(self.interval(level)) for level in LEVELS}
        return asdict(self) | {"mean": self.mean, "median": self.median} | shown


@dataclass(frozen=True)
class RobotInput:
    """The robot files of one robot."""

    type: str
    described_sha256: str  # of the file that its software believes
    file: str  # from whose intervals its parameters are drawn
    file_sha256: str  # of the quantities of that file, with their intervals


@dataclass(frozen=True)
class ForecastInputs:
    """What a forecast was made from."""

    policy: str
    policy_sha256: str
    robots: dict[str, RobotInput]  # by name
    runs: tuple[str, ...]  # that gave the starts; empty: the fleet file
    starts_world: tuple[tuple[tuple[float, ...], ...], ...]  # (S, N, D) [m]: of these one is expected
    goals_world: tuple[tuple[tuple[float, ...], ...], ...]  # (S, N, D) [m]
    horizon_s: float
    fleets: int
    nominal_fleets: int
    seed: int
    noise: str  # motion noise, in words
    poses: str  # by which the next run is seen: `TRUE` or `MEASURED`
    past: tuple[PastError, ...]  # what past runs showed beyond their fleets; the samples contain it
    past_coverage: PastCoverage
    versions: dict[str, str]


@dataclass(frozen=True)
class Forecast:
    """A forecast of the next run of a team."""

    made_ns: int  # wall clock [ns] since 1970
    made: str  # the same in words, UTC
    inputs: ForecastInputs
    quantities: tuple[QuantityForecast, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values without the hash."""
        quantities = [quantity.to_dict() for quantity in self.quantities]
        return {"schema": SCHEMA, **asdict(self), "quantities": quantities}

    @property
    def sha256(self) -> str:
        """Return the hash of all values."""
        return content_hash(self.to_dict())

    def save(self, file: Path) -> None:
        """Write it as JSON, with its hash.

        Raises:
            ForecastError: the file exists, or cannot be written.
        """
        text = json.dumps(self.to_dict() | {"sha256": self.sha256}, allow_nan=False) + "\n"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as out:  # a forecast is never replaced
                out.write(text)
        except FileExistsError as error:
            raise ForecastError(f"--out {file}: exists; a forecast is never replaced, give another file") from error
        except OSError as error:
            raise ForecastError(f"--out {file}: cannot be written: {error.strerror}") from error

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a forecast that nobody has changed.

        Raises:
            ForecastError: unreadable, another schema, or its content is not that of its hash.
        """
        text = read_text(file, "forecast; `testudo forecast RUN --policy FILE` writes one", ForecastError, "a forecast")
        try:
            values = json.loads(text)
            said, found = values.pop("sha256"), content_hash(values)
            schema = values.pop("schema")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ForecastError(f"{file}: found no forecast with a hash, expected one of `testudo forecast`") from error
        if said != found:
            raise ForecastError(f"{file}: was changed: its content has the hash {found[:12]}, it says {said[:12]}")
        if schema != SCHEMA:
            raise ForecastError(f"{file}: schema: found {schema!r}, expected {SCHEMA!r}")
        known = ("name", "unit", "samples", "nominal", "last")
        values["quantities"] = [{key: one[key] for key in known if key in one} for one in values["quantities"]]
        made: Self = read_as(cls, values, str(file), ForecastError)
        return made


def quantity_forecasts(
    sampled: Mapping[str, np.ndarray], nominal: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray]
) -> tuple[QuantityForecast, ...]:
    """Return the quantities that both samples determine; values (E,) by name, of the last run (1,)."""
    found = []
    for name, values in sampled.items():
        own, plain = (rounded(of[np.isfinite(of)]) for of in (values, nominal[name]))
        if own and plain:
            before = last.get(name, np.array([np.nan]))[0]
            known = rounded(np.array([before]))[0] if np.isfinite(before) else None
            found.append(QuantityForecast(name, UNITS[base_name(name)], own, plain, known))
    return tuple(found)


def rounded(values: np.ndarray) -> tuple[float, ...]:
    """Return values rounded for a file."""
    return tuple(round(float(value), _DIGITS) for value in values)


def content_hash(values: Any) -> str:
    """Return the SHA-256 of JSON values, whatever the order of their keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
