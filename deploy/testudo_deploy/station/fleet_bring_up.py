"""Bring-up of a fleet: arm every robot, then start all of them, each at most once; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testudo_deploy.guard.command_guard import STOP_CODES
from testudo_deploy.supervision.modes import READY, RESTING, Mode

RETRY_S = 0.5  # time after which a refused request is repeated
UNANSWERED_S = 3.0
"""Time after which an unanswered request is withdrawn, and may be sent again; until then DDS repeats a lost one."""


class Request(StrEnum):
    """A request of the station to a robot."""

    ACTIVATE = "activate"  # the lifecycle transition: arm
    START = "start"


@dataclass
class _Robot:
    trusted: bool = True  # the start of the others waits for it
    lost: frozenset[str] = frozenset()  # the robots that it knows as declared lost
    mode: Mode | None = None
    ready: bool = False  # it reports no reason against the next step
    stopped: bool = False  # its emergency stop is active
    sentence: str = "not heard yet"
    asked_s: float = -float("inf")
    under_way: Request | None = None  # sent, and neither answered nor withdrawn
    started: bool = False  # it has been active: from then on only an operator starts it
    flew: bool = False  # it has left the ground: after a landing only an operator lets it take off again
    by_hand: bool = False
    """An operator stopped or deactivated it: until the operator starts it, no other robot is started."""


class BringUp:
    """The order in which robots are armed and started; times are seconds on one injected clock."""

    def __init__(self, robots: Sequence[str], untrusted: Sequence[str] = (), *, starts: bool = True) -> None:
        """Begin.

        The others do not wait for ``untrusted`` robots. Without ``starts`` robots are armed only; an operator starts
        them.
        """
        self._starts = starts
        self._halted = False
        """An emergency stop was active: its reset permits motion and must not start it (ISO 13850, 4.1.4)."""
        self._robots = {name: _Robot(trusted=name not in untrusted) for name in robots}

    @property
    def done(self) -> bool:
        """Return whether every robot has been active, or is armed and waits for an operator."""
        return all(robot.started or (self.needs_operator and robot.mode in READY) for robot in self._robots.values())

    @property
    def needs_operator(self) -> bool:
        """Return whether an operator must start the robots: by choice, or after an emergency stop before the start."""
        return self._halted or not self._starts

    @property
    def missing(self) -> dict[str, str]:
        """Return, for each required robot that is not brought up, the reason."""
        return {
            name: robot.sentence
            for name, robot in self._robots.items()
            if self._required(name) and not robot.started and not (self.needs_operator and robot.mode in READY)
        }

    def on_mode(
        self,
        name: str,
        mode: str,
        code: str,
        sentence: str,
        *,
        was_active: bool = False,
        flew: bool = False,
        by_hand: bool = False,
        lost: str = "",
    ) -> None:
        """Take the mode of a robot; an unknown robot or mode is ignored.

        ``code`` is that of the reason that keeps it in this `Mode`, empty without one, and ``sentence`` its text. It
        ``was_active`` or ``flew`` since its configuration, perhaps before this station was started; ``by_hand``: an
        operator stopped or deactivated it. ``lost`` are the names of the robots that it knows as declared lost.
        """
        robot = self._robots.get(name)
        if robot is None or mode not in Mode:
            return
        robot.mode, robot.ready, robot.sentence = Mode(mode), not code, sentence
        robot.stopped = code in STOP_CODES
        self._halted |= robot.stopped
        robot.started |= was_active or robot.mode in (Mode.ACTIVE, Mode.HOLDING)
        robot.flew |= flew or robot.mode in (Mode.TAKE_OFF, Mode.HOLD)
        robot.by_hand |= by_hand
        robot.lost = frozenset(lost.split())

    def next_requests(self, now_s: float) -> list[tuple[str, Request]]:
        """Return the requests to send now; no robot is started before all are armed, or during an emergency stop."""
        if any(robot.stopped for robot in self._robots.values()):
            return []
        found: list[tuple[str, Request]] = []
        all_armed = self._all_armed()
        for name, robot in self._robots.items():
            wanted = self._wanted(robot, all_armed=all_armed)
            free = robot.under_way is not wanted and now_s - robot.asked_s >= RETRY_S
            if wanted is not None and robot.ready and free:
                robot.asked_s, robot.under_way = now_s, wanted
                found.append((name, wanted))
        return found

    def _required(self, name: str) -> bool:
        """Return whether the start of the others waits for a robot.

        Not for one that an operator declared lost to all others: it is off, and joins when it is started.
        """
        others = [robot for other, robot in self._robots.items() if other != name and robot.mode is not None]
        is_lost = bool(others) and all(name in robot.lost for robot in others)
        return self._robots[name].trusted and not is_lost

    def on_answer(self, name: str) -> None:
        """Note that the request to a robot was answered, or could not be sent."""
        self._robots[name].under_way = None

    def withdrawn(self, now_s: float) -> list[tuple[str, Request]]:
        """Return the requests that must not reach their robots any more, each once.

        A network that loses messages delivers them seconds late. A request to start that came after its robot had been
        stopped by hand would start it again.
        """
        halted, all_armed = any(robot.stopped for robot in self._robots.values()), self._all_armed()
        found: list[tuple[str, Request]] = []
        for name, robot in self._robots.items():
            if robot.under_way is None:
                continue
            wanted = None if halted else self._wanted(robot, all_armed=all_armed)
            if wanted is not robot.under_way or now_s - robot.asked_s >= UNANSWERED_S:
                found.append((name, robot.under_way))
                robot.under_way = None
        return found

    def _all_armed(self) -> bool:
        """Return whether all robots that were not started yet can be."""
        return all(
            robot.mode in READY and robot.ready and not robot.by_hand
            for name, robot in self._robots.items()
            if self._required(name) and not robot.started
        )

    def _wanted(self, robot: _Robot, *, all_armed: bool) -> Request | None:
        if robot.by_hand or robot.started:
            return None
        if robot.mode in RESTING and not robot.flew:
            takes_off = robot.mode is Mode.DISARMED
            return None if self._halted and takes_off else Request.ACTIVATE
        return Request.START if robot.mode in READY and all_armed and not self.needs_operator else None
