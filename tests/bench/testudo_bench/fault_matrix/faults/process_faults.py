"""Rows 11 to 14, 19 to 24 and 29: processes that fail, die or sleep, commands of others, operators."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any

from geometry_msgs.msg import TwistStamped
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Bool

from testudo_bench.fault_matrix.harness.fault_case import TICK_S, FaultFinding, FaultRow, brakes
from testudo_bench.fault_matrix.harness.fleet_harness import TestBed
from testudo_nodes.common.qos import OFFERED

_DEAD_MAN_S = _CLOCK_S = 0.1
_SLEEP_S = 2.0
_HANG_S = 1.0


def overrun(bed: TestBed) -> FaultFinding | None:
    """Inference takes six ticks; those that were missed are not made up for."""
    fault_s = bed.tell_policy(f"hang {6 * TICK_S}")
    found = brakes(bed, fault_s)
    woke_s = fault_s + 6 * TICK_S
    burst = sum(woke_s <= at_s <= woke_s + TICK_S for at_s, _ in bed.observer.robots["r0"].sent)
    return found and replace(found, passed=burst <= 3, note="" if burst <= 3 else f"{burst} commands within a tick")


def hangs(bed: TestBed) -> FaultFinding | None:
    """Inference hangs for a second."""
    return brakes(bed, bed.tell_policy(f"hang {_HANG_S}"))


def raises(bed: TestBed) -> FaultFinding | None:
    """Inference raises an error."""
    return brakes(bed, bed.tell_policy("raise"), code="policy_error")


def gives_nan(bed: TestBed) -> FaultFinding | None:
    """Inference gives NaN."""
    return brakes(bed, bed.tell_policy("nan"))


def clock_ahead(bed: TestBed) -> FaultFinding | None:
    """The clock of the policy's process jumps an hour ahead, and back after half a second."""
    return brakes(bed, bed.tell_policy("clock 3600"))


def clock_behind(bed: TestBed) -> FaultFinding | None:
    """The clock of the policy's process jumps an hour back, and ahead again after half a second."""
    return brakes(bed, bed.tell_policy("clock -3600"))


def parameter_change(bed: TestBed) -> FaultFinding:
    """Somebody sets every parameter of guard and policy while the robot drives."""
    asked = [("policy", "robot"), ("policy", "policy"), ("policy", "fleet"), ("guard", "robot"), ("guard", "fleet")]
    begin_s, accepted = time.monotonic(), []
    for node, name in asked:
        client = bed.observer.node.create_client(SetParameters, f"/r0/{node}/set_parameters")
        bed.wait(client.service_is_ready, f"{node} has no parameter service", 3.0)
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value="other")
        answer = client.call_async(SetParameters.Request(parameters=[Parameter(name=name, value=value)]))
        bed.wait(answer.done, f"{node} does not answer", 3.0)
        accepted += [f"{node}.{name}" for result in answer.result().results if result.successful]
        bed.observer.node.destroy_client(client)
    drove = bed.observer.drives("r0", time.monotonic() - begin_s)
    return FaultFinding(
        not accepted and drove, None, f"accepted {accepted}" if accepted else "" if drove else "it stopped"
    )


def policy_killed(bed: TestBed) -> FaultFinding | None:
    """SIGKILL; started again, it is inactive, lives a new life and owns the place where it stands."""
    epoch = bed.observer.epochs["r0"]
    found = brakes(bed, bed.send("r0/policy", signal.SIGKILL))
    bed.restart("r0/policy")
    bed.wait(lambda: bed.observer.epochs["r0"] != epoch, "it did not come back")
    bed.wait(lambda: bed.observer.robots["r0"].mode == "idle", "it did not come back inactive")
    time.sleep(1.0)
    record = bed.observer.robots["r0"].record
    still = bed.observer.rests("r0", time.monotonic() - 0.2) and bed.observer.robots["r0"].mode == "idle"
    point = (
        record.reserved_segment_world is not None
        and record.reserved_segment_world[0] == record.reserved_segment_world[1]
    )
    return found and replace(found, passed=still and point, note="" if still else "it drove by itself")


def policy_ended(bed: TestBed) -> FaultFinding | None:
    """SIGTERM: the last word of the policy is a brake, and it ends with status 0."""
    found = brakes(bed, bed.send("r0/policy", signal.SIGTERM))
    status = bed.wait(lambda: bed.processes.exit_status("r0/policy") is not None, "it lives on", 5.0) and (
        bed.processes.exit_status("r0/policy")
    )
    bed.restart("r0/policy")
    return found and replace(found, passed=status == 0, note="" if status == 0 else f"status {status}")


def policy_sleeps(bed: TestBed) -> FaultFinding | None:
    """SIGSTOP for two seconds, then SIGCONT: nothing old gets through."""
    fault_s = bed.send("r0/policy", signal.SIGSTOP)
    found = brakes(bed, fault_s)
    time.sleep(max(0.0, fault_s + _SLEEP_S - time.monotonic()))
    woke_s = bed.send("r0/policy", signal.SIGCONT)
    time.sleep(0.5)
    moved = [at_s for at_s, command in bed.observer.robots["r0"].sent if at_s > woke_s and any(command)]
    return found and replace(found, passed=not moved, note="an old command got through" if moved else "")


