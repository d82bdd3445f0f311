"""Rows 1 to 5: what a robot senses of itself is broken, old or wrong."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import Any

from std_msgs.msg import String

from testudo_bench.fault_matrix.harness.fault_case import TICK_S, FaultFinding, FaultRow, brakes, goes_on
from testudo_bench.fault_matrix.harness.fleet_harness import TestBed, TestBedError
from testudo_bench.fault_matrix.harness.relay_observer import Change

_STALE_S = 0.1
_JUMP_M = 0.3


class _Once:
    """Notes when the first message was changed: that is the fault."""

    def __init__(self, change: Change) -> None:
        self._change, self.since_s = change, 0.0

    def __call__(self, message: Any) -> Any:
        self.since_s = self.since_s or time.monotonic()
        return self._change(message)


def _odometry(bed: TestBed, change: Change) -> float:
    once = _Once(change)
    bed.observer.odometry = once
    return bed.wait(lambda: once.since_s, "no odometry came", 1.0)


def _nan(message: Any) -> Any:
    message.pose.pose.position.x = math.nan
    return message


def not_finite(bed: TestBed) -> FaultFinding | None:
    """Own odometry is NaN; before, for half a second, so are the messages of the neighbours, which then age."""

    def broken(_sender: str, _receiver: str, message: Any) -> Any:
        data = bytes(message.data).replace(b'"yaw": ', b'"yaw": NaN, "was": ', 1)
        message.data = data
        return message

    bed.observer.peers = broken
    time.sleep(0.5)
    found = brakes(bed, _odometry(bed, _nan))
    finite = all(math.isfinite(value) for _, command in bed.observer.robots["r0"].sent[-500:] for value in command)
    return found and replace(found, passed=found.passed and finite, note="" if finite else "a command was not finite")


def silent(bed: TestBed) -> FaultFinding | None:
    """No odometry any more."""
    return brakes(bed, _odometry(bed, lambda _: None), code="stale_pose")


def repeating(bed: TestBed) -> FaultFinding | None:
    """One message again and again."""
    kept: list[Any] = []

    def repeat(message: Any) -> Any:
        kept.append(message)
        return kept[0]

    return brakes(bed, _odometry(bed, repeat), code="stale_pose")


def out_of_order(bed: TestBed) -> FaultFinding | None:
    """Every message is followed by the one before, and by itself with a stamp one second ahead."""
    before: list[Any] = []

    def shuffle(message: Any) -> list[Any]:
        future = type(message)()
        future.header.frame_id, future.child_frame_id = message.header.frame_id, message.child_frame_id
        future.pose.pose.orientation.w = 1.0
        stamp = message.header.stamp
        future.header.stamp.sec, future.header.stamp.nanosec = stamp.sec + 1, stamp.nanosec
        sent = [message, *before[-1:], future]
        before.append(message)
        return sent

    return goes_on(bed, _odometry(bed, shuffle), 1.0)


def jump(bed: TestBed) -> FaultFinding | None:
    """Localisation jumps by 30 cm."""

    def moved(message: Any) -> Any:
        message.pose.pose.position.y += _JUMP_M
        return message

    return brakes(bed, _odometry(bed, moved), code="pose_jump")


def flip(bed: TestBed) -> FaultFinding | None:
    """Yaw turns by 180 degrees."""

    def turned(message: Any) -> Any:
        turn = message.pose.pose.orientation
        turn.z, turn.w = turn.w, -turn.z
        return message

    return brakes(bed, _odometry(bed, turned), code="pose_jump")


def no_quaternion(bed: TestBed) -> FaultFinding | None:
    """The quaternion's length is 1.5: messages are refused, and the last pose ages."""

    def longer(message: Any) -> Any:
        message.pose.pose.orientation.w *= 1.5
        message.pose.pose.orientation.z *= 1.5
        return message

    return brakes(bed, _odometry(bed, longer), code="stale_pose")


def other_frame(bed: TestBed) -> FaultFinding | None:
    """Odometry says to be in a frame that is not the fleet's: messages are refused, and the last pose ages."""

    def foreign(message: Any) -> Any:
        message.header.frame_id = "odom"
        return message

    return brakes(bed, _odometry(bed, foreign), code="stale_pose")


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
    FaultRow(
        1, "NaN in own odometry and in a neighbour's state", "dropped; brake at the age limit", _STALE_S, not_finite
    ),
    FaultRow(2, "odometry stops", "brake", _STALE_S, silent),
    FaultRow(2, "odometry repeats one message", "brake", _STALE_S, repeating),
    FaultRow(3, "odometry out of order, or from the future", "refused, and driven on", None, out_of_order),
    FaultRow(4, "localisation jumps by 30 cm", "brake", TICK_S, jump),
    FaultRow(5, "yaw flips", "brake", TICK_S, flip),
    FaultRow(5, "odometry in another frame", "refused; brake at the age limit", _STALE_S, other_frame),
    FaultRow(5, "a quaternion that is none", "refused; brake at the age limit", _STALE_S, no_quaternion),
    FaultRow(26, "brakes 30 % weaker than described", "told, and a fault", _ALARM_S, weak_brakes, bed="weak"),
    FaultRow(28, "one wheel blocked", "brake, and a fault", _BLOCKED_S, one_wheel),
    FaultRow(28, "both wheels blocked", "brake, and a fault", _BLOCKED_S, both_wheels),
)
