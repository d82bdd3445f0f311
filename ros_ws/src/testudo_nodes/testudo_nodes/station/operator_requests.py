"""Requests of an operator to several robots at the same time, over the services of their guards and policies."""

import time
from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any

from testudo_deploy.station.fleet_status import FleetStatus, RobotStatus

_POLL_S, _RETRY_S, _MODE_S = 0.1, 0.5, 3.0
_INACTIVE = ("idle", "disarmed")
Reply = tuple[bool, str]
_Wait = tuple[float, Callable[[], bool]]
"""Until when [s] on the steady clock to receive messages, and what may end that before."""
Steps = Generator[_Wait, None, Reply]
"""A request of one robot: yields whenever it waits, so that those of all robots go on side by side."""


class Requests:
    """Requests of several robots that go on at the same time: one silent robot does not hold up the others."""

    def __init__(self) -> None:
        """Begin without any."""
        self._waits: dict[Hashable, tuple[Steps, _Wait]] = {}
        self.replies: dict[Hashable, Reply] = {}
        """Whether each request was granted, and the answer; who reads one may remove it."""

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waits

    @property
    def is_due(self) -> bool:
        """Return whether one of them can go on."""
        return any(_is_due(wait) for _, wait in self._waits.values())

    @property
    def left_s(self) -> float:
        """Return how long all of them wait at the most [s]; infinity without any."""
        soonest_s = min((until_s for _, (until_s, _) in self._waits.values()), default=float("inf"))
        return max(soonest_s - time.monotonic(), 0.0)

    def add(self, key: Hashable, steps: Steps) -> None:
        """Begin a request with the next `advance`."""
        self._waits[key] = steps, (0.0, lambda: True)

    def advance(self) -> None:
        """Let all go on that wait for nothing more."""
        for key, (steps, wait) in tuple(self._waits.items()):
            if not _is_due(wait):
                continue
            try:
                self._waits[key] = steps, next(steps)
            except StopIteration as end:
                self.replies[key] = end.value
                del self._waits[key]


def _is_due(wait: _Wait) -> bool:
    return wait[1]() or time.monotonic() >= wait[0]


def side_by_side(listener: Any, requests: Mapping[str, Steps]) -> dict[str, Reply]:
    """Carry out requests of several robots at the same time.

    Args:
        listener: receives messages while all of them wait, as `StatusListener` does.
        requests: by robot.

    Returns:
        Whether each was granted, and the answer, in the order of the requests.
    """
    running = Requests()
    for robot, steps in requests.items():
        running.add(robot, steps)
    running.advance()
    while len(running.replies) < len(requests):
        listener.listen(running.left_s, enough=lambda: running.is_due)
        running.advance()
    return {robot: running.replies[robot] for robot in requests}


class Operator:
    """Requests to robots whose status is received meanwhile."""

    def __init__(self, listener: Any, heard: FleetStatus, wait_s: float) -> None:
        self._listener, self._heard, self._wait_s = listener, heard, wait_s

    def arm(self, robot: str) -> Steps:
        """Arm a robot, or return why it cannot be armed."""
        yield self._wait(_MODE_S, lambda: self._mode(robot) != "")
        mode = self._mode(robot)
        if mode in ("armed", "hold"):
            return True, f"{robot} is {mode} already"
        if mode == "fault":
            granted, answer = yield from self._change_state(robot, "deactivate")
            if not granted:
                return False, answer
            yield self._wait(_MODE_S, lambda: self._mode(robot) in _INACTIVE)
            mode = self._mode(robot)
        if mode in _INACTIVE:
            return (yield from self._activate(robot))
        remedy = {
            "": f"{robot} was not heard in this domain; does its policy node run?",
            "stopped": f"an emergency stop holds it: release it, then testudo rearm {robot}",
        }
        return False, remedy.get(mode, f"{robot} is {mode}, expected an inactive robot")

    def start(self, robot: str) -> Steps:
        """Start a robot, or return why it does not start."""
        return self._trigger(f"/{robot}/policy/start", until_granted=True)

    def pause(self, robot: str) -> Steps:
        """Let a robot brake until it is started again, or return why not."""
        return self._trigger(f"/{robot}/policy/stop")

    def rearm(self, robot: str, *, start: bool) -> Steps:
        """Rearm the guard of a robot, or return why it refuses, and then start the robot if that is asked for."""
        granted, answer = yield from self._trigger(f"/{robot}/guard/rearm")
        if not granted or not start:
            return granted, answer
        # the policy gets the new state with the next status of the guard
        return (yield from self.start(robot))

    def _activate(self, robot: str) -> Steps:
        """Activate the policy node, again until its arming checks pass."""
        end_s = time.monotonic() + self._wait_s
        granted, answer = yield from self._change_state(robot, "activate")
        while not granted and time.monotonic() < end_s:
            yield self._wait(_RETRY_S)
            granted, answer = yield from self._change_state(robot, "activate")
        if not granted:
            status = self._status(robot)
            return False, status.sentence if status is not None and status.code else answer
        yield self._wait(_MODE_S, lambda: self._mode(robot) not in _INACTIVE)
        return True, f"{robot} is {self._mode(robot)}"

    def _change_state(self, robot: str, transition: str) -> Steps:
        from lifecycle_msgs.msg import Transition  # noqa: PLC0415 -- the listener has found ROS
        from lifecycle_msgs.srv import ChangeState  # noqa: PLC0415

        number = getattr(Transition, f"TRANSITION_{transition.upper()}")
        request = ChangeState.Request(transition=Transition(id=number))
        return self._call(ChangeState, f"/{robot}/policy/change_state", request)

    def _trigger(self, service: str, *, until_granted: bool = False) -> Steps:
        from std_srvs.srv import Trigger  # noqa: PLC0415 -- the listener has found ROS

        return self._call(Trigger, service, Trigger.Request(), until_granted=until_granted)

    def _call(self, kind: Any, service: str, request: Any, *, until_granted: bool = False) -> Steps:
        """Call a service, again until it grants if that is asked for; return its answer, or why there is none."""
        end_s = time.monotonic() + self._wait_s
        client = self._listener.node.create_client(kind, service)
        answer = (False, f"{service} was not found in this domain within {self._wait_s:g} s")
        while time.monotonic() < end_s:
            if not client.service_is_ready():
                yield self._wait(_POLL_S)
                continue
            future = client.call_async(request)
            yield end_s, future.done
            if not future.done():
                answer = (False, f"{service} did not answer within {self._wait_s:g} s")
                break
            result = future.result()
            said = getattr(result, "message", f"{service}: {'done' if result.success else 'refused'}")
            answer = (result.success, said)
            if answer[0] or not until_granted:
                break
            yield self._wait(_RETRY_S)
        self._listener.node.destroy_client(client)
        return answer

    @staticmethod
    def _wait(seconds: float, enough: Callable[[], bool] = lambda: False) -> _Wait:
        return time.monotonic() + seconds, enough

    def _status(self, robot: str) -> RobotStatus | None:
        return next((one for one in self._heard.robots(time.monotonic()) if one.name == robot), None)

    def _mode(self, robot: str) -> str:
        status = self._status(robot)
        return "" if status is None else status.mode
