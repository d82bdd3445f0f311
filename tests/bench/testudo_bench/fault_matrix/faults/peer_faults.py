"""Rows 6 to 10, 25 and 27: what a robot hears of the others is missing, late, old, contradictory or a lie."""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from geometry_msgs.msg import TwistStamped
from std_msgs.msg import UInt8MultiArray

from testudo_bench.fault_matrix.harness.fault_case import TICK_S, FaultFinding, FaultRow, brakes, goes_on
from testudo_bench.fault_matrix.harness.fleet_harness import TestBed
from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.shield.geometry import point_distance
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.links.wire import CommandReading, fill_command
from testudo_nodes.common.messages import envelope_bytes, envelope_message
from testudo_nodes.common.qos import OFFERED

_WATCH_S = 4.0
_MOMENT_S = 0.005
_LOSSY_S = 10.0
_LIE_S = 0.5
_OWN_SPEED_M_S = 0.01
_AT_REST_M = 0.002
_NEAR_M = 0.15
_BEFORE_S = 0.06
"""The truth comes every 20 ms and the contact is told a little later: so long before, nobody pushed yet."""


def _changed(change: Callable[[PeerMessage], PeerMessage | None]) -> Callable[[Any], Any]:
    """Return a relay's change of what the peers say."""

    def relay(_sender: str, _receiver: str, message: UInt8MultiArray) -> UInt8MultiArray | None:
        said = change(PeerMessage.decode(envelope_bytes(message)))
        return None if said is None else envelope_message(said.encode())

    return relay


def never_heard(bed: TestBed) -> FaultFinding:
    """r1 does not run when r0 begins a new life: r0 cannot be armed."""
    for label in ("r1/policy", "r0/policy"):
        bed.send(label, signal.SIGKILL)
    epoch = bed.observer.epochs["r0"]
    bed.restart("r0/policy")
    bed.wait(lambda: bed.observer.epochs["r0"] != epoch, "it did not come back")
    heard = bed.observer.robots["r0"]
    bed.wait(lambda: (heard.mode, heard.code) == ("idle", "peer_unheard"), "nobody said peer_unheard", 3.0)
    answer = bed.observer.ask("r0", "activate")
    bed.wait(answer.done, "no answer", 2.0)
    refused = not answer.result().success and heard.mode == "idle" and "r1" in heard.sentence
    bed.restart("r1/policy")
    return FaultFinding(refused, None, "" if refused else heard.sentence)


def _stays_in_its_lane(bed: TestBed, name: str, fault_s: float) -> FaultFinding:
    """Return whether a robot that misses a word comes to rest within the space that it owned then."""
    record = bed.observer.robots[name].record
    lanes = (record.reserved_segment_world, record.requested_segment_world)
    space = stop_tube_parameters(bed.fleet.robot(name).spec)
    bed.wait(lambda: bed.observer.rests(name, fault_s + 0.3), f"{name} did not come to rest", 10.0)
    time.sleep(max(0.0, fault_s + _WATCH_S - time.monotonic()))

    def lately_m() -> float:
        return math.dist(bed.observer.place(name, time.monotonic() - 0.5), bed.observer.place(name))

    # it creeps into the end of its lane, later on a machine that stalls
    bed.wait(lambda: lately_m() < _AT_REST_M, f"{name} did not come to rest", _WATCH_S)
    place = np.array(bed.observer.place(name))
    off_m = min(float(point_distance(place, *map(np.array, lane))) for lane in lanes if lane is not None)
    inside = off_m <= space.lane_m + space.tube_error_m
    return FaultFinding(
        inside, None, f"{1000 * off_m:.0f} mm off the middle of its lane, {1000 * lately_m():.0f} mm in 0.5 s"
    )


def lost(bed: TestBed) -> FaultFinding:
    """r0 is killed: r2, which goes after it in the fleet's order, gets no space without its word."""
    fault_s = bed.send("r0/policy", signal.SIGKILL)
    found = _stays_in_its_lane(bed, "r2", fault_s)
    bed.restart("r0/policy")
    return found


def one_way(bed: TestBed) -> FaultFinding:
    """r0 does not hear r1 any more, r1 hears r0: r1 gets no space without r0's word."""
    bed.observer.peers = _changed(lambda said: None if said.robot == "r1" else said)
    return _stays_in_its_lane(bed, "r1", time.monotonic())


def lossy(bed: TestBed) -> FaultFinding:
    """Half of the messages to r0 are lost, and the rest is up to 300 ms late."""
    rng, begin = random.Random(0), bed.observer.place("r0")[0]  # noqa: S311 -- no secret
    contacts = bed.observer.contacts

    def late(*said: Any) -> None:
        if rng.random() < 0.5:
            threading.Timer(rng.uniform(0, 0.3), bed.observer.deliver, said).start()

    bed.observer.peers = late
    time.sleep(_LOSSY_S)
    way_m = bed.observer.place("r0")[0] - begin
    hit = bed.observer.contacts - contacts
    return FaultFinding(not hit and way_m > 0.1, None, f"{hit} contacts, {way_m:.2f} m in {_LOSSY_S:g} s")


