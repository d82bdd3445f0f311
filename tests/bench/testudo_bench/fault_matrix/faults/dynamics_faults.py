"""Rows 26 and 28: a robot that brakes worse than its file says, and one that does not move as commanded."""

from __future__ import annotations

import json
import math
import time

from std_msgs.msg import String

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow, brakes
from testudo_bench.fault_matrix.harness.fleet_harness import TestBed, TestBedError

WEAK = {"faults": json.dumps({"r0": {"braking_share": 0.7}})}
"""Brakes 30 % weaker than the robot's file says, as the plant's parameter."""
_BLOCKED_S = 0.3
_ALARM_S = 1.0
_BRAKING_S = 0.1
_FAST = 0.85
"""Of top speed: a robot that brakes gently from less shows nothing that its intervals do not allow."""


def weak_brakes(bed: TestBed) -> FaultFinding | None:
    """r0 is told to stop from its speed: its brakes are found weak within a second of the braking."""
    truth, top_m_s = bed.observer.robots["r0"].truth, bed.fleet.robot("r0").spec.control_point_speed_m_s

    def at_speed() -> bool:
        # the shield may have it brake on its way, and weak brakes be told there already: it is started again
        if bed.urge("r0"):
            time.sleep(0.2)
        return math.hypot(*truth[-1][1].velocity) > _FAST * top_m_s

    bed.wait(at_speed, "r0 did not come up to speed", 15.0)
    fault_s = time.monotonic()
    bed.observer.ask("r0", "stop")
    brake_s = bed.wait(lambda: bed.observer.brake_after("r0", fault_s), "r0 did not brake", 1.0)
    heard = bed.observer.robots["r0"]
    bed.wait(lambda: heard.code == "brakes_weak", "nobody said brakes_weak", 3.0)
    return FaultFinding(heard.mode == "fault", time.monotonic() - brake_s - _BRAKING_S, heard.sentence)


def blocked(bed: TestBed, wheels: tuple[str, ...]) -> FaultFinding | None:
    """Wheels of r0 do not turn any more."""
    publisher = bed.observer.fault
    fault_s = time.monotonic()
    publisher.publish(String(data=json.dumps({"blocked": list(wheels)})))
    try:
        found = brakes(bed, fault_s)
        heard = bed.observer.robots["r0"]
        try:
            bed.wait(lambda: heard.code == "no_response", "nobody said no_response", 2.0)
        except TestBedError:
            if "stale_pose" in bed.observer.codes_since("r0", fault_s):
                return None  # the machine stalled, and the robot braked before it could notice
            raise
        return found and FaultFinding(heard.mode == "fault", found.time_s, heard.sentence)
    finally:
        publisher.publish(String(data=json.dumps({"blocked": []})))
        bed.renew("r0")


def one_wheel(bed: TestBed) -> FaultFinding | None:
    """The left wheel is blocked."""
    return blocked(bed, ("left",))


def both_wheels(bed: TestBed) -> FaultFinding | None:
    """Both wheels are blocked."""
    return blocked(bed, ("left", "right"))


ROWS = (
    FaultRow(26, "brakes 30 % weaker than described", "told, and a fault", _ALARM_S, weak_brakes, bed="weak"),
    FaultRow(28, "one wheel blocked", "brake, and a fault", _BLOCKED_S, one_wheel),
    FaultRow(28, "both wheels blocked", "brake, and a fault", _BLOCKED_S, both_wheels),
)
