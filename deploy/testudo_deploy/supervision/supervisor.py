"""The mode machine of one robot: what it may do, why it stops, and how it restarts; pure, on one injected clock.

`modes.TRANSITIONS` holds every change of mode and `modes.WATCHDOGS` every reason to brake; an unknown request is
refused, and an unknown reason is treated as a fault. The supervisor only withdraws permission: it gives the reason for
which the control loop has to brake, and the loop also brakes for its own reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testudo_deploy.guard.command_guard import HEALTHY_S, STOP_CODES
from testudo_deploy.supervision.modes import (
    BEGINNING,
    EVENTS,
    READY,
    RESTING,
    TRANSITIONS,
    WATCHDOGS,
    Event,
    Mode,
    VehicleKind,
    code_of,
    severity_of,
    watchdog_of,
)

GUARD_LATE_S = 0.35  # a guard reports ten times a second; after this time without a report its robot holds
GUARD_GONE_S = 1.5  # after this time without a report its process has ended; a loaded machine can delay it for less
_WAITING = (*RESTING, *READY, Mode.TAKE_OFF)
"""Modes whose reason is what prevents the next step; it is cleared as soon as nothing is wrong."""


@dataclass(frozen=True)
class GuardReport:
    """The newest report of the guard."""

    received_s: float
    code: str  # why it brakes; empty while it passes commands on
    flight: str = ""  # of a robot that flies: the `flight_guard.GuardPhase` in which the guard is
    life: str = ""  # names the guard's process: it changes with a restart
    rearms: int = 0  # how often the emergency stop was reset in this process
    stops: int = 0  # how often it began in this process
    slows: bool = False  # it passes commands on slower than they came

    @classmethod
    def of(cls, values: Mapping[str, str], received_s: float) -> GuardReport:
        """Read the values of the topic `guard_status`; an unreadable report is a reason to brake."""
        counts = (values.get(key, "") for key in ("rearms", "stops"))
        return cls(
            received_s,
            values.get("code", "unreadable"),
            values.get("flight", ""),
            values.get("life", ""),
            *(int(count) if count.isdecimal() else 0 for count in counts),
            slows=values.get("speed_share", "1") != "1",
        )

    def reset_by(self, stop: GuardReport) -> bool:
        """Return whether an operator reset the emergency stop of an earlier report.

        A restarted guard does not know of the stop: a report without a stop is not a reset.
        """
        return self.code not in STOP_CODES and self.rearms > (stop.rearms if self.life == stop.life else 0)

    def loses_a_stop(self, before: GuardReport) -> bool:
        """Return whether an emergency stop began and ended since an earlier report, between two reports."""
        return self.code not in STOP_CODES and self.life == before.life and self.stops > before.stops

    def replaces(self, before: GuardReport) -> bool:
        """Return whether another guard sent it than an earlier report."""
        return bool(self.life and before.life) and self.life != before.life


@dataclass(frozen=True)
class RequestReply:
    """Whether a request was granted, and a sentence for the operator."""

    granted: bool
    code: str
    sentence: str


class Supervisor:
    """The mode of one robot; the control loop reads it before each tick and reports its findings after it."""

    def __init__(self, *, now_s: float, kind: VehicleKind = VehicleKind.GROUND) -> None:
        self.mode = BEGINNING[kind]
        self.since_s = now_s
        """When the mode began."""
        self.reason = ""
        """Why it is in this mode, ``code: details``; in a waiting mode, what prevents the next step."""
        self.was_active = self.flew = False
        """It was active, or in the air, since its process began."""
        self.by_hand = False
        """An operator stopped or deactivated it since then: only an operator arms or starts it."""
        self._kind, self._table = kind, TRANSITIONS[kind]
        self._healthy_since_s: float | None = None
        self._observed = False
        self._guard: GuardReport | None = None
        self._replaced = False
        """Another guard replaced the one before since the last tick."""
        self._stop: GuardReport | None = None
        """The guard's report of an emergency stop that was not reset."""
        self._mismatch = self._unknown_robots = self._policies = ""

    @property
    def order(self) -> str:
        """Return why the loop has to brake in any case, ``code: details``; empty if it may drive."""
        if self.mode is Mode.ACTIVE:
            return ""
        return f"{self.mode}: {self.reason}" if self.reason else str(self.mode)

    @property
    def sentence(self) -> str:
        """Return one sentence about the mode."""
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
        """Return the phase of flight that the guard reports; empty if it reports none."""
        return "" if self._guard is None else self._guard.flight

    def hear_guard(self, report: GuardReport) -> None:
        """Take the guard's report; after the reset of an emergency stop a robot on the ground is armed."""
        before, self._guard = self._guard, report
        self._replaced |= before is not None and report.replaces(before)
        if report.code in STOP_CODES:
            self._stop = report
        elif (self._stop is not None and report.reset_by(self._stop)) or (
            before is not None and report.loses_a_stop(before)
        ):
            self._stop = None
            self._go(Event.ESTOP, "estop", report.received_s)  # if no tick came while it stood
            self._go(Event.REARM, "", report.received_s)

    def see_mismatch(self, sentence: str) -> None:
        """Take the topic and policy that do not match a partner's; it stays until the node is configured again.

        A new partner that does not match does not affect the others, so that no robot that drives is stopped.
        """
        self._mismatch = self._mismatch or f"qos_mismatch: {sentence}"

    def see_unknown_robots(self, names: Sequence[str]) -> None:
        """Take the names of all robots outside of the fleet file that publish; they prevent arming and starting."""
        self._unknown_robots = f"stranger: {', '.join(names)}" if names else ""

    def see_policies(self, reason: str) -> None:
        """Take why the policy files of the fleet differ, see `PolicyAgreement`; it prevents arming and starting."""
        self._policies = reason

    def remember(self, before: Supervisor) -> None:
        """Copy from the previous configuration what still holds: operators started or stopped the robot."""
        self.was_active, self.flew, self.by_hand = before.was_active, before.flew, before.by_hand
        self._stop = before._stop

    def resume(self, now_s: float) -> None:
        """Count the guard's silence from now on, after this process was suspended and could not receive."""
        if self._guard is not None:
            self._guard = replace(self._guard, received_s=max(now_s, self._guard.received_s))

    def observe(self, now_s: float, *findings: str) -> None:
        """Take the findings of this tick beside the order, ``code: details`` each; empty ones are ignored."""
        self._observed = True
        others = (self._mismatch, self._unknown_robots, self._policies) if self.mode in (*RESTING, *READY) else ()
        reasons = [reason for reason in (self._guard_reason(now_s), *findings, *others) if reason]
        self._replaced = False
        if not reasons:
            self._be_healthy(now_s)
            return
        self._healthy_since_s = None
        reason = max(reasons, key=severity_of)  # the guard's, if both are equally severe
        event = EVENTS.get(watchdog_of(reason).reaction)
        if event is Event.LAND and self._kind is VehicleKind.GROUND:  # a robot on the ground stops
            event = Event.BRAKE_REASON
        if event is not None and self._go(event, reason, now_s):
            return
        if self.mode in (*_WAITING, Mode.HOLDING):
            self.reason = reason

    def arrive(self, event: Event, now_s: float) -> bool:
        """Take that the vehicle reached its start height or touched the ground; return whether the mode changed."""
        return event in (Event.REACH, Event.TOUCH) and self._go(event, "", now_s)

    def request(self, event: Event, now_s: float) -> RequestReply:
        """Answer an operator's request to arm, start, stop, land or deactivate."""
        if event not in (Event.ARM, Event.START, Event.STOP, Event.LAND, Event.DEACTIVATE):
            return RequestReply(False, "no_request", f"{event}: not a request of an operator")
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
        """Return what is wrong with the guard; that it brakes without commands is not a fault."""
        guard = self._guard
        if guard is None or now_s - guard.received_s > GUARD_GONE_S:
            return "guard_silent"
        if self._replaced:
            return "guard_silent: another one has come in its place"
        if now_s - guard.received_s > GUARD_LATE_S:
            return "guard_late"
        if guard.code in STOP_CODES:
            return guard.code
        if self._stop is not None:
            return "estop: its guard was restarted and does not know of it"
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
