"""What alignment did to the series of one robot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testudo_runs.alignment.clock_fit import ClockFit
from testudo_runs.alignment.latency import LatencyEstimate
from testudo_runs.alignment.sample_cleaning import CleaningReport


@dataclass(frozen=True)
class RobotReport:
    """Every correction of the series of one robot."""

    robot: str
    tidy: Mapping[str, CleaningReport]
    """By role."""
    clocks: Mapping[str, ClockFit]
    """By role, of those that know when they were received."""
    smoothing: Mapping[str, Any]
    """Choices of the smoother, samples, and how many have a velocity; nothing if velocities are recorded."""
    reference: str = "pose"
    """What its poses are: `pose` if it was seen from outside, else `odometry`, its own estimate."""

    def to_dict(self, latency: LatencyEstimate | None = None) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "robot": self.robot,
            "series": {role: report.to_dict() for role, report in self.tidy.items()},
            "clocks": {role: fit.to_dict() for role, fit in self.clocks.items()},
            "latency": None if latency is None else latency.to_dict(),
            "velocity": dict(self.smoothing),
            "reference": self.reference,
        }

    def notes(self) -> tuple[str, ...]:
        """Return the corrections of poses and commands in words."""
        found = []
        for role, report in self.tidy.items():
            counts = (
                (report.not_finite, "not finite"),
                (report.duplicate, "doubles"),
                (report.backward, "out of order"),
                (report.gap_count, "gaps"),
            )
            if any(count for count, _ in counts):
                found.append(f"{role}: " + ", ".join(f"{count} {what}" for count, what in counts if count))
            clock = self.clocks.get(role)
            if clock is not None and clock.corrected:
                found.append(
                    f"{role}: stamps of another clock, moved by {clock.offset_s:.3f} s with a drift of "
                    f"{1e6 * clock.drift:.0f} ppm"
                )
            lonely = self.smoothing.get("samples", 0) - self.smoothing.get("known", 0)
            if role == "pose" and lonely:
                found.append(f"{lonely} poses too far from others to have a velocity")
        return tuple(found)
