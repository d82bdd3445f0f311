"""The supervisor of the vehicle (port 9): conditions for arming and flight, and for permanent motor cut-off.

States and transitions as documented for the firmware. Silence of set-points for 0.5 s makes it fly level, 2 s cut the
motors; after that, and after an emergency stop, it is locked until it is switched off and on.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from testudo_crazyflie.firmware.crtp_packets import SUPERVISOR, Packet

LEVEL_AFTER_S, CUT_AFTER_S = 0.5, 2.0
WATCHDOG_S = 1.0
_FLIES_ON_S = 2.0  # time after motor stop for which it counts as flying
_TILTED, _TILTED_S = 0.5, 1.0
_UPSIDE_DOWN, _UPSIDE_DOWN_S = -0.2, 0.1
_INFO, _COMMAND, _ANSWER = 0, 1, 0x80
_ARM, _RECOVER, _STOP, _WATCHDOG, _BITS = 1, 2, 3, 4, 12


class State(IntEnum):
    """States as numbered in the firmware."""

    NOT_INITIALISED = 0
    CHECKS_NOT_PASSED = 1
    CHECKS_PASSED = 2
    ARMING = 3
    READY = 4
    FLYING = 5
    LANDED = 6
    RESET = 7
    LEVEL_OUT = 8
    FREE_FALL = 9
    LOCKED = 10
    CRASHED = 11


_ARMED_STATES = (State.ARMING, State.READY, State.FLYING, State.LEVEL_OUT, State.LANDED)
_CAN_FLY = (State.READY, State.FLYING, State.LEVEL_OUT, State.LANDED)


@dataclass(frozen=True)
class _Seen:
    """Conditions for the next state."""

    armed: bool
    flies: bool
    tumbled: bool
    crashed: bool
    stopped: bool
    silent: bool
    silent_long: bool
    waited_long: bool
    landed_long: bool


def _always(_: _Seen) -> bool:
    return True


def _stopped(seen: _Seen) -> bool:
    return seen.stopped


_TABLE: dict[State, tuple[tuple[Callable[[_Seen], bool], State], ...]] = {
    State.NOT_INITIALISED: ((_always, State.CHECKS_NOT_PASSED),),
    State.CHECKS_NOT_PASSED: ((_stopped, State.FREE_FALL), (lambda seen: not seen.tumbled, State.CHECKS_PASSED)),
    State.CHECKS_PASSED: (
        (_stopped, State.FREE_FALL),
        (lambda seen: seen.tumbled, State.CHECKS_NOT_PASSED),
        (lambda seen: seen.armed, State.ARMING),
    ),
    State.ARMING: (
        (_stopped, State.FREE_FALL),
        (lambda seen: seen.tumbled or not seen.armed, State.CHECKS_NOT_PASSED),
        (_always, State.READY),
    ),
    State.READY: (
        (_stopped, State.FREE_FALL),
        (lambda seen: seen.tumbled or seen.waited_long or not seen.armed, State.CHECKS_NOT_PASSED),
        (lambda seen: seen.flies, State.FLYING),
    ),
    State.FLYING: (
        (lambda seen: seen.silent_long or seen.stopped, State.FREE_FALL),
        (lambda seen: seen.tumbled, State.CRASHED),
        (lambda seen: not seen.armed, State.RESET),
        (lambda seen: seen.silent, State.LEVEL_OUT),
        (lambda seen: not seen.flies, State.LANDED),
    ),
    State.LANDED: (
        (lambda seen: seen.landed_long or not seen.armed, State.RESET),
        (lambda seen: seen.flies, State.FLYING),
    ),
    State.RESET: ((_always, State.CHECKS_NOT_PASSED),),
    State.LEVEL_OUT: (
        (lambda seen: seen.silent_long or seen.tumbled or seen.stopped, State.FREE_FALL),
        (lambda seen: not seen.silent, State.FLYING),
    ),
    State.FREE_FALL: ((_always, State.LOCKED),),
    State.LOCKED: (),
    State.CRASHED: (
        (lambda seen: not seen.crashed and not seen.tumbled, State.CHECKS_NOT_PASSED),
        (_stopped, State.LOCKED),
    ),
}
"""Transitions of each state by condition, the first true one first."""


class FirmwareSupervisor:
    """State machine of one vehicle; times are seconds since it was switched on."""

    def __init__(self, *, auto_arm: bool) -> None:
        """Begin; ``auto_arm`` as on brushed vehicles, which need no arming."""
        self.state = State.NOT_INITIALISED
        self.auto_arm = auto_arm
        self.armed = self.crashed = self.tumbled = False
        self.emergency = False
        self.preflight_s, self.landed_s = 30.0, 3.0
        self.messages: list[str] = []
        """Unsent lines for the console."""
        self._watchdog_s: float | None = None
        self._thrust_s: float | None = None
        self._tilted_since_s: float | None = None
        self._armed_at_s = self._landed_at_s = 0.0

    @property
    def can_fly(self) -> bool:
        """Return whether set-points are followed."""
        return self.state in _CAN_FLY

    @property
    def motors_allowed(self) -> bool:
        """Return whether motors may run."""
        return self.state in _ARMED_STATES

    @property
    def is_flying(self) -> bool:
        """Return whether it reports flight."""
        return self.state in (State.FLYING, State.LEVEL_OUT)

    def bits(self, planner_active: bool, planner_finished: bool) -> int:
        """Return the bit field that clients read."""
        flags = (
            self.state == State.CHECKS_PASSED,
            self.armed,
            self.auto_arm,
            self.can_fly,
            self.is_flying,
            self.tumbled,
            self.state == State.LOCKED,
            self.crashed,
            planner_active,
            planner_finished,
        )
        return sum(1 << k for k, flag in enumerate(flags) if flag)

    def update(self, set_point_age_s: float, now_s: float, *, motors_on: bool, up: float) -> None:
        """Change to the state that follows from the conditions.

        ``up`` is the acceleration along the z axis of the body in units of gravity: 1 upright at rest, -1 upside down,
        0 in free fall.
        """
        self.tumbled = self._is_tumbled(up, now_s)
        if motors_on:
            self._thrust_s = now_s
        seen = _Seen(
            armed=self.armed,
            flies=self._thrust_s is not None and now_s - self._thrust_s < _FLIES_ON_S,
            tumbled=self.tumbled,
            crashed=self.crashed,
            stopped=self.emergency or (self._watchdog_s is not None and now_s >= self._watchdog_s + WATCHDOG_S),
            silent=set_point_age_s > LEVEL_AFTER_S,
            silent_long=set_point_age_s > CUT_AFTER_S,
            waited_long=now_s - self._armed_at_s > self.preflight_s,
            landed_long=now_s - self._landed_at_s > self.landed_s,
        )
        before = self.state
        self.state = next((state for holds, state in _TABLE[before] if holds(seen)), before)
        if self.state != before:
            # run the entry actions of a state
            if self.state == State.READY:
                self._armed_at_s = now_s
            elif self.state == State.LANDED:
                self._landed_at_s = now_s
            elif self.state == State.CRASHED:
                self.crashed = True
                self.messages.append("SUP: Crashed, recovery required\n")
            elif self.state == State.FREE_FALL:
                self.messages.append("SUP: free falling!\n")
            elif self.state == State.LOCKED:
                self.messages.append("SUP: Locked, reboot required\n")
            if self.state not in _ARMED_STATES:
                self.armed = False
            if self.auto_arm and self.state == State.CHECKS_PASSED:
                self.armed = True

    def handle(self, packet: Packet, bits: int, now_s: float) -> list[Packet]:
        """Return the answers to a packet of the client."""
        if not packet.data:
            return []
        command, rest, answer = packet.data[0], packet.data[1:], b""
        if packet.channel == _INFO and command == _BITS:
            answer = struct.pack("<H", bits)
        elif packet.channel == _INFO and 1 <= command < _BITS:
            answer = bytes([bits >> (command - 1) & 1])
        elif packet.channel == _COMMAND and command == _ARM and rest:
            answer = self.request_arming(bool(rest[0]))
        elif packet.channel == _COMMAND and command == _RECOVER:
            answer = self.request_recovery()
        elif packet.channel == _COMMAND and command == _STOP:
            self.emergency = True
        elif packet.channel == _COMMAND and command == _WATCHDOG:
            self.feed_watchdog(now_s)
        return [Packet(SUPERVISOR, packet.channel, bytes([_ANSWER | command]) + answer)] if answer else []

    def feed_watchdog(self, now_s: float) -> None:
        """Start or restart the timer of the emergency stop watchdog."""
        self._watchdog_s = now_s

    def request_arming(self, arm: bool) -> bytes:
        """Arm or disarm if allowed; return the two bytes of the answer: granted, armed."""
        granted = arm == self.armed or not arm or self.state == State.CHECKS_PASSED
        if granted:
            self.armed = arm
        return bytes([granted, self.armed])

    def request_recovery(self) -> bytes:
        """Clear a crash if the vehicle is upright; return the two bytes of the answer: granted, recovered."""
        granted = not self.crashed or not self.tumbled
        if granted:
            self.crashed = False
        return bytes([granted, not self.crashed])

    def _is_tumbled(self, up: float, now_s: float) -> bool:
        if up >= _TILTED or abs(up) < 0.1:  # upright, or falling freely
            self._tilted_since_s = None
            return False
        if self._tilted_since_s is None:
            self._tilted_since_s = now_s
        longest_s = _UPSIDE_DOWN_S if up < _UPSIDE_DOWN else _TILTED_S
        return now_s - self._tilted_since_s > longest_s
