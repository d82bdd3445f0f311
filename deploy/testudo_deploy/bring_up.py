"""How a fleet is brought up: every robot armed, then all started; once, and never again by itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testudo_deploy.modes import READY, RESTING, Mode

RETRY_S = 0.5
"""A request that was refused is repeated after so long."""


class Request(StrEnum):
    """What the station asks of a robot."""

    ACTIVATE = "activate"
    """The lifecycle transition: arm."""
    START = "start"


@dataclass
class _Robot:
    waited_for: bool = True
    mode: Mode | None = None
    ready: bool = False
    """Nothing speaks against the next step."""
    sentence: str = "not heard yet"
    asked_s: float = -float("inf")
    started: bool = False
    """It has been active: from then on it is the operator's."""
    flew: bool = False
    """It has left the ground: should it come down, nobody but an operator lets it take off again."""


class BringUp:
    """The order in which robots are armed and started; times are seconds on one injected clock."""

    def __init__(self, robots: Sequence[str], untrusted: Sequence[str] = ()) -> None:
        """Begin; for untrusted robots, whom nobody answers, the others do not wait."""
        self._robots = {name: _Robot(waited_for=name not in untrusted) for name in robots}

    @property
    def done(self) -> bool:
        """Return whether every robot has been active."""
        return all(robot.started for robot in self._robots.values())

    @property
    def missing(self) -> dict[str, str]:
        """Return by robot that is waited for why it has not been started."""
        return {name: robot.sentence for name, robot in self._robots.items() if robot.waited_for and not robot.started}

    def hear(self, name: str, mode: str, code: str, sentence: str) -> None:
        """Take what a robot says of its mode, and the code of what keeps it there; no robot or mode says nothing."""
        robot = self._robots.get(name)
        if robot is None or mode not in Mode:
            return
        robot.mode, robot.ready, robot.sentence = Mode(mode), not code, sentence
        robot.started |= robot.mode in (Mode.ACTIVE, Mode.HOLDING)
        robot.flew |= robot.mode in (Mode.TAKE_OFF, Mode.HOLD)

    def next_requests(self, now_s: float) -> list[tuple[str, Request]]:
        """Return what to ask of whom now; nobody is started before all are armed."""
        waiting = {name: robot for name, robot in self._robots.items() if not robot.started}
        all_armed = all(robot.mode in READY and robot.ready for robot in waiting.values() if robot.waited_for)
        found = []
        for name, robot in waiting.items():
            wanted = self._wanted(robot, all_armed=all_armed)
            if wanted is not None and robot.ready and now_s - robot.asked_s >= RETRY_S:
                robot.asked_s = now_s
                found.append((name, wanted))
        return found

    def _wanted(self, robot: _Robot, *, all_armed: bool) -> Request | None:
        if robot.mode in RESTING and not robot.flew:
            return Request.ACTIVATE
        return Request.START if robot.mode in READY and all_armed else None
