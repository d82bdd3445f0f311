"""Rows 6 to 10, 25 and 27: peer messages are missing, late, old, contradictory or false."""

import math
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from std_msgs.msg import UInt8MultiArray

from testudo_bench.fault_matrix.harness.fault_case import (
    FaultFinding,
    FaultRow,
    brakes,
    held_for_late_messages,
    keeps_driving,
    reasons_to_stop,
    tick,
)
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness
from testudo_bench.fault_matrix.harness.other_commands import other_publisher
from testudo_bench.fault_matrix.harness.relay_observer import PeerChange
from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.shield.geometry import point_distance
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.links.wire import CommandReading
from testudo_nodes.common.messages import envelope_bytes, envelope_message

_WATCH_S = 4.0
_LOSSY_S, _PROGRESS_M = 10.0, 0.1
_DISTRUST_S = 0.5
_OWN_SPEED_M_S = 0.01
_AT_REST_M = 0.002
_SUSPECTED_S, _DRIVES_S = 2.0, 0.5
_NEAR_M, _BESIDE_M = 0.15, 0.05  # of our own robots: far beyond the way of one tick
_CONTACT_LATE_S = 0.02
"""True poses come every tick and contacts slightly later: so long, and two ticks, before it no robot is pushed."""
_PURSUES_S = 15.0
_BLIND = "robots that localise themselves do not see each other: `tracking` needs poses from outside"


def _changed(change: Callable[[PeerMessage], PeerMessage | None]) -> PeerChange:
    """Return a relay that changes peer messages."""

    def relay(_sender: str, _receiver: str, message: UInt8MultiArray) -> UInt8MultiArray | None:
        said = change(PeerMessage.decode(envelope_bytes(message)))
        return None if said is None else envelope_message(said.encode())

    return relay


def never_heard(harness: FleetHarness) -> FaultFinding:
    """r1 does not run when r0 restarts: r0 cannot be armed."""
    for label in ("r1/policy", "r0/policy"):
        harness.send(label, signal.SIGKILL)
    epoch = harness.observer.epochs["r0"]
    harness.restart("r0/policy")
    harness.wait_until_restarted("r0", epoch)
    heard = harness.observer.robots["r0"]
    harness.wait(lambda: (heard.mode, heard.code) == ("idle", "peer_unheard"), "peer_unheard was not reported", 3.0)
    answer = harness.observer.ask("r0", "activate")
    harness.wait(answer.done, "no answer", 2.0)
    refused = not answer.result().success and heard.mode == "idle" and "r1" in heard.sentence
    harness.restart("r1/policy")
    return FaultFinding(refused, None, "" if refused else heard.sentence)


def _stays_in_its_segment(harness: FleetHarness, name: str, fault_s: float) -> FaultFinding:
    """Return whether a robot without acknowledgement comes to rest within the space that it owned at the fault."""
    seen = harness.observer.robots[name]
    segments = [seen.record.reserved_segment_world, seen.record.requested_segment_world]
    # what a peer acknowledged just before the fault is its own one tick later
    after_s = fault_s + harness.tick_s
    harness.wait(lambda: seen.record.stamp_s >= after_s, f"{name} says nothing after the fault", 10.0)
    segments.append(seen.record.reserved_segment_world)
    space = stop_tube_parameters(harness.fleet.robot(name).spec)
    harness.wait(lambda: harness.observer.rests(name, fault_s + 0.3), f"{name} did not come to rest", 10.0)
    time.sleep(max(0.0, fault_s + _WATCH_S - time.monotonic()))

    def lately_m() -> float:
        return math.dist(harness.observer.place(name, time.monotonic() - 0.5), harness.observer.place(name))

    # it drives slowly to the end of its segment, later on a stalled machine
    harness.wait(lambda: lately_m() < _AT_REST_M, f"{name} did not come to rest", _WATCH_S)
    place = np.array(harness.observer.place(name))
    off_m = min(float(point_distance(place, *map(np.array, segment))) for segment in segments if segment is not None)
    inside = off_m <= space.segment_reach_m
    return FaultFinding(
        inside, None, f"{1000 * off_m:.0f} mm from the centre line of its segment, {1000 * lately_m():.0f} mm in 0.5 s"
    )


