"""The modes of one robot: what it may do, what makes it stop, and how it comes back; pure, on one injected clock.

`TRANSITIONS` holds every change of mode and `WATCHDOGS` every reason to brake; whatever is in neither is refused,
or treated as the worst. The supervisor only ever takes permission away: it says for which reason the control loop
has to brake, and the loop brakes by itself for its own doubts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from testudo_deploy.guard import HEALTHY_S

GUARD_SILENT_S = 0.35
"""A guard that said nothing for so long is gone; it speaks ten times a second."""


class Mode(StrEnum):
    """What a robot may do; it drives in ``active`` only."""

    IDLE = "idle"
    """Inactive: it listens and says where it stands; people may carry it."""
    ARMED = "armed"
    """All checks passed; it stands, owns its place, and may be started."""
    ACTIVE = "active"
    HOLDING = "holding"
    """Brakes for something that may pass by itself."""
    STOPPED = "stopped"
    """An operator stopped it; only an operator starts it again."""
    FAULT = "fault"
    """Something is broken; only deactivating leaves this mode."""


class Event(StrEnum):
    """What changes the mode."""

    ARM = "arm"
    START = "start"
    STOP = "stop"
    DEACTIVATE = "deactivate"
    DOUBT = "doubt"
    """A watchdog whose reaction is to hold."""
    HEALTHY = "healthy"
    """Nothing was wrong for `HEALTHY_S`."""
    ESTOP = "estop"
    REARM = "rearm"
    """The emergency stop was taken back by hand."""
    BREAK = "break"
    """A watchdog whose reaction is fault."""
    LOSE_GUARD = "lose_guard"


_RUNNING = (Mode.ARMED, Mode.ACTIVE, Mode.HOLDING)
TRANSITIONS: dict[tuple[Mode, Event], Mode] = {
    (Mode.IDLE, Event.ARM): Mode.ARMED,
    (Mode.ARMED, Event.START): Mode.ACTIVE,
    (Mode.ACTIVE, Event.DOUBT): Mode.HOLDING,
    (Mode.HOLDING, Event.HEALTHY): Mode.ACTIVE,
    (Mode.ACTIVE, Event.STOP): Mode.ARMED,
    (Mode.HOLDING, Event.STOP): Mode.ARMED,
    (Mode.STOPPED, Event.REARM): Mode.ARMED,
    **{(mode, Event.ESTOP): Mode.STOPPED for mode in _RUNNING},
    **{(mode, Event.BREAK): Mode.FAULT for mode in (*_RUNNING, Mode.STOPPED)},
    **{(mode, Event.LOSE_GUARD): Mode.IDLE for mode in (*_RUNNING, Mode.STOPPED)},
    **{(mode, Event.DEACTIVATE): Mode.IDLE for mode in Mode},
}
"""Every change of mode; what is not here does not happen."""


class Reaction(StrEnum):
    """What a watchdog does."""

    REFUSE = "refuse"
    """Keeps a robot from being armed or started; one that drives drives on."""
    BRAKE = "brake"
    """In this tick only."""
    HOLD = "hold"
    """Until nothing was wrong for `HEALTHY_S`."""
    STOP = "stop"
    """Until an operator re-arms."""
    FAULT = "fault"
    """Until the node is deactivated by hand."""
    DEACTIVATE = "deactivate"
    """The node becomes inactive; arming it again is checked anew."""


@dataclass(frozen=True)
class Watchdog:
    """One reason to brake."""

    code: str
    """Stable; diagnostics, records and tests name it."""
    reaction: Reaction
    sentence: str
    """For people: what is wrong and what to look at."""


_WATCHDOGS = (
    Watchdog("no_pose", Reaction.HOLD, "no pose has been heard; is the odometry topic published and its type right?"),
    Watchdog("stale_pose", Reaction.HOLD, "the last pose is older than the robot's pose_max_age"),
    Watchdog("pose_jump", Reaction.HOLD, "the pose jumped; a new place is believed once it is steady for 1 s"),
    Watchdog("pose_restless", Reaction.FAULT, "the pose jumped 3 times in 10 s; mend localisation, then deactivate"),
    Watchdog("away_from_start", Reaction.REFUSE, "put it on its initial pose and set its odometry to zero there"),
    Watchdog("clock_backwards", Reaction.HOLD, "the clock or a stamp went backwards"),
    Watchdog("peer_unheard", Reaction.HOLD, "a robot of the fleet has never been heard"),
    Watchdog("untrusted_unseen", Reaction.HOLD, "an untrusted robot has never been seen by the tracking system"),
    Watchdog("too_close", Reaction.HOLD, "it stands too close to another robot; move one of them"),
    Watchdog("peer_in_space", Reaction.HOLD, "another robot appeared where this one may drive; move one of them"),
    Watchdog("peer_unaware", Reaction.HOLD, "another robot has not answered since this one was re-localised"),
    Watchdog("policy_error", Reaction.HOLD, "the policy raised an error or gave no finite command"),
    Watchdog("shield_braked", Reaction.BRAKE, "the shield found no safe command"),
    Watchdog("internal_error", Reaction.HOLD, "the control loop raised an error"),
    Watchdog("brakes_weak", Reaction.FAULT, "the robot brakes worse than its file says"),
    Watchdog("no_response", Reaction.FAULT, "the robot does not move as commanded: wheel blocked, actuator saturated"),
    Watchdog("qos_mismatch", Reaction.REFUSE, "a partner's quality of service does not match; mend it, configure anew"),
    Watchdog("guard_brakes", Reaction.HOLD, "the guard does not pass commands on"),
    Watchdog("guard_silent", Reaction.DEACTIVATE, "the guard process is gone"),
    Watchdog("estop", Reaction.STOP, "emergency stop; release it and call the guard's rearm service"),
)
WATCHDOGS: dict[str, Watchdog] = {watchdog.code: watchdog for watchdog in _WATCHDOGS}
"""By code."""
_UNKNOWN = Watchdog("unknown", Reaction.FAULT, "a reason that no watchdog knows")
_SEVERITY = (Reaction.REFUSE, Reaction.BRAKE, Reaction.HOLD, Reaction.STOP, Reaction.DEACTIVATE, Reaction.FAULT)
_EVENTS = {
    Reaction.HOLD: Event.DOUBT,
    Reaction.STOP: Event.ESTOP,
    Reaction.FAULT: Event.BREAK,
    Reaction.DEACTIVATE: Event.LOSE_GUARD,
}


def code_of(reason: str) -> str:
    """Return the stable code of a reason, ``code: details``."""
    return reason.partition(":")[0].strip()


def _watchdog(reason: str) -> Watchdog:
    return WATCHDOGS.get(code_of(reason), _UNKNOWN)


def _severity(reason: str) -> int:
    return _SEVERITY.index(_watchdog(reason).reaction)


@dataclass(frozen=True)
class GuardReport:
    """What the guard said last."""

    received_s: float
    code: str
    """Why it brakes; empty while it passes commands on."""


@dataclass(frozen=True)
class Answer:
    """Whether a request was granted, and what to tell the operator."""

    granted: bool
    code: str
    sentence: str


class Supervisor:
    """The mode of one robot. Its control loop asks it before each tick and tells it what it found."""

    def __init__(self, *, now_s: float) -> None:
        self.mode = Mode.IDLE
        self.since_s = now_s
        """When the mode began."""
        self.reason = ""
        """Why it is in this mode, ``code: details``; of an idle or armed robot, what would keep it from driving."""
        self._healthy_since_s: float | None = None
        self._observed = False
        self._guard: GuardReport | None = None
        self._mismatch = ""

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
            return {Mode.IDLE: "inactive", Mode.ARMED: "ready to be started"}.get(self.mode, str(self.mode))
        return f"{self.reason}: {WATCHDOGS[code].sentence}" if code in WATCHDOGS else self.reason

    def hear_guard(self, report: GuardReport) -> None:
        """Take the guard's report; of an emergency stop that was taken back the robot becomes armed."""
        before, self._guard = self._guard, report
        if self.mode is Mode.STOPPED and before is not None and before.code == "estop" != report.code:
            self._go(Event.REARM, "", report.received_s)

    def see_mismatch(self, sentence: str) -> None:
        """Take the topic and the policy in which a partner does not match; it stays until the node is configured anew.

        A newcomer that does not match takes nothing from the partners that do, so that nobody who drives is stopped.
        """
        self._mismatch = self._mismatch or f"qos_mismatch: {sentence}"

    def wake(self, now_s: float) -> None:
        """Count the guard's silence from now on: this process slept and could not hear it."""
        if self._guard is not None:
            self._guard = replace(self._guard, received_s=max(now_s, self._guard.received_s))

    def observe(self, now_s: float, doubt: str) -> None:
        """Take what the control loop found in this tick besides its orders, ``code: details`` or empty."""
        self._observed = True
        mismatch = self._mismatch if self.mode in (Mode.IDLE, Mode.ARMED) else ""
        reasons = [reason for reason in (self._guard_reason(now_s), doubt, mismatch) if reason]
        if not reasons:
            self._be_healthy(now_s)
            return
        self._healthy_since_s = None
        reason = max(reasons, key=_severity)  # the guard's where both weigh the same
        event = _EVENTS.get(_watchdog(reason).reaction)
        if event is not None and self._go(event, reason, now_s):
            return
        if self.mode in (Mode.IDLE, Mode.ARMED, Mode.HOLDING):
            self.reason = reason

    def request(self, event: Event, now_s: float) -> Answer:
        """Answer an operator who asks to arm, start, stop or deactivate."""
        if (self.mode, event) not in TRANSITIONS:
            return Answer(False, "wrong_mode", f"{event}: the robot is {self.mode}; it must be "
                          + " or ".join(sorted(mode for mode, known in TRANSITIONS if known is event)))
        if event in (Event.ARM, Event.START):
            if not self._observed or self._guard is None:
                missing = "the guard has not been heard" if self._guard is None else "nothing has been looked at yet"
                return Answer(False, "not_ready", f"{event}: {missing}; try again in a second")
            if self.reason:
                return Answer(False, code_of(self.reason), f"{event} refused: {self.sentence}")
        self._go(event, "", now_s)
        return Answer(True, "", f"{event}: the robot is {self.mode}")

    def _be_healthy(self, now_s: float) -> None:
        if self.mode in (Mode.IDLE, Mode.ARMED):
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
        if guard.code == "estop":
            return "estop"
        waits = guard.code in ("starting", "silence") and self.mode is Mode.IDLE
        return "" if waits or not guard.code else f"guard_brakes: {guard.code}"

    def _go(self, event: Event, reason: str, now_s: float) -> bool:
        """Change the mode if the table knows the change."""
        target = TRANSITIONS.get((self.mode, event))
        if target is None:
            return False
        if target is not self.mode:
            self.since_s = now_s
        self.mode, self.reason = target, reason
        return True
