"""Rows 11 to 14, 19 to 24 and 29: processes that fail, end or stall, other publishers, operators."""

import itertools
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Bool, UInt8MultiArray

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow, brakes, dead_man, keeps_driving, tick
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness
from testudo_bench.fault_matrix.harness.other_commands import other_publisher
from testudo_bench.fault_matrix.harness.relay_observer import repeating
from testudo_hardware.links.wire import CommandReading
from testudo_nodes.common.qos import OFFERED

_SLEEP_S = 2.0
_HANG_S = 1.0
_NO_KEY = "a vendor's driver does not check a fleet key: it accepts the commands of every publisher"
_INTRUDING_M_S, _INTRUDING_PERIOD_S, _INTRUDING_S = -0.0789, 0.005, 1.0


def overrun(harness: FleetHarness) -> FaultFinding | None:
    """Inference takes six ticks, or one longer than the dead-man time; missed ticks are not repeated."""
    hang_s = max(6 * harness.tick_s, harness.bed.spec.dead_man_s + harness.tick_s)
    fault_s = harness.fail_policy(f"hang {hang_s:g}")
    found = brakes(harness, fault_s)
    woke_s = fault_s + hang_s
    burst = sum(woke_s <= at_s <= woke_s + harness.tick_s for at_s, _ in harness.observer.robots["r0"].sent)
    return found and replace(found, passed=burst <= 3, note="" if burst <= 3 else f"{burst} commands within a tick")


def policy_fault(name: str, fault: str, code: str | None = None) -> Callable[[FleetHarness], FaultFinding | None]:
    """Return the injection of a fault of `faulty_policy` into r0, which must brake and report ``code``."""

    def inject(harness: FleetHarness) -> FaultFinding | None:
        return brakes(harness, harness.fail_policy(fault), code=code)

    inject.__name__ = name
    return inject


clock_ahead = policy_fault("clock_ahead", "clock 3600")  # the clock of the process; it is correct again after 0.5 s
clock_behind = policy_fault("clock_behind", "clock -3600")
raises = policy_fault("raises", "raise", "policy_error")
hangs = policy_fault("hangs", f"hang {_HANG_S}")
gives_nan = policy_fault("gives_nan", "nan")


def parameter_change(harness: FleetHarness) -> FaultFinding | None:
    """A client sets every parameter of guard and policy while the robot drives."""
    asked = [("policy", "robot"), ("policy", "policy"), ("policy", "fleet"), ("guard", "robot"), ("guard", "fleet")]
    begin_s, accepted = time.monotonic(), []
    for node, name in asked:
        client = harness.observer.node.create_client(SetParameters, f"/r0/{node}/set_parameters")
        harness.wait(client.service_is_ready, f"{node} has no parameter service", 3.0)
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value="other")
        answer = client.call_async(SetParameters.Request(parameters=[Parameter(name=name, value=value)]))
        harness.wait(answer.done, f"{node} does not answer", 3.0)
        accepted += [f"{node}.{name}" for result in answer.result().results if result.successful]
        harness.observer.node.destroy_client(client)
    if accepted:
        return FaultFinding(False, None, f"accepted {accepted}")
    return keeps_driving(harness, begin_s, max(1.0, time.monotonic() - begin_s))


def policy_killed(harness: FleetHarness) -> FaultFinding | None:
    """SIGKILL; after the restart it is idle, has a new epoch and owns the place where it stands."""
    epoch = harness.observer.epochs["r0"]
    found = brakes(harness, harness.send("r0/policy", signal.SIGKILL))
    harness.restart("r0/policy")
    harness.wait_until_restarted("r0", epoch)
    harness.wait(lambda: harness.observer.robots["r0"].mode == "idle", "it did not restart in idle")
    time.sleep(1.0)
    record = harness.observer.robots["r0"].record
    still = harness.observer.rests("r0", time.monotonic() - 0.2) and harness.observer.robots["r0"].mode == "idle"
    point = (
        record.reserved_segment_world is not None
        and record.reserved_segment_world[0] == record.reserved_segment_world[1]
    )
    return found and replace(found, passed=still and point, note="" if still else "it drove without a request")


