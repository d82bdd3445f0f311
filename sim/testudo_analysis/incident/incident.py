"""The type of an incident, and the thresholds from which something counts as one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np

from testudo_analysis.replay.variants import VariantOutcome
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import TeamRecording


class IncidentKind(StrEnum):
    """The kinds of incidents, the worst first."""

    CONTACT = "contact"  # robots touched each other, or a robot touched a wall
    NEAR_CONTACT = "near contact"  # closer than the separation of shield layer 1, or than `--near`
    DEADLOCK = "deadlock"  # robots stand for a long time short of their goals, or despite commands to drive
    NOT_FOLLOWING = "not following"  # a robot does not follow its commands: blocked, slipping, or weak brakes
    POSE_JUMP = "pose jump"  # a pose that the robot cannot have reached
    GUARD_BRAKE = "guard brake"
    STOP = "stop"  # the robot braked by itself, with a diagnostic code; where only poses are known, it stood
    STALE_PEER = "stale peer"  # a robot drove with an old state of a peer
    POSE_GAP = "pose gap"
    SATURATION = "saturation"  # commands beyond the actuator limits
    LATE_TICK = "late tick"


@dataclass(frozen=True)
class Incident:
    """One incident; times are seconds since the start of the run."""

    kind: IncidentKind
    robots: tuple[str, ...]
    begin_s: float
    end_s: float
    at_s: float  # time of the worst value
    value: float  # worst value, in `unit`
    bound: float  # threshold of the value
    unit: str
    what: str  # what happened, in one sentence
    cause: str = ""  # the likeliest cause, in one sentence
    code: str = ""  # diagnostic code, where the run has one
    from_s: float | None = None  # start of the counterfactuals
    probability: float | None = None  # that two bodies touched, by the errors of their measured places
    aftermath: tuple[VariantOutcome, ...] = ()
    """Outcomes from that time on: recorded, and simulated with and without the shield."""

    @classmethod
    def over(
        cls,
        kind: IncidentKind,
        robots: Sequence[str],
        stamp_s: np.ndarray,
        span: tuple[int, int, int],
        value: float,
        bound: float,
        unit: str,
        what: str,
    ) -> Self:
        """Return an incident from the first, last and worst index ``span`` into times (T,) [s]."""
        begin, end, worst = (float(stamp_s[k]) for k in span)
        return cls(kind, tuple(robots), begin, end, worst, float(value), float(bound), unit, what)

    @property
    def duration_s(self) -> float:
        """Return the time [s] from begin to end."""
        return self.end_s - self.begin_s

    @property
    def weight(self) -> tuple[int, float]:
        """Return the sort key, the worst first: the kind, then the relative excess over the threshold."""
        excess = abs(self.value - self.bound) / max(abs(self.bound), 1e-9)
        return list(IncidentKind).index(self.kind), -excess

    def overlaps(self, other: "Incident") -> bool:
        """Return whether both have a time in common."""
        return self.begin_s <= other.end_s and self.end_s >= other.begin_s

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {
            "kind": str(self.kind),
            "robots": list(self.robots),
            "aftermath": [outcome.to_dict() for outcome in self.aftermath],
        }


@dataclass(frozen=True)
class IncidentThresholds:
    """From which values on something is an incident."""

    near_m: float  # distance of two centres
    stale_s: float = 0.5  # age of a peer's state; the shield makes no room for older motion (`RECENT_S`)
    still_s: float = 5.0  # time of standing short of the goal: a deadlock
    stood_s: float = 3.0  # time of standing between two drives: a stop, where only poses are known
    late_share: float = 0.5  # lateness of a tick as a share of the control period
    slow_share: float = 0.3
    """Speed error as a share of the speed limit, for half a second: a robot does not follow its commands."""

    @classmethod
    def of(cls, recording: TeamRecording, near_m: float | None = None) -> Self:
        """Return the thresholds for a run; the default of ``near_m`` is the separation of shield layer 1.

        Raises:
            TestudoError: ``near_m`` is not above zero.
        """
        if near_m is not None and not 0 < near_m < float("inf"):
            raise TestudoError(f"--near: found {near_m}, expected a distance in metres")
        return cls(kept_apart_m(recording) if near_m is None else near_m)


def kept_apart_m(recording: TeamRecording) -> float:
    """Return the separation of two centres by layer 1 [m]: that of the control points less both look-aheads."""
    ahead = recording.spec.look_ahead_m if recording.spec.kind == DIFFERENTIAL_DRIVE else 0.0
    return recording.shield.separation_m - 2 * ahead


def spans(holds: np.ndarray, stamp_s: np.ndarray, join_s: float = 0.0) -> list[tuple[int, int]]:
    """Return first and last index of every stretch in which ``holds`` (T,) is true.

    Stretches with at most ``join_s`` [s] between them are joined.
    """
    index = np.flatnonzero(holds)
    if not len(index):
        return []
    apart = (np.diff(index) > 1) & (np.diff(stamp_s[index]) > join_s)
    first = np.concatenate([[index[0]], index[1:][apart]])
    last = np.concatenate([index[:-1][apart], [index[-1]]])
    return [(int(a), int(b)) for a, b in zip(first, last, strict=True)]


def largest(values: np.ndarray, begin: int, end: int) -> int:
    """Return the index of the largest of values (T,) from ``begin`` to ``end``, both included."""
    return begin + int(np.argmax(values[begin : end + 1]))
