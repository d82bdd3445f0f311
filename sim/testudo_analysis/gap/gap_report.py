"""The gap report as data for JSON, the page and the tables."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

import numpy as np

from testudo_analysis.gap.block_bootstrap import Interval
from testudo_analysis.gap.command_latency import CommandLatency
from testudo_analysis.gap.error_causes import ErrorCause
from testudo_analysis.gap.error_map import StateErrors
from testudo_analysis.gap.margin_checks import MarginCheck
from testudo_analysis.gap.predicted_score import ScoreComparison
from testudo_analysis.identify.estimation.identification_result import Coverage

SCHEMA = "testudo/gap/1"
ALL = "all"
DEAD_RECKONING, NOMINAL, IDENTIFIED = "dead reckoning", "nominal", "identified"


@dataclass(frozen=True)
class ErrorRow:
    """The error of one parameter set, for one robot or all, in one channel after one horizon."""

    robot: str
    channel: str
    unit: str
    horizon_s: float
    model: str
    median: Interval  # of the absolute error
    p90: Interval
    bias: float  # median of predicted less real, for signed channels
    count: int
    travel_m: float  # median recorded displacement within the horizon


@dataclass(frozen=True)
class Difference:
    """One figure of two parameter sets or runs: the second less the first."""

    first: str
    second: str
    robot: str
    channel: str
    unit: str
    horizon_s: float
    median: Interval
    p90: Interval
    relative: float  # change of the median relative to the first

    @property
    def significant(self) -> bool:
        """Return whether the median differs significantly."""
        return self.median.is_above or self.median.is_below


@dataclass(frozen=True)
class TypeGap:
    """The gap of all robots of one type."""

    robot_type: str
    robots: tuple[str, ...]
    models: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, float]]  # by parameter set: the parameters of the motion model
    rows: tuple[ErrorRow, ...]
    differences: tuple[Difference, ...]  # between parameter sets on the same windows
    state: Mapping[str, StateErrors]  # by parameter set: position error over the state space after `state_horizon_s`
    state_horizon_s: float
    causes: Mapping[str, tuple[ErrorCause, ...]]  # by parameter set: kinds of error after `cause_horizon_s`
    cause_horizon_s: Mapping[str, float]
    latencies: tuple[CommandLatency, ...]
    margins: tuple[MarginCheck, ...]
    coverage: Mapping[str, tuple[Coverage, ...]] = field(default_factory=dict[str, tuple[Coverage, ...]])
    """By parameter set whose robot file has a `[motion_noise]`: recorded motions inside its 95 % bands."""

    def find(self, model: str, channel: str, horizon_s: float, robot: str = ALL) -> ErrorRow | None:
        """Return one row; None without one."""
        wanted = (robot, channel, horizon_s, model)
        return next((r for r in self.rows if (r.robot, r.channel, r.horizon_s, r.model) == wanted), None)

    @property
    def channels(self) -> tuple[str, ...]:
        """Return the channels in order."""
        return tuple(dict.fromkeys(row.channel for row in self.rows))

    @property
    def flown(self) -> bool:
        """Return whether motor signals were replayed, rather than velocity commands."""
        return "attitude" in self.channels

    @property
    def best(self) -> str:
        """Return the best parameter set: the identified one if there is one."""
        return self.models[-1]


@dataclass(frozen=True)
class GapReport:
    """Deviation of the model from a run."""

    run: str
    source: str  # `imported` or `testudo up`
    duration_s: float
    replayed_s: float  # from the first to the last start of any robot
    starts: int
    horizons_s: tuple[float, ...]
    types: tuple[TypeGap, ...]
    score: ScoreComparison
    against: tuple[Difference, ...] = ()
    against_name: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)  # robots that cannot be replayed, and why
    notes: tuple[str, ...] = ()  # damage, and choices of the preparation
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = _plain({name: getattr(self, name) for name in self.__dataclass_fields__})
        return {"schema": SCHEMA, **values}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Difference):
        return _plain(asdict(value) | {"significant": value.significant})
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