def policy_ended(harness: FleetHarness) -> FaultFinding | None:
    """SIGTERM: the last command of the policy is a brake, and it exits with status 0."""
    found = brakes(harness, harness.send("r0/policy", signal.SIGTERM))
    status = harness.wait(lambda: harness.processes.exit_status("r0/policy") is not None, "it does not end", 5.0) and (
        harness.processes.exit_status("r0/policy")
    )
    harness.restart("r0/policy")
    return found and replace(found, passed=status == 0, note="" if status == 0 else f"status {status}")


def policy_suspended(harness: FleetHarness) -> FaultFinding | None:
    """SIGSTOP for two seconds, then SIGCONT: no old command passes."""
    fault_s = harness.send("r0/policy", signal.SIGSTOP)
    found = brakes(harness, fault_s)
    time.sleep(max(0.0, fault_s + _SLEEP_S - time.monotonic()))
    woke_s = harness.send("r0/policy", signal.SIGCONT)
    time.sleep(0.5)
    moved = [at_s for at_s, command in harness.observer.robots["r0"].sent if at_s > woke_s and any(command)]
    return found and replace(found, passed=not moved, note="an old command passed" if moved else "")


def guard_killed(harness: FleetHarness) -> FaultFinding | None:
    """SIGKILL of the guard: the driver brakes, and the policy goes idle."""
    fault_s = harness.send("r0/guard", signal.SIGKILL)
    found = brakes(harness, fault_s, series="applied")
    harness.wait(lambda: harness.observer.robots["r0"].mode == "idle", "the policy stayed active", 2.0)
    harness.restart("r0/guard")
    return found


def second_publisher(harness: FleetHarness) -> FaultFinding | None:
    """Another node publishes on the actuator topic."""
    with other_publisher(harness, "r0"):
        return brakes(harness, time.monotonic(), code="second_publisher")


def intruding_commands(harness: FleetHarness) -> FaultFinding | None:
    """Another node without the fleet key sends commands to the actuators, with honest and with early stamps."""
    spec = harness.fleet.robot("r0").spec
    early_s = itertools.cycle((0.0, harness.tick_s, spec.dead_man_s - 0.005))

    fault_s = time.monotonic()
    with other_publisher(harness, "r0") as command:

        def intrude() -> None:
            values = (_INTRUDING_M_S, *(0.0,) * (spec.dimension - 1))
            command(CommandReading(time.monotonic() + next(early_s), values))

        with repeating(intrude, _INTRUDING_PERIOD_S):
            found = brakes(harness, fault_s, code="second_publisher")
            time.sleep(_INTRUDING_S)
    applied = harness.observer.robots["r0"].applied
    acted = sum(at_s > fault_s and abs(one[0] - _INTRUDING_M_S) < 1e-6 for at_s, one in applied)
    return found and replace(found, passed=not acted, note=f"{acted} commands of the intruder acted" if acted else "")


def forged_messages(harness: FleetHarness) -> FaultFinding | None:
    """Another node without the fleet key repeats and changes the messages of r0's guard, plant and peers."""
    node, observer = harness.observer.node, harness.observer
    kinds = {"/r0/guard_status": DiagnosticStatus, "/r1/peer_state": UInt8MultiArray, "/r1/odom": Odometry}
    publishers = {
        topic: node.create_publisher(kind, topic, OFFERED[topic.rpartition("/")[2]]) for topic, kind in kinds.items()
    }

    def forge() -> None:
        stopped = KeyValue(key="code", value="estop")
        publishers["/r0/guard_status"].publish(DiagnosticStatus(name="r0: guard", values=[stopped]))
        if observer.peer_states:
            publishers["/r1/peer_state"].publish(observer.peer_states["r0"])
        publishers["/r1/odom"].publish(Odometry())

    fault_s = time.monotonic()
    try:
        with repeating(forge, _INTRUDING_PERIOD_S):
            return keeps_driving(harness, fault_s, 1.0) and keeps_driving(harness, fault_s, 1.0, name="r1")
    finally:
        for publisher in publishers.values():
            node.destroy_publisher(publisher)


