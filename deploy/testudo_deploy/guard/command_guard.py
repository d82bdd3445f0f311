"""The guard between a robot's policy and its actuators: it passes commands on, or brakes; pure, on one injected clock.

It does not rely on the policy. It brakes on silence, on a command that is not finite or whose content is refused, on a
foreign publisher on its topics, while the hold-to-run switch is not held where the fleet has one, and on the emergency
stop; it also brakes at its start. One second of valid commands ends a brake; an emergency stop, and the loss of the
station where its heartbeat is required, are ended only by an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testudo_deploy.guard.hold_to_run import HoldToRun

if TYPE_CHECKING:  # the guard's process starts without NumPy
    from testudo_hardware.links.flight_link import FlightRequest

HEALTHY_S = 1.0
"""Commands must be valid for this time before they are passed on again (fault matrix: "latched until healthy 1 s")."""
EARLY_S = 0.01  # the brake must reach the actuators before the dead-man time ends: it is sent this much earlier
CLOCK_TOLERANCE_S = 0.002  # a stamp at most this far in the future is rounding
_ROUNDING = 1e-6  # tolerance of a yaw rate at its limit [rad/s]

SENTENCES = {
    "": "commands are passed on",
    "starting": "no sound commands for a second yet",
    "silence": "the policy is silent",
    "not_finite": "a command was not finite",
    "yaw_rate": "a command asks to turn faster than the vehicle and its link take",
    "limits": "a command is faster than the robot file permits",
    "no_pose": "the guard hears no pose of its robot that is young enough",
    "arena": "with a command the robot could not stop inside the arena, seen from the guard's own pose of it",
    "no_segment": "the guard hears no announcement of its robot to the peers that is young enough",
    "segment": "a command leaves the space that the robot's peers were told, seen from the guard's own pose of it",
    "scan_silent": "the laser scanner is silent, or sends too many unknown ranges",
    "scan_near": "somebody or something is nearer than the protective distance",
    "scan_blind": "a command moves the robot where its laser scanner does not look",
    "no_last_brake": "the process that would brake the base after the guard's death is not up yet",
    "clock": "a command's stamp is of another clock",
    "second_publisher": "another node publishes commands",
    "foreign_motion": "the braked robot moves: another program commands it, or something pushes it",
    "estop": "emergency stop; release it and call the rearm service",
    "not_held": "the hold-to-run switch is not held, or not heard; let go of it, then hold it",
    "station_unheard": "the station's heartbeat has not been heard yet; is its process emergency_stop up?",
    "station_lost": "the station's heartbeat was lost; once it is back, call the rearm service",
}
"""By code: every reason of the guard to brake."""
STOP_CODES = ("estop", "station_lost")
"""Codes that only an operator's rearm ends."""


@dataclass(frozen=True)
class GuardReply:
    """Whether an operator's request was granted, a sentence for the operator, and requests for the vehicle."""

    granted: bool
    sentence: str
    requests: tuple[FlightRequest, ...] = ()


