"""Rows 1 to 5, 26 and 28: own odometry is invalid, stale or wrong; brakes are weak, wheels blocked."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from std_msgs.msg import String

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow, brakes, keeps_driving, stale, tick
from testudo_bench.fault_matrix.harness.fleet_bed import FleetBed
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError
from testudo_bench.fault_matrix.harness.relay_observer import Change


def _odometry(harness: FleetHarness, change: Change) -> float:
    """Change the odometry of r0; return the time of the first changed message: the time of the fault."""
    times: list[float] = []

    def first(message: Any) -> Any:
        times.append(time.monotonic())
        return change(message)

    harness.observer.odometry = first
    return harness.wait(lambda: times and times[0], "no odometry arrived", 1.0)


def _localisation(harness: FleetHarness, change: Change) -> float:
    """Change the localisation of r0; return the time of the first odometry that the change can act on.

    Where the localisation is in the odometry itself, it is that message; a pose beside it acts from the next one on.
    """
    if not harness.observer.is_localised_apart:
        return _odometry(harness, change)
    poses, times = [], []

    def first(message: Any) -> Any:
        poses.append(message)
        return change(message)

    def after(message: Any) -> Any:
        if poses:
            times.append(time.monotonic())
        return message

    harness.observer.odometry, harness.observer.localisation = after, first
    return harness.wait(lambda: times and times[0], "no localisation arrived", 3.0)


def _must_brake(code: str) -> Callable[[Change], Callable[[FleetHarness], FaultFinding | None]]:
    """Return a decorator that makes a fault of a change of the odometry of r0: it must brake and report the code."""

    def of(change: Change) -> Callable[[FleetHarness], FaultFinding | None]:
        @wraps(change)
        def inject(harness: FleetHarness) -> FaultFinding | None:
            return brakes(harness, _odometry(harness, change), code=code)

        return inject

    return of


def _nan(message: Any) -> Any:
    message.pose.pose.position.x = math.nan
    return message


def not_finite(harness: FleetHarness) -> FaultFinding | None:
    """Own odometry is NaN; half a second earlier the neighbours' messages become NaN, so their last valid ones age."""

    def broken(_sender: str, _receiver: str, message: Any) -> Any:
        data = bytes(message.data).replace(b'"yaw": ', b'"yaw": NaN, "was": ', 1)
        message.data = data
        return message

    harness.observer.peers = broken
    time.sleep(0.5)
    found = brakes(harness, _odometry(harness, _nan))
    finite = all(math.isfinite(value) for _, command in harness.observer.robots["r0"].sent[-500:] for value in command)
    return found and replace(found, passed=found.passed and finite, note="" if finite else "a command was not finite")


@_must_brake("stale_pose")
def silent(_: Any) -> None:
    """Odometry stops."""


def repeating(harness: FleetHarness) -> FaultFinding | None:
    """Odometry repeats one message."""
    received: list[Any] = []

    def repeat(message: Any) -> Any:
        received.append(message)
        return received[0]

    return brakes(harness, _odometry(harness, repeat), code="stale_pose")


def out_of_order(harness: FleetHarness) -> FaultFinding | None:
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

    return keeps_driving(harness, _odometry(harness, shuffle), 1.0)


def jump(harness: FleetHarness) -> FaultFinding | None:
    """Localisation jumps by 30 cm; one that is filtered by more than its noise explains."""

    def moved(message: Any) -> Any:
        message.pose.pose.position.y += harness.bed.jump_m
        return message

    return brakes(harness, _localisation(harness, moved), code="pose_jump")


def flip(harness: FleetHarness) -> FaultFinding | None:
    """Yaw turns by 180 degrees."""

    def turned(message: Any) -> Any:
        turn = message.pose.pose.orientation
        turn.z, turn.w = turn.w, -turn.z
        return message

    return brakes(harness, _localisation(harness, turned), code="pose_jump")


@_must_brake("stale_pose")
def no_quaternion(message: Any) -> Any:
    """The quaternion has length 1.5: messages are refused, and the last pose ages."""
    message.pose.pose.orientation.w *= 1.5
    message.pose.pose.orientation.z *= 1.5
    return message


@_must_brake("stale_pose")
def other_frame(message: Any) -> Any:
    """Odometry is in another frame: messages are refused, and the last pose ages."""
    message.header.frame_id = "elsewhere"
    return message


def commanded_while_blocked_m_s(bed: FleetBed) -> float:
    """Return the least speed that a robot commands that is to drive at top speed and stands [m/s].

    The shield asks for what the robot can reach within its acceleration limit a: v + a * lag beside the speed v at the
    moment at which the command acts (`MotionModel.braking_share`). That speed is predicted from the pose, which shows a
    standing robot, through its age and the delay of a command, in which the commands before accelerate it by a at most:
    v = a * (age + delay).
    """
    spec = bed.spec
    predicted_s = bed.least_pose_age_s + spec.command_delay_s
    return min(spec.speed_limit_m_s, spec.acceleration_limit_m_s2 * (predicted_s + spec.velocity_lag_s))