def lost(harness: FleetHarness) -> FaultFinding:
    """r0 is killed: r1 and r2 go on beside its space; when r1 is killed too, r2 gets no space any more."""
    fault_s = harness.send("r0/policy", signal.SIGKILL)

    def go_on() -> bool:
        return time.monotonic() > fault_s + _SUSPECTED_S and all(
            harness.observer.drives(name, _DRIVES_S) for name in ("r1", "r2")
        )

    harness.wait(go_on, "the majority does not go on", 10.0)
    found = _stays_in_its_segment(harness, "r2", harness.send("r1/policy", signal.SIGKILL))
    for name in ("r0", "r1"):
        harness.restart(f"{name}/policy")
    return found


def one_way(harness: FleetHarness) -> FaultFinding:
    """r0 does not receive r1, r1 receives r0: r1 gets no space without the acknowledgement of r0."""
    harness.observer.peers = _changed(lambda said: None if said.robot == "r1" else said)
    return _stays_in_its_segment(harness, "r1", time.monotonic())


def lossy(harness: FleetHarness) -> FaultFinding | None:
    """Half of the messages to r0 are lost, the rest are up to 300 ms late."""
    rng, begin = random.Random(0), harness.observer.place("r0")[0]  # noqa: S311 -- no secret
    contacts, begin_s = harness.observer.contacts, time.monotonic()

    def late(*said: Any) -> None:
        if rng.random() < 0.5:
            harness.observer.deliver_later(rng.uniform(0, 0.3), *said)

    harness.observer.peers = late
    time.sleep(_LOSSY_S)
    way_m = harness.observer.place("r0")[0] - begin
    hit = harness.observer.contacts - contacts
    moves = way_m > _PROGRESS_M
    if not hit and not moves and held_for_late_messages(harness, "r0", begin_s):
        return None
    why = "" if moves else f"; {reasons_to_stop(harness, 'r0', begin_s)}"
    return FaultFinding(not hit and moves, None, f"{hit} contacts, {way_m:.2f} m in {_LOSSY_S:g} s{why}")


def replayed(harness: FleetHarness) -> FaultFinding | None:
    """Every message is followed by one from a second ago, of another place.

    It comes half a tick later: of two simultaneous messages a robot receives the newer one only (queue depth 1), and
    displacing a peer's messages makes the robot wait, which is another fault.
    """
    past: list[UInt8MultiArray] = []
    second = round(len(harness.fleet.peers("r0")) / harness.tick_s)

    def replay(sender: str, receiver: str, message: Any) -> Any:
        past.append(message)
        for old in past[-second : len(past) - second + 1]:
            harness.observer.deliver_later(harness.tick_s / 2, sender, receiver, old)
        return message

    harness.observer.peers = replay
    return keeps_driving(harness, time.monotonic(), 2.5)


def no_room_left(harness: FleetHarness) -> FaultFinding | None:
    """Both peers announce places beside r0, one on each side: from the first such tick they leave it no room."""
    heard, scale = harness.observer.robots["r0"], harness.bed.scale
    beside_m, near_m = scale * _BESIDE_M, scale * _NEAR_M

    def beside(said: PeerMessage) -> PeerMessage:
        place = heard.record.control_point_world
        if place is None:  # the machine stalled: its pose is stale
            return said
        x, y = place
        side = beside_m if said.robot == "r1" else -beside_m
        return replace(said, control_point_world=(x + side, y), control_velocity_world=(0.0, 0.0))

    harness.observer.peers = _changed(beside)

    def enclosed_since() -> float | None:
        record = heard.record
        own = record.control_point_world
        near = [math.dist(point, own) < near_m for point in record.neighbour_control_point_world] if own else []
        return record.stamp_s if near and all(near) else None

    return brakes(harness, harness.wait(enclosed_since, "no message of the peers", 1.0), planned=True)


