"""The modes of one robot: what it may do, what makes it stop, and how it comes back; pure, on one injected clock.

`modes.TRANSITIONS` holds every change of mode and `modes.WATCHDOGS` every reason to brake; whatever is in neither is
refused, or treated as the worst. The supervisor only ever takes permission away: it says for which reason the control
loop has to brake, and the loop brakes by itself for its own doubts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testudo_deploy.guard.command_guard import HEALTHY_S
from testudo_deploy.supervision.modes import (
    BEGINNING,
    EVENTS,
    READY,
    RESTING,
    TRANSITIONS,
    WATCHDOGS,
    Event,
    Mode,
    Reaction,
    VehicleKind,
    Watchdog,
    code_of,
    severity_of,
    watchdog_of,
)

__all__ = [
    "GUARD_SILENT_S",
    "HEALTHY_S",
    "TRANSITIONS",
    "WATCHDOGS",
    "Event",
    "GuardReport",
    "Mode",
    "Reaction",
    "RequestReply",
    "Supervisor",
    "VehicleKind",
    "Watchdog",
    "code_of",
]

GUARD_SILENT_S = 0.35
"""A guard that said nothing for so long is gone; it speaks ten times a second."""
_WAITING = (*RESTING, *READY, Mode.TAKE_OFF)
"""Modes whose reason is what would keep the robot from going on; it is gone as soon as nothing is wrong."""


@dataclass(frozen=True)
class GuardReport:
    """What the guard said last."""

    received_s: float
    code: str
    """Why it brakes; empty while it passes commands on."""
    flight: str = ""
    """Of a robot that flies: the `flight_guard.GuardPhase` in which the guard is."""
    life: str = ""
    """Names the guard's process: one that was started anew has another."""
    rearms: int = 0
    """How often the emergency stop was taken back in this life."""
    stops: int = 0
    """How often it began in this life."""

    @classmethod
    def of(cls, values: Mapping[str, str], received_s: float) -> GuardReport:
        """Read the values of the topic `guard_status`; what cannot be read is a reason to brake."""
        counts = (values.get(key, "") for key in ("rearms", "stops"))
        return cls(
            received_s,
            values.get("code", "unreadable"),
            values.get("flight", ""),
            values.get("life", ""),
            *(int(count) if count.isdecimal() else 0 for count in counts),
        )

    def reset_by(self, stop: GuardReport) -> bool:
        """Return whether the emergency stop of an earlier report was taken back by hand.

        A guard that was started anew knows nothing of it: that it does not speak of a stop says nothing.
        """
        return self.code != "estop" and self.rearms > (stop.rearms if self.life == stop.life else 0)

    def loses_a_stop(self, before: GuardReport) -> bool:
        """Return whether an emergency stop came and went since an earlier report, as while nobody listened."""
        return self.code != "estop" and self.life == before.life and self.stops > before.stops

    def replaces(self, before: GuardReport) -> bool:
        """Return whether it is of another guard than an earlier report."""
        return bool(self.life and before.life) and self.life != before.life


@dataclass(frozen=True)
class RequestReply:
    """Whether a request was granted, and what to tell the operator."""

    granted: bool
    code: str
    sentence: str