def _noticed(bed: FleetBed) -> float:
    """Return the time in which a blockage at top speed is noticed (`monitoring.actuation_monitor`) [s].

    The way that the commands leave at least exceeds the error of two poses, then that pose ages: 0.30 s for our own.
    """
    spec = bed.spec
    least_m_s = spec.quantities["dynamics.speed_scale"].low * commanded_while_blocked_m_s(bed)
    return 2 * spec.position_error_m / least_m_s + spec.pose_max_age_s + 1.5 * spec.control_period_s


WEAK = {"faults": json.dumps({"r0": {"braking_share": 0.7}})}
"""Parameter of the plant: brakes 30 % weaker than in the robot file."""
_STEADY_S = 2.0  # after a start or a brake the monitor of the motion does not know the speed of the robot
_ALARM_S = 1.0
_BRAKING_S = 0.1
_FAST = 0.85  # share of top speed from which weak brakes leave the intervals of the robot file


def weak_brakes(harness: FleetHarness) -> FaultFinding | None:
    """r0 stops from its speed: weak brakes are reported within a second of braking."""
    truth, top_m_s = harness.observer.robots["r0"].truth, harness.fleet.robot("r0").spec.control_point_speed_m_s

    def at_speed() -> bool:
        # the shield may brake it on the way, which already reports weak brakes: start it again
        if harness.request_next("r0"):
            time.sleep(0.2)
        return math.hypot(*truth[-1][1].velocity) > _FAST * top_m_s

    harness.wait(at_speed, "r0 did not come up to speed", 15.0)
    fault_s = time.monotonic()
    harness.observer.ask("r0", "stop")
    brake_s = harness.wait(lambda: harness.observer.brake_after("r0", fault_s), "r0 did not brake", 1.0)
    heard = harness.observer.robots["r0"]
    harness.wait(lambda: heard.code == "brakes_weak", "brakes_weak was not reported", 3.0)
    return FaultFinding(heard.mode == "fault", time.monotonic() - brake_s - _BRAKING_S, heard.sentence)


def blocked(harness: FleetHarness, wheels: tuple[str, ...]) -> FaultFinding | None:
    """Wheels of r0 are blocked."""
    publisher = harness.observer.fault
    time.sleep(_STEADY_S)
    fault_s = time.monotonic()
    publisher.publish(String(data=json.dumps({"blocked": list(wheels)})))
    try:
        found = brakes(harness, fault_s)
        heard = harness.observer.robots["r0"]
        try:
            harness.wait(lambda: heard.code == "no_response", "no_response was not reported", 2.0)
        except HarnessError:
            if "stale_pose" in harness.observer.codes_since("r0", fault_s):
                return None  # the machine stalled: the robot braked before it could detect the blocked wheel
            raise
        return found and FaultFinding(heard.mode == "fault", found.time_s, heard.sentence)
    finally:
        publisher.publish(String(data=json.dumps({"blocked": []})))
        harness.restart_policy("r0")


def one_wheel(harness: FleetHarness) -> FaultFinding | None:
    """The left wheel is blocked."""
    return blocked(harness, ("left",))


def both_wheels(harness: FleetHarness) -> FaultFinding | None:
    """Both wheels are blocked."""
    return blocked(harness, ("left", "right"))


ROWS = (
    FaultRow(1, "NaN in own odometry and in a neighbour's state", "dropped; brake at the age limit", stale, not_finite),
    FaultRow(2, "odometry stops", "brake", stale, silent),
    FaultRow(2, "odometry repeats one message", "brake", stale, repeating),
    FaultRow(3, "odometry out of order, or from the future", "refused, drives on", None, out_of_order),
    FaultRow(4, "localisation jumps by 30 cm; by 60 cm if filtered", "brake", tick, jump),
    FaultRow(5, "yaw flips", "brake", tick, flip),
    FaultRow(5, "odometry in another frame", "refused; brake at the age limit", stale, other_frame),
    FaultRow(5, "invalid quaternion", "refused; brake at the age limit", stale, no_quaternion),
    FaultRow(
        26,
        "brakes 30 % weaker than described",
        "reported, mode fault",
        _ALARM_S,
        weak_brakes,
        fleet="weak",
        not_emulated="needs a fast robot: of a slow one weak brakes cannot be told from the intervals of its file",
    ),
    FaultRow(28, "one wheel blocked", "brake, mode fault", _noticed, one_wheel),
    FaultRow(28, "both wheels blocked", "brake, mode fault", _noticed, both_wheels),
)
