"""Collects the status messages of a fleet for operators: state of each robot, and confirmations of a stop; pure.

A robot publishes its mode twice a second and its guard status ten times a second (`diagnostic_msgs/DiagnosticStatus`
with named values). Rates are computed from the counters in them, so that no listener has to subscribe to commands.
Times are seconds on the clock of the listener.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from testudo_deploy.guard.command_guard import STOP_CODES

SILENT_S = 2.0  # a robot without a mode message for this time is silent
_RATE_BEGIN_S, _RATE_WINDOW_S = 0.4, 5.0  # least and greatest time over which a rate is averaged


@dataclass(frozen=True)
class RobotStatus:
    """Status of one robot; None where it was not received."""

    name: str
    mode: str  # mode of its supervisor; empty if none was received
    code: str  # stable code of what keeps it from driving; empty if nothing does
    sentence: str  # the same as a sentence
    guard: str | None  # code for which its guard brakes; empty while it passes commands on; None if it is silent
    heard_age_s: float | None  # since its last mode message
    pose_age_s: float | None  # of its newest pose
    peer_age_s: float | None  # of the oldest peer message that it uses
    tick_rate_hz: float | None
    command_rate_hz: float | None  # commands that reached the guard
    ticks: int | None
    late_ticks: int | None
    interventions: int | None  # ticks in which the shield changed or stopped the nominal command
    refused_commands: int | None
    battery: str  # as displayed: `83 %` or `11.9 V`; empty without a battery
    holds: str = ""  # why an active robot stands: arrived, paused, gives_way; empty if it drives

    @property
    def is_silent(self) -> bool:
        """Return whether no mode message came for `SILENT_S`."""
        return self.heard_age_s is None or self.heard_age_s > SILENT_S


class FleetStatus:
    """The newest status of all robots of a fleet."""

    def __init__(self, robots: Iterable[str] = ()) -> None:
        """Begin without any message; robots that are not named are added with their first message."""
        self._robots: dict[str, _StatusMessages] = {name: _StatusMessages() for name in robots}

    @property
    def is_silent(self) -> bool:
        """Return whether no message came from any robot."""
        return not any(robot.mode or robot.guard for robot in self._robots.values())

    @property
    def is_complete(self) -> bool:
        """Return whether mode, guard and both rates of every robot are known."""
        return bool(self._robots) and all(robot.is_complete for robot in self._robots.values())

    def on_mode(self, robot: str, sentence: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `mode`."""
        messages = self._of(robot)
        messages.mode, messages.sentence, messages.mode_s = dict(values), sentence, received_s
        messages.ticks.count(_whole(values.get("ticks")), received_s)

    def on_guard_status(self, robot: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `guard_status`."""
        messages = self._of(robot)
        messages.guard, messages.guard_s = dict(values), received_s
        messages.commands.count(_whole(values.get("commands")), received_s)

    def on_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Take a `sensor_msgs/BatteryState`: its share 0 to 1 and voltage [V]; NaN where it is not measured."""
        if math.isfinite(share):
            self._of(robot).battery = f"{100 * share:.0f} %"
        elif math.isfinite(voltage_v):
            self._of(robot).battery = f"{voltage_v:.1f} V"

    def robots(self, now_s: float) -> tuple[RobotStatus, ...]:
        """Return all robots by name."""
        return tuple(messages.status(name, now_s) for name, messages in sorted(self._robots.items()))

    def _of(self, robot: str) -> _StatusMessages:
        return self._robots.setdefault(robot, _StatusMessages())


def status_values(robots: Iterable[RobotStatus], domain_id: int) -> dict[str, Any]:
    """Return statuses as JSON values."""
    return {
        "schema": "testudo/status/1",
        "domain_id": domain_id,
        "robots": {robot.name: asdict(robot) | {"silent": robot.is_silent} for robot in robots},
    }


def silence_sentence(waited_s: float, domain_id: int, *, local: bool) -> str:
    """Return the message for an operator who receives nothing from any robot."""
    where = "on this machine only" if local else "on this network"
    other = "without --local for robots elsewhere" if local else "with --local for a fleet of `testudo up` here"
    return (
        f"no robot was heard for {waited_s:.0f} s on ROS_DOMAIN_ID={domain_id}, {where}. Is the fleet up, and in "
        f"this domain? `testudo up` prints its domain at the start: give it with --domain, and try {other}."
    )


class _StatusMessages:
    """The newest messages of one robot."""

    def __init__(self) -> None:
        self.mode: dict[str, str] = {}
        self.guard: dict[str, str] = {}
        self.sentence = self.battery = ""
        self.mode_s = self.guard_s = -math.inf
        self.ticks, self.commands = _RateMeter(), _RateMeter()

    @property
    def is_complete(self) -> bool:
        return None not in (self.ticks.rate_hz, self.commands.rate_hz)

    def status(self, name: str, now_s: float) -> RobotStatus:
        age_s = now_s - self.mode_s
        mode, guard = self.mode, self.guard
        return RobotStatus(
            name,
            mode.get("mode", ""),
            mode.get("code", ""),
            self.sentence,
            guard.get("code", "") if now_s - self.guard_s <= SILENT_S else None,
            age_s if math.isfinite(age_s) else None,
            _number(mode.get("pose_age_s")),
            _number(mode.get("peer_age_s")),
            self.ticks.rate_hz,
            self.commands.rate_hz,
            _whole(mode.get("ticks")),
            _whole(mode.get("late_ticks")),
            _whole(mode.get("interventions")),
            _whole(guard.get("refused")),
            self.battery or mode.get("battery", ""),
            mode.get("holds", ""),
        )


class _RateMeter:
    """Rate of a counter in another process."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._began = False

    @property
    def rate_hz(self) -> float | None:
        """Return the rate over the last `_RATE_WINDOW_S`; None before it was read over `_RATE_BEGIN_S`."""
        if not self._seen or self._seen[-1][0] - self._seen[0][0] < _RATE_BEGIN_S:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s)

    def count(self, value: int | None, now_s: float) -> None:
        # the first message may be a latched one of unknown age
        began, self._began = self._began, True
        if value is None or not began:
            return
        if self._seen and value < self._seen[-1][1]:  # the process was restarted
            self._seen.clear()
        self._seen.append((now_s, value))
        while now_s - self._seen[0][0] > _RATE_WINDOW_S and len(self._seen) > 2:
            self._seen.popleft()


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return None if value is None else round(value)


@dataclass(frozen=True)
class EstopReply:
    """Reaction of one robot to an emergency stop."""

    robot: str
    stopped: bool  # its guard has reported, since the request, that it brakes for an emergency stop
    guard: str | None  # code for which its guard brakes; empty: it passes commands on; None: no message came
    mode: str  # mode of its supervisor; empty if no message came
    after_s: float | None = None  # from the press to the confirmation, where a resident process measured it


class EstopConfirmation:
    """Collects the reactions of a fleet to an emergency stop; takes the same messages as `FleetStatus`."""

    def __init__(self, robots: Iterable[str] = ()) -> None:
        """Begin without any message; robots that are not named are added with their first message."""
        self._guards: dict[str, list[str]] = {name: [] for name in robots}
        """The first code, which may be older than the stop, and the newest."""
        self._modes: dict[str, str] = {}
        self._residents: dict[str, Mapping[str, Any]] = {}
        """By robot: what a resident process knows of its guard."""

    def expect(self, robots: Iterable[str]) -> None:
        """Add robots that must confirm."""
        for name in robots:
            self._guards.setdefault(name, [])

    def on_guard_status(self, robot: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `guard_status`."""
        self._guards[robot] = [*self._guards.get(robot, [])[:1], values.get("code", "")]

    def on_mode(self, robot: str, sentence: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `mode`; a robot with a mode must have a guard."""
        self._guards.setdefault(robot, [])
        self._modes[robot] = values.get("mode", "")

    def on_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Ignore the battery."""

    def on_resident(self, answer: Mapping[str, Any]) -> None:
        """Take the state of a resident emergency stop (`testudo_deploy.station.resident_stop.ResidentStop.answer`)."""
        for robot, found in answer.get("robots", {}).items():
            self._guards.setdefault(robot, [])
            if found["stopped"] or not self._residents.get(robot, {}).get("stopped"):
                self._residents[robot] = found

    @property
    def answers(self) -> tuple[EstopReply, ...]:
        """Return all robots by name."""
        return tuple(self._answer(name, codes) for name, codes in sorted(self._guards.items()))

    @property
    def all_stopped(self) -> bool:
        """Return whether there are robots, and every expected or found robot has confirmed."""
        return bool(self._guards) and all(answer.stopped for answer in self.answers)

    def _answer(self, name: str, codes: list[str]) -> EstopReply:
        # the first message may be latched from before the stop, by a guard that hangs
        resident = self._residents.get(name, {})
        stopped = (len(codes) > 1 and codes[-1] in STOP_CODES) or bool(resident.get("stopped"))
        code = codes[-1] if codes else resident.get("guard")
        return EstopReply(name, stopped, code, self._modes.get(name, ""), resident.get("after_s"))


def unconfirmed_text(answers: Iterable[EstopReply]) -> str:
    """Return a sentence with the robots that did not confirm; empty if all did."""
    missing = [answer for answer in answers if not answer.stopped]
    if not missing:
        return ""
    names = ", ".join(
        f"{answer.robot} ({'not heard' if answer.guard is None else 'its guard did not brake for it'})"
        for answer in missing
    )
    return f"not confirmed by {names}: stop it by hand"
