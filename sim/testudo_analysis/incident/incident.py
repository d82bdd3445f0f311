"""What an incident is, and from which bounds on something counts as one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from testudo_analysis.replay.variants import VariantOutcome
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import TeamRecording


class IncidentKind(StrEnum):
    """The kinds of incidents, the worst first."""

    CONTACT = "contact"
    """Robots touched each other, or a robot the walls."""
    NEAR_CONTACT = "near contact"
    """Closer than the shield lets two robots get, or than `--near`."""
    DEADLOCK = "deadlock"
    """Robots that stand for long short of their goals, or while they are told to drive."""
    NOT_FOLLOWING = "not following"
    """A robot moves otherwise than it was told: blocked, slipping, or weak brakes."""
    POSE_JUMP = "pose jump"
    """A pose that the robot cannot have reached."""
    GUARD_BRAKE = "guard brake"
    STOP = "stop"
    """The robot braked by itself, with a diagnostic code; or stood for a while, where only poses are known."""
    STALE_PEER = "stale peer"
    """A robot went on with old knowledge of another."""
    POSE_GAP = "pose gap"
    SATURATION = "saturation"
    """Commands beyond what the actuators can do."""
    LATE_TICK = "late tick"


@dataclass(frozen=True)
class Incident:
    """Something that went wrong; times are seconds since the start of the run."""

    kind: IncidentKind
    robots: tuple[str, ...]
    begin_s: float
    end_s: float
    at_s: float
    """When it was worst."""
    value: float
    """How bad it was then, in `unit`."""
    bound: float
    """From where on it counts."""
    unit: str
    what: str
    """What happened, in one sentence."""
    cause: str = ""
    """The likeliest cause, in one sentence."""
    code: str = ""
    """Diagnostic code, where the run has one."""
    from_s: float | None = None
    """From where the counterfactual went on."""
    aftermath: tuple[VariantOutcome, ...] = ()
    """What happened from there, and what would have, with and without the shield."""

    @property
    def weight(self) -> tuple[int, float]:
        """Return what incidents are sorted by: the kind, then by how far the bound was passed; the worst first."""
        excess = abs(self.value - self.bound) / max(abs(self.bound), 1e-9)
        return list(IncidentKind).index(self.kind), -excess

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {
            "kind": str(self.kind),
            "robots": list(self.robots),
            "aftermath": [outcome.to_dict() for outcome in self.aftermath],
        }


@dataclass(frozen=True)
class IncidentThresholds:
    """From where on something is an incident."""

    near_m: float
    """Distance of two centres."""
    stale_s: float = 0.5
    """Age of what is known of a peer; the shield does not make room for older motion (`RECENT_S`)."""
    still_s: float = 5.0
    """Standing for so long short of the goal is a deadlock."""
    stood_s: float = 3.0
    """Standing for so long between two drives is a stop, where only poses are known."""
    late_share: float = 0.5
    """A tick is late from this share of the control period on."""
    slow_share: float = 0.3
    """A robot does not follow when its speed is off by this share of the limit, for half a second."""

    @classmethod
    def of(cls, recording: TeamRecording, near_m: float | None = None) -> IncidentThresholds:
        """Return the bounds for a run; two centres are near when layer 1 of the shield would not let them be so.

        Raises:
            TestudoError: ``near_m`` is not above zero.
        """
        if near_m is not None and not 0 < near_m < float("inf"):
            raise TestudoError(f"--near: found {near_m}, expected a distance in metres")
        return cls(kept_apart_m(recording) if near_m is None else near_m)


def kept_apart_m(recording: TeamRecording) -> float:
    """Return how far layer 1 keeps two centres apart [m]: the control points' distance less both look-aheads."""
    ahead = recording.spec.look_ahead_m if recording.spec.kind == DIFFERENTIAL_DRIVE else 0.0
    return recording.shield.separation_m - 2 * ahead
