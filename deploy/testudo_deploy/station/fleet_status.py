"""What an operator wants to know of a fleet, from what its robots say of themselves; pure, on an injected clock.

A robot says its mode twice a second and its guard ten times a second (`diagnostic_msgs/DiagnosticStatus` with named
values). Rates are worked out from the counters in them, so that nobody has to listen to commands.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

SILENT_S = 2.0
"""A robot that said nothing for so long is silent."""
_RATE_BEGIN_S, _RATE_WINDOW_S = 0.4, 5.0
"""Rates are means over at least and at most so long."""


@dataclass(frozen=True)
class RobotStatus:
    """What is known of one robot; None where it was not said. Ages and rates by the listener's clock."""

    name: str
    mode: str
    """Of its supervisor; empty if it was never heard."""
    code: str
    """Stable code of what keeps it from driving; empty if nothing does."""
    sentence: str
    """The same for people."""
    guard: str | None
    """Why its guard brakes; empty while it passes commands on; None if it is silent."""
    heard_age_s: float | None
    """Since it last said its mode."""
    pose_age_s: float | None
    """Of its newest pose."""
    peer_age_s: float | None
    """Of the oldest announcement that it uses of its peers."""
    tick_rate_hz: float | None
    command_rate_hz: float | None
    """Commands that reached the guard."""
    ticks: int | None
    late_ticks: int | None
    interventions: int | None
    """Ticks in which the shield changed or stopped what the policy wanted."""
    refused_commands: int | None
    battery: str
    """As shown: `83 %` or `11.9 V`; empty without one."""

    @property
    def is_silent(self) -> bool:
        """Return whether it has not said its mode for `SILENT_S`."""
        return self.heard_age_s is None or self.heard_age_s > SILENT_S


class FleetStatus:
    """Collects what the robots of a fleet say."""

    def __init__(self, robots: Iterable[str] = ()) -> None:
        """Begin with nothing heard.

        Args:
            robots: that are expected; others are added when they are heard.
        """
        self._heard: dict[str, _Heard] = {name: _Heard() for name in robots}

    @property
    def is_silent(self) -> bool:
        """Return whether nothing was ever heard of any robot."""
        return not any(robot.mode or robot.guard for robot in self._heard.values())

    @property
    def is_complete(self) -> bool:
        """Return whether of every robot mode, guard and both rates are known."""
        return bool(self._heard) and all(robot.is_complete for robot in self._heard.values())

    def hear_mode(self, robot: str, sentence: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `mode`."""
        heard = self._of(robot)
        heard.mode, heard.sentence, heard.mode_s = dict(values), sentence, received_s
        heard.ticks.count(_whole(values.get("ticks")), received_s)

    def hear_guard(self, robot: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `guard_status`."""
        heard = self._of(robot)
        heard.guard, heard.guard_s = dict(values), received_s
        heard.commands.count(_whole(values.get("commands")), received_s)

    def hear_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Take a `sensor_msgs/BatteryState`: its share 0 to 1 and voltage; NaN where it is not measured."""
        if math.isfinite(share):
            self._of(robot).battery = f"{100 * share:.0f} %"
        elif math.isfinite(voltage_v):
            self._of(robot).battery = f"{voltage_v:.1f} V"

    def robots(self, now_s: float) -> tuple[RobotStatus, ...]:
        """Return all robots by name."""
        return tuple(heard.status(name, now_s) for name, heard in sorted(self._heard.items()))

    def _of(self, robot: str) -> _Heard:
        return self._heard.setdefault(robot, _Heard())


def status_values(robots: Iterable[RobotStatus], domain_id: int) -> dict[str, Any]:
    """Return statuses as JSON values."""
    return {
        "schema": "testudo/status/1",
        "domain_id": domain_id,
        "robots": {robot.name: asdict(robot) | {"silent": robot.is_silent} for robot in robots},
    }


def silence_sentence(waited_s: float, domain_id: int, *, local: bool) -> str:
    """Return what to tell somebody who hears no robot."""
    where = "on this machine only" if local else "on this network"
    other = "without --local for robots elsewhere" if local else "with --local for a fleet of `testudo up` here"
    return (
        f"no robot was heard for {waited_s:.0f} s on ROS_DOMAIN_ID={domain_id}, {where}. Is the fleet up, and in "
        f"this domain? `testudo up` says its domain at the start: give it with --domain, and try {other}."
    )


class _Heard:
    """The newest messages of one robot."""

    def __init__(self) -> None:
        self.mode: dict[str, str] = {}
        self.guard: dict[str, str] = {}
        self.sentence = self.battery = ""
        self.mode_s = self.guard_s = -math.inf
        self.ticks, self.commands = _Counter(), _Counter()

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
        )


class _Counter:
    """A counter that somebody else increments."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._began = False

    @property
    def rate_hz(self) -> float | None:
        """Return how fast it grew lately; None before it was read over `_RATE_BEGIN_S`."""
        if not self._seen or self._seen[-1][0] - self._seen[0][0] < _RATE_BEGIN_S:
            return None
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s)

    def count(self, value: int | None, now_s: float) -> None:
        # the first message was kept for late listeners, nobody knows how long
        began, self._began = self._began, True
        if value is None or not began:
            return
        if self._seen and value < self._seen[-1][1]:  # another life of the process
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
