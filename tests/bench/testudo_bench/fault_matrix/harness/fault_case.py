"""Row of the fault matrix, its finding, and the checks that rows share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testudo_hardware.spec import RobotSpec

if TYPE_CHECKING:
    from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness

Limit = Callable[[RobotSpec], float] | float
"""Longest permitted time [s], of every robot or by its file."""


def tick(spec: RobotSpec) -> float:
    """Return the time of a control tick."""
    return spec.control_period_s


def stale(spec: RobotSpec) -> float:
    """Return the age at which a pose is too old, and a tick."""
    return spec.pose_max_age_s + spec.control_period_s


def dead_man(spec: RobotSpec) -> float:
    """Return the longest time for which one command acts."""
    return spec.dead_man_s


AT_REST_S = 3.0
_BEFORE_S = 0.2
LATE_CODES = {"stale_pose", "guard_late"}
"""Reason codes of a policy that ran or heard late, as on a stalled machine."""
GUARD_LATE_CODES = {"silence", "no_pose"}
"""Those of a guard."""


@dataclass(frozen=True)
class FaultFinding:
    """One repetition."""

    passed: bool
    time_s: float | None = None  # time from the fault to the brake command at the actuators, if the row requires one
    note: str = ""
    stolen_s: float = 0.0  # Processor time that the host withheld from the cores meanwhile


@dataclass(frozen=True)
class FaultRow:
    """One fault."""

    number: int
    fault: str
    required: str
    limit: Limit | None  # Longest permitted time; None if the row requires none
    inject: Callable[..., FaultFinding | None]
    """Injects the fault once into a `FleetHarness`, or without a fleet into a folder, or, for a row with fleets of its
    own, into a folder and a `FleetBed`; None if the machine stalled."""
    fleet: str = "driving"
    """Kind of fleet that the fault needs: driving, tasked, tracked, pursued, weak, recorded, run, own, or none."""
    not_emulated: str = ""
    """Why the row is not run with a vendor's driver; empty if it is."""

    def limit_s(self, spec: RobotSpec) -> float | None:
        """Return the longest permitted time [s] for a robot; None if the row requires none."""
        return self.limit(spec) if callable(self.limit) else self.limit


def brakes(
    harness: FleetHarness, fault_s: float, *, code: str | None = None, name: str = "r0", series: str = "sent"
) -> FaultFinding | None:
    """Return the time from a fault (steady clock) to zero on the robot's actuator topic; the robot must come to rest.

    Policy or guard must report the reason code ``code`` within a second; ``series`` is ``applied`` for the brake of the
    driver.
    """
    watch = harness.observer
    brake_s = harness.wait(lambda: watch.brake_after(name, fault_s, series), f"{name} did not brake", AT_REST_S)
    harness.wait(lambda: watch.rests(name, brake_s), f"{name} did not come to rest", AT_REST_S)
    if not watch.drives(name, _BEFORE_S, fault_s):
        return None
    if code is not None:
        heard, missing = watch.robots[name], f"reason code {code} was not reported"
        harness.wait(lambda: code in watch.codes_since(name, fault_s) | {heard.guard_code}, missing, 1.0)
    return FaultFinding(True, brake_s - fault_s, stolen_s=watch.host.taken_s(fault_s, brake_s))


def keeps_driving(harness: FleetHarness, fault_s: float, for_s: float, *, name: str = "r0") -> FaultFinding | None:
    """Return whether the robot kept driving after a fault that must not stop it.

    None if it held for messages that came late to its policy or its guard, and for nothing else: the machine stalled.
    """
    time.sleep(max(0.0, fault_s + for_s - time.monotonic()))
    if harness.observer.drives(name, for_s - 0.05):
        return FaultFinding(True)
    codes = harness.observer.codes_since(name, fault_s) - {""}
    of_guard = harness.observer.guard_codes_since(name, fault_s) - {""}
    late = (codes & LATE_CODES) | (of_guard & GUARD_LATE_CODES)
    if late and codes <= LATE_CODES | {"guard_brakes"} and of_guard <= GUARD_LATE_CODES:
        return None
    reasons = sorted(codes) + [f"guard: {code}" for code in sorted(of_guard)]
    return FaultFinding(False, None, f"it stopped: {', '.join(reasons) or 'no reason given'}")
