"""The resident emergency stop of a fleet: its level, what holds it pressed, and the guards' confirmations; pure.

Times are seconds on one clock that the caller injects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from testudo_deploy.guard.command_guard import STOP_CODES

SCHEMA = "testudo/stop/1"
SILENT_S = 0.5  # guards report ten times a second: a confirmation older than this is none
ECHO_S = 1.0
"""After a press of its own, or a release, a level that is not pressed may for this time be older than a press: it
releases nothing."""
_OTHER = "another publisher"


@dataclass
class _Guard:
    code: str | None = None  # why it brakes; empty: it passes commands on; None: never heard
    heard_s: float = -float("inf")
    stopped_s: float | None = None  # when it first reported after the press that it is stopped


class ResidentStop:
    """The emergency stop of the robots of one fleet."""

    def __init__(self, robots: Iterable[str]) -> None:
        """Begin unpressed."""
        self.level = False
        """What the process publishes: true stops the fleet."""
        self.sources: list[str] = []
        """What pressed it since it was last released."""
        self._pressed_s = self._released_s = -float("inf")
        self._asked = False
        """The only program that pressed has released its level too early to be sure that this is newer."""
        self._held: set[str] = set()
        self._guards = {name: _Guard() for name in robots}

    def press(self, source: str, now_s: float, *, held: bool = False) -> bool:
        """Press the stop; return whether this source is new since the last release.

        A ``held`` source, such as a latching button, must let go before it is released.
        """
        if held:
            self._held.add(source)
        if not self.level:
            self.level, self._pressed_s, self.sources, self._asked = True, now_s, [], False
            for guard in self._guards.values():
                guard.stopped_s = None
        is_new = source not in self.sources
        if is_new:
            self.sources.append(source)
        return is_new

    def let_go(self, source: str) -> None:
        """Take that a held source is no longer pressed; the stop stays."""
        self._held.discard(source)

    def release(self, now_s: float) -> str:
        """Release the level; return why not, empty if it is released. Guards stay stopped until they are rearmed."""
        if self._held:
            return f"the emergency stop is still pressed: {', '.join(sorted(self._held))}"
        self.level, self.sources, self._released_s, self._asked = False, [], now_s, False
        return ""

    def hear_level(self, pressed: bool, now_s: float) -> bool:
        """Take the level of the topic from any publisher, this process included; return whether it was adopted.

        A stop that another program pressed stays after its end, for guards that start later, and ends when it releases
        it; after a short press `step` ends it.
        """
        if pressed == self.level:
            return False
        if pressed:
            self.press(_OTHER, now_s)
            return True
        if now_s - max(self._pressed_s, self._released_s) <= ECHO_S:
            self._asked = True
            return False
        return not self.release(now_s)

    def step(self, now_s: float) -> bool:
        """Return whether an early release takes effect now: nobody else has pressed since."""
        is_due = self._asked and now_s - max(self._pressed_s, self._released_s) > ECHO_S
        return is_due and self.level and self.sources == [_OTHER] and not self.release(now_s)

    def hear_guard(self, robot: str, values: Mapping[str, str], now_s: float) -> bool:
        """Take a status of a guard; return whether it confirms the stop, or ceases to."""
        guard = self._guards.get(robot)
        if guard is None:
            return False
        before = guard.code in STOP_CODES and guard.stopped_s is not None
        guard.code, guard.heard_s = values.get("code", "unreadable"), now_s
        stopped = self.level and guard.code in STOP_CODES
        if stopped and guard.stopped_s is None:
            guard.stopped_s = now_s
        return stopped != before

    def is_confirmed(self, now_s: float) -> bool:
        """Return whether every guard has confirmed the stop."""
        return self.level and all(self._is_stopped(guard, now_s) for guard in self._guards.values())

    def answer(self, now_s: float) -> dict[str, Any]:
        """Return the state as JSON values; ``after_s`` is the time from the press to a confirmation [s]."""
        return {
            "schema": SCHEMA,
            "pressed": self.level,
            "sources": list(self.sources) if self.level else [],
            "held": sorted(self._held),
            "robots": {
                name: {
                    "stopped": self._is_stopped(guard, now_s),
                    "guard": guard.code if now_s - guard.heard_s <= SILENT_S else None,
                    "after_s": None if guard.stopped_s is None else guard.stopped_s - self._pressed_s,
                }
                for name, guard in self._guards.items()
            },
        }

    def _is_stopped(self, guard: _Guard, now_s: float) -> bool:
        is_heard = now_s - guard.heard_s <= SILENT_S
        return self.level and is_heard and guard.code in STOP_CODES and guard.stopped_s is not None