def qos_mismatch(harness: FleetHarness) -> FaultFinding:
    """A subscriber asks the restarted policy for an incompatible QoS: it is not armed, and names topic and policy."""
    profile = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    harness.send("r0/policy", signal.SIGKILL)
    wants = harness.observer.node.create_subscription(TwistStamped, "/r0/cmd_vel_policy", lambda _: None, profile)
    try:
        epoch = harness.observer.epochs["r0"]
        harness.restart("r0/policy")
        harness.wait_until_restarted("r0", epoch)
        begin_s = time.monotonic()
        heard = harness.observer.robots["r0"]
        harness.wait(lambda: heard.mode == "idle" and heard.code == "qos_mismatch", "no qos_mismatch", 2.0)
        time_s = time.monotonic() - begin_s
        answer = harness.observer.ask("r0", "activate")
        harness.wait(answer.done, "no answer", 2.0)
        named = "cmd_vel_policy" in heard.sentence and "durability" in heard.sentence.lower()
        return FaultFinding(not answer.result().success and named, time_s, heard.sentence)
    finally:
        harness.observer.node.destroy_subscription(wants)
        harness.send("r0/policy", signal.SIGKILL)
        harness.restart("r0/policy")


def estop_topic(harness: FleetHarness) -> FaultFinding | None:
    """The fleet's emergency stop as a topic; it stays latched after release, until an operator re-arms."""
    button = harness.observer.button
    fault_s = time.monotonic()
    button.publish(Bool(data=True))
    found = brakes(harness, fault_s, code="estop")
    button.publish(Bool(data=False))
    time.sleep(1.5)
    return found and replace(found, passed=_is_latched(harness, harness.fleet.names))


def estop_service(harness: FleetHarness) -> FaultFinding | None:
    """The emergency stop of one robot as a service."""
    fault_s = time.monotonic()
    harness.observer.ask("r0", "estop")
    found = brakes(harness, fault_s, code="estop")
    time.sleep(1.5)
    return found and replace(found, passed=_is_latched(harness, ("r0",)))


def _is_latched(harness: FleetHarness, names: tuple[str, ...]) -> bool:
    """Return whether robots are stopped and refuse to start before they are re-armed."""
    answers: list[Any] = [harness.observer.ask(name, "start") for name in names]
    harness.wait(lambda: all(answer.done() for answer in answers), "no answer", 2.0)
    refused = not any(answer.result().success for answer in answers)
    return refused and all(harness.observer.robots[name].mode == "stopped" for name in names)


ROWS = (
    FaultRow(11, "clock an hour ahead, then correct again", "brake; buffers reset", dead_man, clock_ahead),
    FaultRow(11, "clock an hour back, then correct again", "brake; buffers reset", dead_man, clock_behind),
    FaultRow(
        12,
        "inference takes six ticks, or one more than the dead-man time",
        "the guard brakes; ticks are not queued",
        dead_man,
        overrun,
    ),
    FaultRow(13, "inference raises", "brake", dead_man, raises),
    FaultRow(13, "inference hangs", "the guard brakes", dead_man, hangs),
    FaultRow(14, "the policy gives NaN", "brake", tick, gives_nan),
    FaultRow(19, "parameters are set while active", "refused", None, parameter_change),
    FaultRow(20, "policy killed", "the guard brakes; restarts in idle, new epoch", dead_man, policy_killed),
    FaultRow(20, "policy terminated", "its last command is a brake", dead_man, policy_ended),
    FaultRow(
        21,
        "policy stopped for 2 s, then continued",
        "the guard brakes; old commands dropped",
        dead_man,
        policy_suspended,
    ),
    FaultRow(22, "guard killed", "the driver brakes; the policy goes idle", dead_man, guard_killed),
    FaultRow(23, "second publisher of commands", "the guard brakes", 0.5, second_publisher),
    FaultRow(
        23,
        "intruder sends commands",
        "the guard brakes; no command of it acts",
        0.5,
        intruding_commands,
        not_emulated=_NO_KEY,
    ),
    FaultRow(23, "intruder forges messages", "the robots drive on", None, forged_messages, not_emulated=_NO_KEY),
    FaultRow(24, "quality of service does not match", "not armed; topic and policy named", 2.0, qos_mismatch),
    FaultRow(29, "emergency stop, topic", "brake, latched, re-armed by hand", tick, estop_topic),
    FaultRow(29, "emergency stop, service", "brake, latched, re-armed by hand", tick, estop_service),
)