def replayed(bed: TestBed) -> FaultFinding | None:
    """Every message is followed by one from a second ago, of another place.

    It comes a moment later: of two at once a robot hears the newer one only (a depth of 1), and who drowns a peer's
    words makes it wait, which is no replay.
    """
    past: list[UInt8MultiArray] = []

    def replay(sender: str, receiver: str, message: Any) -> Any:
        past.append(message)
        for old in past[-100:-99]:
            threading.Timer(_MOMENT_S, bed.observer.deliver, (sender, receiver, old)).start()
        return message

    bed.observer.peers = replay
    return goes_on(bed, time.monotonic(), 2.5)


def squeezed(bed: TestBed) -> FaultFinding | None:
    """Both peers say to be upon r0, one on each side: from the first such tick on they leave it no room."""
    heard = bed.observer.robots["r0"]

    def beside(said: PeerMessage) -> PeerMessage:
        place = heard.record.control_point_world
        if place is None:  # the machine stalled: it does not know where it is
            return said
        x, y = place
        side = 0.05 if said.robot == "r1" else -0.05
        return replace(said, control_point_world=(x + side, y), control_velocity_world=(0.0, 0.0))

    bed.observer.peers = _changed(beside)

    def squeezes() -> float | None:
        record = heard.record
        points = record.neighbour_control_point_world if record.control_point_world else ()
        near = [math.dist(point, record.control_point_world) < _NEAR_M for point in points]
        return record.stamp_s if near and all(near) else None

    return brakes(bed, bed.wait(squeezes, "the peers are silent", 1.0))


def liar(bed: TestBed) -> FaultFinding:
    """r1 says to be 1 m from where tracking sees it: r0 trusts it no more."""

    def lies(said: PeerMessage) -> PeerMessage:
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

    bed.observer.peers = _changed(lies)
    fault_s = time.monotonic()
    heard, index = bed.observer.robots["r0"], bed.fleet.peers("r0").index("r1")
    # a tick that braked before it looked around has no neighbours
    bed.wait(lambda: any(heard.record.neighbour_untrusted[index : index + 1]), "it is still trusted", 3.0)
    found = FaultFinding(True, time.monotonic() - fault_s)
    bed.send("r0/policy", signal.SIGKILL)  # distrust lasts as long as the process
    bed.restart("r0/policy")
    return found


def chaser(bed: TestBed) -> FaultFinding:
    """r1 drives at r0 at full speed and says nothing: r0 stands when they touch."""
    for label in ("r1/policy", "r1/guard"):
        bed.send(label, signal.SIGKILL)
    spec = bed.fleet.robot("r1").spec
    wheel = bed.observer.node.create_publisher(TwistStamped, "/r1/cmd_vel", OFFERED["cmd_vel"])
    contacts, end_s, fastest = bed.observer.contacts, time.monotonic() + 12.0, 0.0
    try:
        while time.monotonic() < end_s:
            wheel.publish(fill_command(TwistStamped(), "r1", spec, _towards(bed, spec.speed_limit_m_s)))
            if bed.observer.contacts > contacts:
                fastest = _speed_before(bed, time.monotonic())
                break
            time.sleep(TICK_S)
    finally:
        bed.observer.node.destroy_publisher(wheel)
    touched = bed.observer.contacts > contacts
    return FaultFinding(
        touched and fastest < _OWN_SPEED_M_S,
        None,
        f"own speed {100 * fastest:.1f} cm/s" if touched else "they never touched",
    )


def _speed_before(bed: TestBed, contact_s: float) -> float:
    """Return how fast r0 drove [m/s] before it was touched, and perhaps pushed."""
    truth = bed.observer.robots["r0"].truth
    before = [
        reading.velocity[0] for at_s, reading in truth if contact_s - 2 * _BEFORE_S <= at_s <= contact_s - _BEFORE_S
    ]
    return max(map(abs, before), default=math.inf)


def _towards(bed: TestBed, speed_m_s: float) -> CommandReading:
    """Return the command with which r1 drives at r0."""
    truth = bed.observer.robots["r1"].truth[-1][1]
    (x, y), (px, py) = bed.observer.place("r0"), truth.position_world
    off = math.remainder(math.atan2(y - py, x - px) - truth.yaw, 2 * math.pi)
    turn = max(-2.0, min(2.0, 3.0 * off))
    return CommandReading(time.monotonic(), (speed_m_s if abs(off) < 0.5 else 0.0, turn))


ROWS = (
    FaultRow(6, "a neighbour was never heard", "not armed", None, never_heard),
    FaultRow(7, "neighbour lost", "rest within the own space", None, lost),
    FaultRow(8, "one-way loss", "rest within the own space", None, one_way),
    FaultRow(9, "50 % loss, up to 300 ms late", "no contact, progress", None, lossy),
    FaultRow(10, "replayed messages of a neighbour", "ignored, and driven on", None, replayed),
    FaultRow(25, "neighbours leave no room", "brake", TICK_S, squeezed),
    FaultRow(27, "a neighbour lies about its place", "not trusted", _LIE_S, liar, bed="tracked"),
    FaultRow(27, "a neighbour chases the robot", "own speed 0 at contact", None, chaser, bed="chased"),
)