class Supervisor:
    """The mode of one robot. Its control loop asks it before each tick and tells it what it found."""

    def __init__(self, *, now_s: float, kind: VehicleKind = VehicleKind.GROUND) -> None:
        self.mode = BEGINNING[kind]
        self.since_s = now_s
        """When the mode began."""
        self.reason = ""
        """Why it is in this mode, ``code: details``; of one that waits, what would keep it from going on."""
        self.was_active = self.flew = False
        """It has been active, or in the air, since its process began."""
        self.by_hand = False
        """An operator stopped it or let go of it since then: nobody else arms or starts it."""
        self._kind, self._table = kind, TRANSITIONS[kind]
        self._healthy_since_s: float | None = None
        self._observed = False
        self._guard: GuardReport | None = None
        self._replaced = False
        """Another guard has come in the place of the one before, since the last tick."""
        self._stop: GuardReport | None = None
        """The guard's word of an emergency stop that nobody has taken back."""
        self._mismatch = self._strangers = ""

    @property
    def order(self) -> str:
        """Return why the loop has to brake whatever it finds, ``code: details``; empty if it may drive."""
        if self.mode is Mode.ACTIVE:
            return ""
        return f"{self.mode}: {self.reason}" if self.reason else str(self.mode)

    @property
    def sentence(self) -> str:
        """Return one plain sentence about the mode."""
        code = code_of(self.reason)
        if not code:
            plain = {
                Mode.IDLE: "inactive",
                Mode.ARMED: "ready to be started",
                Mode.HOLD: "hovers, ready to be started",
                Mode.DISARMED: "on the ground, motors off",
                Mode.TAKE_OFF: "climbs to its start height",
                Mode.LAND: "comes down",
            }
            return plain.get(self.mode, str(self.mode))
        return f"{self.reason}: {WATCHDOGS[code].sentence}" if code in WATCHDOGS else self.reason

    @property
    def guard_flight(self) -> str:
        """Return in which phase of flight the guard said that it is; empty if it did not."""
        return "" if self._guard is None else self._guard.flight

    def hear_guard(self, report: GuardReport) -> None:
        """Take the guard's report; of an emergency stop that was taken back a robot on the ground becomes armed."""
        before, self._guard = self._guard, report
        self._replaced |= before is not None and report.replaces(before)
        if report.code == "estop":
            self._stop = report
        elif (self._stop is not None and report.reset_by(self._stop)) or (
            before is not None and report.loses_a_stop(before)
        ):
            self._stop = None
            self._go(Event.ESTOP, "estop", report.received_s)  # if no tick came while it stood
            self._go(Event.REARM, "", report.received_s)

    def see_mismatch(self, sentence: str) -> None:
        """Take the topic and the policy in which a partner does not match; it stays until the node is configured anew.

        A newcomer that does not match takes nothing from the partners that do, so that nobody who drives is stopped.
        """
        self._mismatch = self._mismatch or f"qos_mismatch: {sentence}"

    def see_unknown_robots(self, names: Sequence[str]) -> None:
        """Take the names of all robots that speak and are not in the fleet file; they keep from arming and starting."""
        self._strangers = f"stranger: {', '.join(names)}" if names else ""

    def remember(self, before: Supervisor) -> None:
        """Take over from the configuration before what stays true of the robot: that people started or stopped it."""
        self.was_active, self.flew, self.by_hand = before.was_active, before.flew, before.by_hand
        self._stop = before._stop

    def wake(self, now_s: float) -> None:
        """Count the guard's silence from now on: this process slept and could not hear it."""
        if self._guard is not None:
            self._guard = replace(self._guard, received_s=max(now_s, self._guard.received_s))

    def observe(self, now_s: float, *doubts: str) -> None:
        """Take what was found in this tick besides the orders, ``code: details`` each; empty ones say nothing."""
        self._observed = True
        company = (self._mismatch, self._strangers) if self.mode in (*RESTING, *READY) else ()
        reasons = [reason for reason in (self._guard_reason(now_s), *doubts, *company) if reason]
        self._replaced = False
        if not reasons:
            self._be_healthy(now_s)
            return
        self._healthy_since_s = None
        reason = max(reasons, key=severity_of)  # the guard's where both weigh the same
        event = EVENTS.get(watchdog_of(reason).reaction)
        if event is Event.LAND and self._kind is VehicleKind.GROUND:  # what cannot land stands
            event = Event.BRAKE_REASON
        if event is not None and self._go(event, reason, now_s):
            return
        if self.mode in (*_WAITING, Mode.HOLDING):
            self.reason = reason

    def arrive(self, event: Event, now_s: float) -> bool:
        """Take that the vehicle has reached its start height, or touched the ground; return whether that meant much."""
        return event in (Event.REACH, Event.TOUCH) and self._go(event, "", now_s)

    def request(self, event: Event, now_s: float) -> RequestReply:
        """Answer an operator who asks to arm, start, stop, land or deactivate."""
        if event not in (Event.ARM, Event.START, Event.STOP, Event.LAND, Event.DEACTIVATE):
            return RequestReply(False, "no_request", f"{event}: nobody can ask for that")
        self.by_hand |= event in (Event.STOP, Event.LAND, Event.DEACTIVATE) and self.mode not in RESTING
        if (self.mode, event) not in self._table:
            modes = sorted(mode for mode, known in self._table if known is event)
            must = f"it must be {' or '.join(modes)}" if modes else "it does not fly by phases"
            return RequestReply(False, "wrong_mode", f"{event}: the robot is {self.mode}; {must}")
        if event in (Event.ARM, Event.START):
            if not self._observed or self._guard is None:
                missing = "the guard has not been heard" if self._guard is None else "nothing has been looked at yet"
                return RequestReply(False, "not_ready", f"{event}: {missing}; try again in a second")
            if self.reason:
                return RequestReply(False, code_of(self.reason), f"{event} refused: {self.sentence}")
        self._go(event, "", now_s)
        return RequestReply(True, "", f"{event}: the robot is {self.mode}")

    def _be_healthy(self, now_s: float) -> None:
        if self.mode in _WAITING:
            self.reason = ""
        if self._healthy_since_s is None:
            self._healthy_since_s = now_s
        if now_s - self._healthy_since_s >= HEALTHY_S:
            self._go(Event.HEALTHY, "", now_s)

    def _guard_reason(self, now_s: float) -> str:
        """Return what is wrong with the guard; it brakes for silence while nobody commands, which is no fault."""
        guard = self._guard
        if guard is None or now_s - guard.received_s > GUARD_SILENT_S:
            return "guard_silent"
        if self._replaced:
            return "guard_silent: another one has come in its place"
        if guard.code == "estop":
            return "estop"
        if self._stop is not None:
            return "estop: its guard was started anew and knows nothing of it"
        waits = guard.code in ("starting", "silence") and self.mode in (*RESTING, Mode.TAKE_OFF)
        return "" if waits or not guard.code else f"guard_brakes: {guard.code}"

    def _go(self, event: Event, reason: str, now_s: float) -> bool:
        """Change the mode if the table knows the change."""
        target = self._table.get((self.mode, event))
        if target is None:
            return False
        if target is not self.mode:
            self.since_s = now_s
        self.mode, self.reason = target, reason
        self.was_active |= target is Mode.ACTIVE
        self.flew |= target is Mode.TAKE_OFF
        self.by_hand |= event is Event.ESTOP
        return True
