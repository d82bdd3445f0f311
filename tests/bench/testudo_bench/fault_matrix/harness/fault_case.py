"""Row of the fault matrix, its finding, and the checks that rows share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testudo_hardware.spec import RobotSpec

if TYPE_CHECKING:
    from testudo_bench.fault_matrix.harness.fleet_bed import FleetBed
    from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness

Limit = Callable[["FleetBed"], float] | float
"""Longest permitted time [s], of every robot or by its files."""


def tick(bed: FleetBed) -> float:
    """Return the time of a control tick."""
    return bed.spec.control_period_s


def stale(bed: FleetBed) -> float:
    """Return the age at which a pose is too old, and a tick."""
    return bed.spec.pose_max_age_s + bed.spec.control_period_s


def dead_man(bed: FleetBed) -> float:
    """Return the longest time for which one command acts."""
    return bed.spec.dead_man_s


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

    def limit_s(self, bed: FleetBed) -> float | None:
        """Return the longest permitted time [s] for the robots of a bed; None if the row requires none."""
        return self.limit(bed) if callable(self.limit) else self.limit


def brakes(
    harness: FleetHarness,
    fault_s: float,
    *,
    code: str | None = None,
    name: str = "r0",
    series: str = "sent",
    planned: bool = False,
) -> FaultFinding | None:
    """Return the time from a fault (steady clock) to zero on the robot's actuator topic; the robot must come to rest.

    Policy or guard must report the reason code ``code`` within a second; ``series`` is ``applied`` for the brake of the
    driver. A ``planned`` brake of the shield begins where `brake_begins` says.
    """
    watch = harness.observer
    brake_s = harness.wait(lambda: watch.brake_after(name, fault_s, series), f"{name} did not brake", AT_REST_S)
    if planned:
        brake_s = brake_begins(getattr(watch.robots[name], series), fault_s, brake_s, harness.bed.spec)
    harness.wait(lambda: watch.rests(name, brake_s), f"{name} did not come to rest", AT_REST_S)
    if not watch.drives(name, _BEFORE_S, fault_s):
        return None
    if code is not None:
        heard, missing = watch.robots[name], f"reason code {code} was not reported"
        harness.wait(lambda: code in watch.codes_since(name, fault_s) | {heard.guard_code}, missing, 1.0)
    return FaultFinding(True, brake_s - fault_s, stolen_s=watch.host.taken_s(fault_s, brake_s))


_RAMP_SHARE = 0.5  # of the limit of deceleration: commands that fall at least so fast are a planned brake


def brake_begins(
    sent: Sequence[tuple[float, tuple[float, ...]]], fault_s: float, zero_s: float, spec: RobotSpec
) -> float:
    """Return when the brake began that ended in a zero command at ``zero_s``, not before the fault.

    A wheeled robot that cannot decelerate within its velocity lag brakes by a ramp: the shield's brake command is
    speed - limit of deceleration * lag, which decelerates as hard as zero would, and becomes zero with the speed. Its
    brake began with the first command from which on all fall at `_RAMP_SHARE` of the limit at least. Any other robot's
    brake is the zero.

    Args:
        sent: times (steady clock) and commands on the actuator topic, forward speed first.
        fault_s: when the fault came.
        zero_s: when the first zero command after it was sent.
        spec: the robot.
    """
    limit_m_s2 = spec.acceleration_limit_m_s2
    if spec.speed_limit_m_s <= limit_m_s2 * spec.velocity_lag_s:
        return zero_s
    begin_s = zero_s
    until = [one for one in sent if one[0] <= zero_s]
    for (before_s, before), (at_s, now) in zip(reversed(until[:-1]), reversed(until[1:]), strict=True):
        # into zero any speed falls that the lag alone brakes
        falls = abs(before[0]) - abs(now[0]) >= _RAMP_SHARE * limit_m_s2 * (at_s - before_s) or not any(now)
        if at_s < fault_s or not falls:
            break
        begin_s = at_s
    return begin_s


def keeps_driving(harness: FleetHarness, fault_s: float, for_s: float, *, name: str = "r0") -> FaultFinding | None:
    """Return whether the robot kept driving after a fault that must not stop it.

    None if it held for messages that came late to its policy or its guard, and for nothing else: the machine stalled.
    """
    time.sleep(max(0.0, fault_s + for_s - time.monotonic()))
    if harness.observer.drives(name, for_s - 0.05):
        return FaultFinding(True)
    if held_for_late_messages(harness, name, fault_s):
        return None
    return FaultFinding(False, None, f"it stopped: {reasons_to_stop(harness, name, fault_s)}")


def held_for_late_messages(harness: FleetHarness, name: str, since_s: float) -> bool:
    """Return whether a robot held for messages that came late to its policy or guard, and for nothing else."""
    codes, of_guard = _codes(harness, name, since_s)
    late = (codes & LATE_CODES) | (of_guard & GUARD_LATE_CODES)
    return bool(late) and codes <= LATE_CODES | {"guard_brakes"} and of_guard <= GUARD_LATE_CODES


def reasons_to_stop(harness: FleetHarness, name: str, since_s: float) -> str:
    """Return every reason that a robot and its guard gave since a time."""
    codes, of_guard = _codes(harness, name, since_s)
    reasons = sorted(codes) + [f"guard: {code}" for code in sorted(of_guard)]
    return ", ".join(reasons) or "no reason given"


def _codes(harness: FleetHarness, name: str, since_s: float) -> tuple[set[str], set[str]]:
    watch = harness.observer
    return watch.codes_since(name, since_s) - {""}, watch.guard_codes_since(name, since_s) - {""}