def guard_killed(bed: TestBed) -> FaultFinding | None:
    """SIGKILL of the guard: the driver brakes by itself, and the policy becomes inactive."""
    fault_s = bed.send("r0/guard", signal.SIGKILL)
    found = brakes(bed, fault_s, series="applied")
    bed.wait(lambda: bed.observer.robots["r0"].mode == "idle", "the policy stayed active", 2.0)
    bed.restart("r0/guard")
    return found


def second_publisher(bed: TestBed) -> FaultFinding | None:
    """Somebody else publishes on the actuator topic."""
    rogue = bed.observer.node.create_publisher(TwistStamped, "/r0/cmd_vel", OFFERED["cmd_vel"])
    try:
        return brakes(bed, time.monotonic(), code="second_publisher")
    finally:
        bed.observer.node.destroy_publisher(rogue)


def qos_mismatch(bed: TestBed) -> FaultFinding:
    """A partner of the restarted policy wants what it does not offer: it is not armed, and says which and why."""
    profile = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    bed.send("r0/policy", signal.SIGKILL)
    wants = bed.observer.node.create_subscription(TwistStamped, "/r0/cmd_vel_policy", lambda _: None, profile)
    try:
        epoch = bed.observer.epochs["r0"]
        bed.restart("r0/policy")
        bed.wait(lambda: bed.observer.epochs["r0"] != epoch, "it did not come back")
        begin_s = time.monotonic()
        heard = bed.observer.robots["r0"]
        bed.wait(lambda: heard.mode == "idle" and heard.code == "qos_mismatch", "nobody said qos_mismatch", 2.0)
        time_s = time.monotonic() - begin_s
        answer = bed.observer.ask("r0", "activate")
        bed.wait(answer.done, "no answer", 2.0)
        named = "cmd_vel_policy" in heard.sentence and "durability" in heard.sentence.lower()
        return FaultFinding(not answer.result().success and named, time_s, heard.sentence)
    finally:
        bed.observer.node.destroy_subscription(wants)
        bed.send("r0/policy", signal.SIGKILL)
        bed.restart("r0/policy")


def estop_topic(bed: TestBed) -> FaultFinding | None:
    """The emergency stop of the fleet as a topic; it stays when it is released, until it is taken back by hand."""
    button = bed.observer.button
    fault_s = time.monotonic()
    button.publish(Bool(data=True))
    found = brakes(bed, fault_s, code="estop")
    button.publish(Bool(data=False))
    time.sleep(1.5)
    return found and replace(found, passed=_is_latched(bed, bed.fleet.names))


def estop_service(bed: TestBed) -> FaultFinding | None:
    """The emergency stop of one robot as a service."""
    fault_s = time.monotonic()
    bed.observer.ask("r0", "estop")
    found = brakes(bed, fault_s, code="estop")
    time.sleep(1.5)
    return found and replace(found, passed=_is_latched(bed, ("r0",)))


def _is_latched(bed: TestBed, names: tuple[str, ...]) -> bool:
    """Return whether robots stand, and cannot be started before the stop is taken back."""
    answers: list[Any] = [bed.observer.ask(name, "start") for name in names]
    bed.wait(lambda: all(answer.done() for answer in answers), "no answer", 2.0)
    refused = not any(answer.result().success for answer in answers)
    return refused and all(bed.observer.robots[name].mode == "stopped" for name in names)


ROWS = (
    FaultRow(11, "clock an hour ahead, then right again", "brake; buffers reset", _CLOCK_S, clock_ahead),
    FaultRow(11, "clock an hour back, then right again", "brake; buffers reset", _CLOCK_S, clock_behind),
    FaultRow(12, "inference takes six ticks", "the guard brakes; ticks are not queued", _DEAD_MAN_S, overrun),
    FaultRow(13, "inference raises", "brake", _DEAD_MAN_S, raises),
    FaultRow(13, "inference hangs", "the guard brakes", _DEAD_MAN_S, hangs),
    FaultRow(14, "the policy gives NaN", "brake", TICK_S, gives_nan),
    FaultRow(19, "parameters are set while active", "refused", None, parameter_change),
    FaultRow(20, "policy killed", "the guard brakes; back inactive, in a new life", _DEAD_MAN_S, policy_killed),
    FaultRow(20, "policy terminated", "a brake as its last word", _DEAD_MAN_S, policy_ended),
    FaultRow(
        21,
        "policy stopped for 2 s, then continued",
        "the guard brakes; old commands dropped",
        _DEAD_MAN_S,
        policy_sleeps,
    ),
    FaultRow(22, "guard killed", "the driver brakes; the policy becomes inactive", _DEAD_MAN_S, guard_killed),
    FaultRow(23, "second publisher of commands", "the guard brakes", 0.5, second_publisher),
    FaultRow(24, "quality of service does not match", "not armed; topic and policy named", 2.0, qos_mismatch),
    FaultRow(29, "emergency stop, topic", "brake, latched, re-armed by hand", TICK_S, estop_topic),
    FaultRow(29, "emergency stop, service", "brake, latched, re-armed by hand", TICK_S, estop_service),
)
