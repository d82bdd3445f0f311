"""Whether an emergency stop reached everybody: collects what the guards of a fleet say after it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_STOPPED = "estop"
"""The guard's code, see `testudo_deploy.guard.command_guard`."""


@dataclass(frozen=True)
class EstopReply:
    """What is known of one robot."""

    robot: str
    stopped: bool
    """Its guard said, since it was asked, that it brakes for an emergency stop."""
    guard: str | None
    """Why its guard brakes; empty: it passes commands on; None: it was not heard."""
    mode: str
    """Of its supervisor; empty if it was not heard."""


class EstopConfirmation:
    """Collects the answers of a fleet; takes what a `StatusListener` hears."""

    def __init__(self, robots: Iterable[str] = ()) -> None:
        """Begin with nothing heard.

        Args:
            robots: that must confirm; others are added when they are heard.
        """
        self._guards: dict[str, list[str]] = {name: [] for name in robots}
        """The first code, which may be older than the stop, and the newest."""
        self._modes: dict[str, str] = {}

    def hear_guard(self, robot: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `guard_status`."""
        self._guards[robot] = [*self._guards.get(robot, [])[:1], values.get("code", "")]

    def hear_mode(self, robot: str, sentence: str, values: Mapping[str, str], received_s: float) -> None:
        """Take a status of the topic `mode`; a robot that has one should have a guard."""
        self._guards.setdefault(robot, [])
        self._modes[robot] = values.get("mode", "")

    def hear_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Nothing to do with a stop."""

    @property
    def answers(self) -> tuple[EstopReply, ...]:
        """Return all robots by name."""
        return tuple(self._answer(name, heard) for name, heard in sorted(self._guards.items()))

    @property
    def all_stopped(self) -> bool:
        """Return whether there are robots, and every one that is expected or was heard has confirmed."""
        return bool(self._guards) and all(answer.stopped for answer in self.answers)

    def _answer(self, name: str, heard: list[str]) -> EstopReply:
        # the first message may have been kept for late listeners since before the stop, by a guard that hangs
        stopped = len(heard) > 1 and heard[-1] == _STOPPED
        return EstopReply(name, stopped, heard[-1] if heard else None, self._modes.get(name, ""))


def unconfirmed_text(answers: Iterable[EstopReply]) -> str:
    """Return who did not confirm, as one sentence; empty if nobody is missing."""
    missing = [answer for answer in answers if not answer.stopped]
    if not missing:
        return ""
    heard = ", ".join(
        f"{answer.robot} ({'not heard' if answer.guard is None else 'its guard did not brake for it'})"
        for answer in missing
    )
    return f"not confirmed by {heard}: stop it by hand"
