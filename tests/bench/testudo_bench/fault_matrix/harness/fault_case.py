"""What a row of the fault matrix is, and what was found when its fault was injected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testudo_bench.fault_matrix.harness.fleet_harness import TestBed

TICK_S = 0.02
"""Control at 50 Hz."""
AT_REST_S = 3.0
_BEFORE_S = 0.2


@dataclass(frozen=True)
class FaultFinding:
    """One repetition."""

    passed: bool
    time_s: float | None = None
    """From the fault to the brake command at the actuators, where the row asks for that."""
    note: str = ""
    stolen_s: float = 0.0
    """What the host took from the cores in that time."""


@dataclass(frozen=True)
class FaultRow:
    """One fault."""

    number: int
    fault: str
    required: str
    limit_s: float | None
    """Longest time that may pass; None where the row asks for no time."""
    inject: Callable[[TestBed], FaultFinding | None]
    """Injects it once into a fleet that drives; None if the machine stalled just then, which tells nothing."""
    bed: str = "driving"
    """Which bed it needs: driving, tracked, weak, or none."""


def brakes(
    bed: TestBed, fault_s: float, *, code: str | None = None, name: str = "r0", series: str = "sent"
) -> FaultFinding | None:
    """Return how soon zero came on the robot's actuator topic after a fault, and that it came to rest.

    Args:
        bed: the fleet.
        fault_s: when the fault was injected, on the steady clock.
        code: what its mode, or its guard, has to say within a second.
        name: of the robot.
        series: ``applied`` for the driver's own brake.
    """
    watch = bed.observer
    brake_s = bed.wait(lambda: watch.brake_after(name, fault_s, series), f"{name} did not brake", AT_REST_S)
    bed.wait(lambda: watch.rests(name, brake_s), f"{name} did not come to rest", AT_REST_S)
    if not watch.drives(name, _BEFORE_S, fault_s):
        return None
    if code is not None:
        heard = watch.robots[name]
        bed.wait(lambda: code in watch.codes_since(name, fault_s) | {heard.guard_code}, f"nobody said {code}", 1.0)
    return FaultFinding(True, brake_s - fault_s, stolen_s=watch.host.taken_s(fault_s, brake_s))


def goes_on(bed: TestBed, fault_s: float, for_s: float, *, name: str = "r0") -> FaultFinding | None:
    """Return whether the robot drove all the time after a fault that must not stop it.

    None if it held for an old pose: that is a machine that stalled.
    """
    time.sleep(max(0.0, fault_s + for_s - time.monotonic()))
    drove = bed.observer.drives(name, for_s - 0.05)
    codes = bed.observer.codes_since(name, fault_s) - {""}
    if not drove and codes == {"stale_pose"}:
        return None
    return FaultFinding(drove, None, "" if drove else f"it stopped: {', '.join(sorted(codes))}")