def false_position(harness: FleetHarness) -> FaultFinding:
    """r1 announces a place 1 m from where tracking measures it: r0 stops trusting it."""

    def displaced(said: PeerMessage) -> PeerMessage:
        if said.robot != "r1":
            return said

        def moved(point: tuple[float, ...]) -> tuple[float, ...]:
            return (point[0], point[1] + 1.0)

        return replace(
            said,
            control_point_world=moved(said.control_point_world),
            position_world=moved(said.position_world),
            reserved_segment_world=tuple(map(moved, said.reserved_segment_world)),
            requested_segment_world=tuple(map(moved, said.requested_segment_world)),
        )

    harness.observer.peers = _changed(displaced)
    fault_s = time.monotonic()
    heard, index = harness.observer.robots["r0"], harness.fleet.peers("r0").index("r1")
    # a tick that braked before it read its peers has no neighbours
    harness.wait(lambda: any(heard.record.neighbour_untrusted[index : index + 1]), "it is still trusted", 3.0)
    found = FaultFinding(True, time.monotonic() - fault_s)
    harness.send("r0/policy", signal.SIGKILL)  # distrust is latched for the life of the process
    harness.restart("r0/policy")
    return found


def pursuer(harness: FleetHarness) -> FaultFinding:
    """r1 drives at r0 at full speed and sends nothing: r0 is at rest at contact."""
    for label in ("r1/policy", "r1/guard"):
        harness.send(label, signal.SIGKILL)
    spec = harness.fleet.robot("r1").spec
    contacts, end_s, fastest = harness.observer.contacts, time.monotonic() + _PURSUES_S, 0.0
    with other_publisher(harness, "r1") as command:
        while time.monotonic() < end_s:
            command(_towards(harness, spec.speed_limit_m_s))
            if harness.observer.contacts > contacts:
                fastest = _speed_before(harness, time.monotonic(), 2 * spec.control_period_s + _CONTACT_LATE_S)
                break
            time.sleep(harness.tick_s)
    touched = harness.observer.contacts > contacts
    return FaultFinding(
        touched and fastest < _OWN_SPEED_M_S,
        None,
        f"own speed {100 * fastest:.1f} cm/s" if touched else "no contact occurred",
    )


def _speed_before(harness: FleetHarness, contact_s: float, before_s: float) -> float:
    """Return the speed of r0 [m/s] before the contact, which may push it."""
    truth = harness.observer.robots["r0"].truth
    before = [
        reading.velocity[0] for at_s, reading in truth if contact_s - 2 * before_s <= at_s <= contact_s - before_s
    ]
    return max(map(abs, before), default=math.inf)


def _towards(harness: FleetHarness, speed_m_s: float) -> CommandReading:
    """Return the command that drives r1 at r0."""
    truth = harness.observer.robots["r1"].truth[-1][1]
    (x, y), (px, py) = harness.observer.place("r0"), truth.position_world
    off = math.remainder(math.atan2(y - py, x - px) - truth.yaw, 2 * math.pi)
    turn = max(-2.0, min(2.0, 3.0 * off))
    return CommandReading(time.monotonic(), (speed_m_s if abs(off) < 0.5 else 0.0, turn))


ROWS = (
    FaultRow(6, "no message of a neighbour since start", "not armed", None, never_heard),
    FaultRow(7, "neighbours lost", "a majority goes on, one alone rests within its own space", None, lost),
    FaultRow(8, "one-way loss", "rest within the own space", None, one_way),
    FaultRow(9, "50 % loss, up to 300 ms late", "no contact, progress", None, lossy),
    FaultRow(10, "replayed messages of a neighbour", "ignored, drives on", None, replayed),
    FaultRow(25, "neighbours leave no room", "brake", tick, no_room_left),
    FaultRow(
        27,
        "a neighbour announces a false position",
        "not trusted",
        _DISTRUST_S,
        false_position,
        fleet="tracked",
        not_emulated=_BLIND,
    ),
    FaultRow(
        27,
        "a neighbour pursues the robot",
        "own speed 0 at contact",
        None,
        pursuer,
        fleet="pursued",
        not_emulated=f"{_BLIND}; so they drive on beside the last segment of a pursuer",
    ),
)