class CommandGuard:
    """The guard of one robot; times are seconds on one clock that the caller injects."""

    def __init__(
        self,
        *,
        dimension: int,
        dead_man_s: float,
        yaw_rate_limit: float = 0.0,
        heartbeat_s: float = 0.0,
        hold_s: float = 0.0,
    ) -> None:
        """Start by braking.

        A command has ``dimension`` numbers and acts for ``dead_man_s`` at most; ``yaw_rate_limit`` [rad/s] is what
        vehicle and link accept with a velocity, 0 for none. Without a heartbeat of the station for ``heartbeat_s`` it
        stops; 0 requires none. It brakes while the hold-to-run switch was not heard held for ``hold_s``; 0 has none.
        """
        self._dimension, self._dead_man_s, self._yaw_rate_limit = dimension, dead_man_s, yaw_rate_limit
        self._heartbeat_s = heartbeat_s
        self._beat: tuple[str, float] | None = None
        """Content of the newest heartbeat, and when it came."""
        self._lost = False
        """The heartbeat was lost since the last rearm."""
        self.let_go_after_s = max(hold_s - EARLY_S, 0.0)
        """Time after a message of the hold-to-run switch by which the next must have come [s]; 0 without a switch."""
        self._switch = HoldToRun(self.let_go_after_s) if hold_s else None
        self._is_let_go = self._switch is not None
        """Robots may not move, as nobody holds the switch."""
        self._last_stamp_s = -float("inf")
        self._healthy_since_s: float | None = None
        self._invalid_code = "starting"
        """Why commands count as invalid; it stays until they have been valid for a second."""
        self._foreign: tuple[str, ...] = ()
        self._held = ""
        """Why nothing may pass now, whatever is commanded."""
        self._pressed: set[str] = set()
        """Sources on which the emergency stop is pressed; each is released separately."""
        self._stopped = False
        self.stops = self.rearms = 0
        """How often the emergency stop began and was reset in this process."""
        self.commands = self.refused = 0
        """Numbers of received commands and of those not passed on."""

    @property
    def code(self) -> str:
        """Return why it brakes; empty while it passes commands on."""
        if self._stopped:
            return "estop"
        if self._lost:
            return "station_lost"
        if self._foreign:
            return "second_publisher"
        if self._held:
            return self._held
        if self._is_let_go:
            return "not_held"
        return "station_unheard" if self._heartbeat_s and self._beat is None else self._invalid_code

    @property
    def is_stopped(self) -> bool:
        """Return whether only an operator ends the brake."""
        return self._stopped or self._lost

    @property
    def may_take_off(self) -> bool:
        """Return whether a vehicle may leave the ground, or go on climbing."""
        return not self.is_stopped and not self._is_let_go

    @property
    def sentence(self) -> str:
        """Return the reason as one plain sentence."""
        names = f": {', '.join(self._foreign)}" if self.code == "second_publisher" else ""
        return SENTENCES[self.code] + names

    @property
    def silent_after_s(self) -> float:
        """Return the time after a command by which the next must have arrived [s]."""
        return self._dead_man_s - EARLY_S

    @property
    def hears_station(self) -> bool:
        """Return whether the station's heartbeat matters: it is required, or carries the hold-to-run switch."""
        return bool(self._heartbeat_s) or self._switch is not None

    @property
    def held_s(self) -> float | None:
        """Return when the newest message came in which the hold-to-run switch was held; None while it is not held."""
        return None if self._switch is None else self._switch.held_s

    @property
    def lost_after_s(self) -> float:
        """Return the time after a heartbeat by which the next must have arrived [s]; 0 if none is required."""
        return max(self._heartbeat_s - EARLY_S, 0.0)

    def command(
        self,
        stamp_s: float,
        values: Sequence[float],
        now_s: float,
        *,
        yaw_rate: float = 0.0,
        lands: bool = False,
        refusal: str = "",
    ) -> bool:
        """Take a command (D,); return whether it is to be passed on.

        ``yaw_rate`` [rad/s] is sent with it. One that ``lands`` only makes a vehicle descend, and may pass during an
        emergency stop, and while nobody holds the switch. A ``refusal`` is the code of `command_checks.CommandChecks`
        for its content.
        """
        self.commands += 1
        self._watch_station(now_s)
        self._watch_switch(now_s)
        valid = self._yaw_rate_is_valid(yaw_rate) and self._is_valid_command(stamp_s, values, now_s)
        if valid and refusal:
            self._restart(refusal)
            valid = False
        unheard = self._heartbeat_s and self._beat is None
        brakes = bool(self._foreign or self._held or self._invalid_code or unheard)
        passes = valid and not brakes and (lands or not (self.is_stopped or self._is_let_go))
        self.refused += not passes
        return passes

    def watch(self, now_s: float) -> bool:
        """Detect silence; return whether to brake now."""
        if now_s - self._last_stamp_s >= self.silent_after_s and self._healthy_since_s is not None:
            self._restart("silence")
        self._watch_station(now_s)
        self._watch_switch(now_s)
        return bool(self.code)

    def hear_heartbeat(self, content: str, now_s: float) -> bool:
        """Take a heartbeat of the station; return whether it is a new one and not a repetition."""
        is_new = self._beat is None or content != self._beat[0]
        if is_new:
            self._watch_station(now_s)  # a gap that nobody has noticed yet
            self._beat = (content, now_s)
            if self._switch is not None:
                self._switch.hear(content, now_s)
                self._watch_switch(now_s)
        return is_new

    def hear_estop(self, pressed: bool, source: str) -> None:
        """Take the state of one source of the emergency stop, such as a topic; the stop stays after its release."""
        if pressed:
            self._pressed.add(source)
            self.stop()
        else:
            self._pressed.discard(source)

    def stop(self) -> None:
        """Latch the stop, as after a momentary press; sources that are pressed stay pressed."""
        self.stops += not self.is_stopped
        self._stopped = True

    def rearm(self, now_s: float = -float("inf")) -> GuardReply:
        """Reset the emergency stop, if it is released on all sources and the station's heartbeat is back."""
        if self._pressed:
            places = ", ".join(sorted(self._pressed))
            return GuardReply(False, f"rearm refused: the emergency stop is still pressed on {places}")
        if self._beat is not None and self._is_silent_station(now_s):
            return GuardReply(False, "rearm refused: the station's heartbeat is not heard")
        self._stopped = self._lost = False
        self.rearms += 1
        self._restart("starting")
        return GuardReply(True, "the emergency stop is reset")

    def see_publishers(self, foreign: Sequence[str]) -> None:
        """Take the names of all foreign nodes that publish on the guard's topics."""
        if self._foreign and not foreign:
            self._restart("starting")
        self._foreign = tuple(foreign)

    def hold(self, code: str) -> None:
        """Take why nothing may pass now, whatever is commanded; empty for nothing."""
        if self._held and not code:
            self._restart("starting")
        self._held = code

    def _is_silent_station(self, now_s: float) -> bool:
        return self._beat is not None and 0 < self.lost_after_s <= now_s - self._beat[1]

    def _watch_station(self, now_s: float) -> None:
        if self._is_silent_station(now_s) and not self._lost:
            self.stops += not self.is_stopped
            self._lost = True

    def _watch_switch(self, now_s: float) -> None:
        """Take whether somebody holds the switch; who holds it again waits for a second of valid commands."""
        let_go = self._switch is not None and not self._switch.is_held(now_s)
        if self._is_let_go and not let_go:
            self._restart("starting")
        self._is_let_go = let_go

    def see_foreign_motion(self) -> None:
        """Take that the robot moved while it was braked; commands must be valid for a second after the last time."""
        self._restart("foreign_motion")

    def _yaw_rate_is_valid(self, yaw_rate: float) -> bool:
        """Return whether a yaw rate may be passed on; NaN may not."""
        if abs(yaw_rate) <= self._yaw_rate_limit + _ROUNDING:
            return True
        self._restart("yaw_rate" if abs(yaw_rate) < float("inf") else "not_finite")
        return False

    def _is_valid_command(self, stamp_s: float, values: Sequence[float], now_s: float) -> bool:
        """Return whether a command is valid; the stamps of valid commands increase."""
        # a comparison with NaN is false, so that no such command passes
        finite = len(values) == self._dimension and all(abs(value) < float("inf") for value in values)
        if not finite or not abs(stamp_s) < float("inf"):
            self._restart("not_finite")
            return False
        if stamp_s > now_s + CLOCK_TOLERANCE_S or stamp_s < self._last_stamp_s - self._dead_man_s:
            self._restart("clock")
            return False
        if now_s - stamp_s >= self.silent_after_s or stamp_s <= self._last_stamp_s:
            return False  # a process that was suspended, or commands out of order
        self._last_stamp_s = stamp_s
        if self._healthy_since_s is None:
            self._healthy_since_s = now_s
        if now_s - self._healthy_since_s >= HEALTHY_S:
            self._invalid_code = ""
        return True

    def _restart(self, code: str) -> None:
        self._invalid_code, self._healthy_since_s = code, None
