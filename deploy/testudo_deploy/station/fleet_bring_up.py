"""How a fleet is brought up: every robot armed, then all started; once, and never again by itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testudo_deploy.supervision.modes import READY, RESTING, Mode

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
    stopped: bool = False
    """Its emergency stop stands."""
    sentence: str = "not heard yet"
    asked_s: float = -float("inf")
    started: bool = False
    """It has been active: from then on it is the operator's."""
    flew: bool = False
    """It has left the ground: should it come down, nobody but an operator lets it take off again."""
    by_hand: bool = False
    """An operator stopped it or let go of it before: until he starts it, nobody else is started."""


class BringUp:
    """The order in which robots are armed and started; times are seconds on one injected clock."""

    def __init__(self, robots: Sequence[str], untrusted: Sequence[str] = (), *, starts: bool = True) -> None:
        """Begin; for untrusted robots, whom nobody answers, the others do not wait.

        Args:
            robots: names of all.
            untrusted: of them.
            starts: False: robots are armed, and people start them.
        """
        self._starts = starts
        self._halted = False
        """An emergency stop stood meanwhile: to take it back permits motion and begins none (ISO 13850, 4.1.4)."""
        self._robots = {name: _Robot(waited_for=name not in untrusted) for name in robots}

    @property
    def done(self) -> bool:
        """Return whether nothing is left to do: every robot has been active, or is ready to be started by people."""
        return all(robot.started or (self.needs_operator and robot.mode in READY) for robot in self._robots.values())

    @property
    def needs_operator(self) -> bool:
        """Return whether people start the robots: they asked for it, or pressed an emergency stop before the start."""
        return self._halted or not self._starts

    @property
    def missing(self) -> dict[str, str]:
        """Return by robot that is waited for why it is not where this would bring it."""
        return {
            name: robot.sentence
            for name, robot in self._robots.items()
            if robot.waited_for and not robot.started and not (self.needs_operator and robot.mode in READY)
        }

    def hear(
        self,
        name: str,
        mode: str,
        code: str,
        sentence: str,
        *,
        was_active: bool = False,
        flew: bool = False,
        by_hand: bool = False,
    ) -> None:
        """Take what a robot says of itself; no robot or mode says nothing.

        Args:
            name: of the robot.
            mode: its `Mode`.
            code: of what keeps it there.
            sentence: for people.
            was_active: it has been active in this life, maybe before anybody listened here.
            flew: the same of having left the ground.
            by_hand: an operator stopped it or let go of it.
        """
        robot = self._robots.get(name)
        if robot is None or mode not in Mode:
            return
        robot.mode, robot.ready, robot.sentence = Mode(mode), not code, sentence
        robot.stopped = code == "estop"
        self._halted |= robot.stopped
        robot.started |= was_active or robot.mode in (Mode.ACTIVE, Mode.HOLDING)
        robot.flew |= flew or robot.mode in (Mode.TAKE_OFF, Mode.HOLD)
        robot.by_hand |= by_hand

    def next_requests(self, now_s: float) -> list[tuple[str, Request]]:
        """Return what to ask of whom now; nobody is started before all are armed, or while an emergency stop stands."""
        if any(robot.stopped for robot in self._robots.values()):
            return []
        waiting = {name: robot for name, robot in self._robots.items() if not robot.started}
        all_armed = all(
            robot.mode in READY and robot.ready and not robot.by_hand for robot in waiting.values() if robot.waited_for
        )
        found = []
        for name, robot in waiting.items():
            wanted = self._wanted(robot, all_armed=all_armed)
            if wanted is not None and robot.ready and now_s - robot.asked_s >= RETRY_S:
                robot.asked_s = now_s
                found.append((name, wanted))
        return found

    def _wanted(self, robot: _Robot, *, all_armed: bool) -> Request | None:
        if robot.by_hand:
            return None
        if robot.mode in RESTING and not robot.flew:
            takes_off = robot.mode is Mode.DISARMED
            return None if self._halted and takes_off else Request.ACTIVATE
        return Request.START if robot.mode in READY and all_armed and not self.needs_operator else None
