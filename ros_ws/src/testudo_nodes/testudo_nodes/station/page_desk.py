"""Carries out what the station page asks, and keeps the answers; the loop of the verb lets it go on.

Requests arrive in threads of the server. They are read there, and carried out in the one thread that runs ROS.
"""

import itertools
import queue
import time
import uuid
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testudo_deploy.contract.goal_order import GoalOrder
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.station.order_words import Wants, order_of
from testudo_deploy.station_page.board import Board
from testudo_deploy.station_page.page_request import GOAL, HOME, RELEASE, PageRequest, read_request
from testudo_deploy.station_page.run_list import RunList
from testudo_hardware.errors import TestudoError
from testudo_nodes.station.goal import OrderAnswers, unanswered_text
from testudo_nodes.station.operator_requests import Operator, Requests, Steps
from testudo_nodes.station.page_stop import press_stop, release_stop
from testudo_nodes.station.quick_stop import StopOrder

_REPEAT_S, _ORDER_S = 0.2, 5.0
_MOST_WAITING, _MOST_ANSWERS = 32, 30


class PageDesk:
    """The station as the server sees it."""

    def __init__(self, fleet: Fleet, values: Mapping[str, Any], stop_order: StopOrder, runs: Path) -> None:
        """Begin.

        Args:
            fleet: the robots.
            values: what the page learns once, see `fleet_values`.
            stop_order: how the emergency stop is pressed.
            runs: the folder of recorded runs.
        """
        self.board = Board()
        self._fleet, self._values, self._stop_order, self._runs = fleet, values, stop_order, RunList(runs)
        self._numbers = itertools.count(1)
        self._waiting: queue.Queue[tuple[int, PageRequest]] = queue.Queue(_MOST_WAITING)
        self._running, self._asked = Requests(), dict[Hashable, tuple[int, str, str]]()
        self._releases: dict[int, Future[tuple[bool, str]]] = {}
        self._releaser = ThreadPoolExecutor(1, "release")
        self._answers: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST_ANSWERS)

    # in threads of the server

    def fleet(self) -> Mapping[str, Any]:
        """Return what does not change."""
        return self._values

    def stop(self) -> Mapping[str, Any]:
        """Press the emergency stop, and return which guards have confirmed it."""
        number = next(self._numbers)
        values = press_stop(self._stop_order)
        self._note(number, "stop", "", values["confirmed"], values["sentence"])
        return values

    def request(self, data: bytes) -> int:
        """Begin a request, and return its number.

        Raises:
            TestudoError: it is refused.
        """
        found, number = read_request(data, self._fleet.names, orders=self._fleet.orders), next(self._numbers)
        try:
            self._waiting.put_nowait((number, found))
        except queue.Full:
            raise TestudoError("too many requests wait: the station does not come to them") from None
        return number

    def runs(self) -> list[dict[str, Any]]:
        """Return the recorded runs."""
        found = [(asdict(run), run) for run in self._runs.runs()]
        return [{**values, "report": run.name if run.has_report else None} for values, run in found]

    def report(self, run: str) -> Path | None:
        """Return the report of a run of that list; None without."""
        return self._runs.report(run)

    # in the thread of ROS

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Return the newest answers with their ages [s], the oldest first."""
        now_s = time.monotonic()
        return [{**values, "age": now_s - noted_s} for noted_s, values in tuple(self._answers)]

    @property
    def is_due(self) -> bool:
        """Return whether there is something to do."""
        return not self._waiting.empty() or self._running.is_due

    def advance(
        self, operator: Operator, orders: Callable[[GoalOrder], None] | None, heard: OrderAnswers, pose_of: Any
    ) -> None:
        """Begin what waits, and let all go on; none of it blocks.

        Args:
            operator: makes the requests to robots.
            orders: publishes an order; None for a fleet that takes none.
            heard: the answers to orders.
            pose_of: returns the last known position of a robot by its name; None without one.
        """
        while not self._waiting.empty():
            number, found = self._waiting.get_nowait()
            try:
                self._begin(number, found, operator, orders, heard, pose_of)
            except Exception as error:  # noqa: BLE001 -- one request must not end the page with its emergency stop
                self._note(number, found.verb, "", False, _sentence(error))
        self._running.advance()
        for key in tuple(self._running.replies):
            number, verb, robot = self._asked.pop(key)
            self._note(number, verb, robot, *self._running.replies.pop(key))
        for number in [number for number, future in self._releases.items() if future.done()]:
            done, sentence = self._releases.pop(number).result()
            self._note(number, RELEASE, "", done, sentence)

    def _begin(
        self,
        number: int,
        found: PageRequest,
        operator: Operator,
        orders: Callable[[GoalOrder], None] | None,
        heard: OrderAnswers,
        pose_of: Any,
    ) -> None:
        if found.verb == RELEASE:
            self._releases[number] = self._releaser.submit(release_stop, self._stop_order)
            return
        for robot in found.robots:
            if found.verb in (GOAL, HOME):
                steps = _send(self._order(found, robot, pose_of), orders, heard)
            else:
                steps = _steps(operator, found.verb, robot)
            self._asked[number, robot] = number, found.verb, robot
            self._running.add((number, robot), _guarded(steps))

    def _order(self, found: PageRequest, robot: str, pose_of: Any) -> GoalOrder:
        """Return the order of a click; a robot in the air keeps its height.

        Raises:
            TestudoError: the height is not known.
        """
        if found.place_world is None:
            return order_of(self._fleet, robot, (), Wants(home=True), uuid.uuid4().hex)
        height: tuple[float, ...] = ()
        if self._fleet.robot(robot).spec.dimension == 3:
            pose = pose_of(robot)
            if pose is None:
                raise TestudoError(f"{robot}: its height is not known, and a click gives none")
            height = tuple(pose[2:])
        return order_of(self._fleet, robot, (*found.place_world, *height), Wants(), uuid.uuid4().hex)

    def _note(self, number: int, verb: str, robot: str, done: bool, sentence: str) -> None:
        values = {"number": number, "verb": verb, "robot": robot, "done": done, "sentence": sentence}
        self._answers.append((time.monotonic(), values))


def _guarded(steps: Steps) -> Steps:
    """Return the same request, with a failure as its answer."""
    try:
        return (yield from steps)
    except Exception as error:  # noqa: BLE001 -- as above
        return False, _sentence(error)


def _sentence(error: Exception) -> str:
    known = isinstance(error, TestudoError)
    return str(error) if known else f"the station could not do it: {type(error).__name__}: {error}"


def _steps(operator: Operator, verb: str, robot: str) -> Steps:
    requests: dict[str, Callable[[], Steps]] = {
        "arm": lambda: operator.arm(robot),
        "start": lambda: operator.start(robot),
        "pause": lambda: operator.pause(robot),
        "rearm": lambda: operator.rearm(robot, start=False),
    }
    return requests[verb]()


def _send(order: GoalOrder, publish: Callable[[GoalOrder], None] | None, heard: OrderAnswers) -> Steps:
    """Send an order until it is answered, as `testudo goal` does."""
    end_s = time.monotonic() + _ORDER_S
    while publish is not None and time.monotonic() < end_s and order.order not in heard.found:
        publish(order)
        yield time.monotonic() + _REPEAT_S, lambda: order.order in heard.found
    answer = heard.found.pop(order.order, None)
    return (False, unanswered_text(order)) if answer is None else (answer.accepted, " ".join(answer.sentences))
