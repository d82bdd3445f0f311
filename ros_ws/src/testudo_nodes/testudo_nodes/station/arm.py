"""`testudo arm`, `start` and `rearm`: bring robots from any mode that an operator can resolve towards driving."""

import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

import tyro
from rich.console import Console

from testudo_deploy.commands.report import table
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus, RobotStatus
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.station.operator_listener import check_wait, fleet_listener

_FAILED = 1
_POLL_S, _RETRY_S, _MODE_S = 0.1, 0.5, 3.0
_INACTIVE = ("idle", "disarmed")
_Reply = tuple[bool, str]
_Wait = tuple[float, Callable[[], bool]]
"""Until when [s] on the steady clock to receive messages, and what may end that before."""
_Steps = Generator[_Wait, None, _Reply]
"""A request of one robot: yields whenever it waits, so that those of all robots go on side by side."""


def arm(
    robots: tyro.conf.Positional[tuple[str, ...]],
    start: bool = False,
    wait: float = 10.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Arm robots that are inactive: after the loss of a guard, a restart, a fault or a deactivation.

    Every arming check must pass; the answer names the one that does not. In the mode fault a robot is deactivated
    first, which accepts the fault. One that an emergency stop holds needs `testudo rearm`. A drone takes off.

    Example:
        testudo arm r0 r1 --start

    Args:
        robots: names of the robots, as in the fleet file.
        start: also start them, once they are armed.
        wait: longest time to wait for a robot [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """

    def request(operator: "_Operator", robot: str) -> _Steps:
        granted, answer = yield from operator.arm(robot)
        return (yield from operator.start(robot)) if granted and start else (granted, answer)

    return _ask("arm", request, robots, wait, domain, local)


def start(
    robots: tyro.conf.Positional[tuple[str, ...]],
    wait: float = 10.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Start armed robots; their policies drive them from then on.

    Example:
        testudo start r0 r1

    Args:
        robots: names of the robots, as in the fleet file.
        wait: longest time to wait for a robot [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    return _ask("start", lambda operator, robot: operator.start(robot), robots, wait, domain, local)


def _ask(
    verb: str,
    request: Callable[["_Operator", str], _Steps],
    robots: tuple[str, ...],
    wait_s: float,
    domain: int | None,
    local: bool,
) -> int:
    """Request something of all robots, and show the answers."""
    if not robots:
        raise TestudoError(f"{verb}: no robot is named; expected one or more, as in `testudo {verb} r0 r1`")
    check_wait(wait_s)
    raise_priority(PRIORITIES["operator"])
    domain_id, heard = ros_domain_id(domain), FleetStatus()
    with fleet_listener(verb, heard, domain_id, local=local) as listener:
        operator = _Operator(listener, heard, wait_s)
        replies = side_by_side(listener, {name: request(operator, name) for name in robots})
    shown = [(name, "yes" if granted else "NO", answer) for name, (granted, answer) in replies.items()]
    title = {"arm": "Armed", "start": "Started", "rearm": "Rearmed"}[verb]
    Console().print(table(title, ("robot", "done", "answer"), shown))
    return 0 if all(granted for granted, _ in replies.values()) else _FAILED


def side_by_side(listener: Any, requests: Mapping[str, _Steps]) -> dict[str, _Reply]:
    """Let requests of several robots go on at the same time: one silent robot does not hold up the others.

    Args:
        listener: receives messages while all of them wait, as `StatusListener` does.
        requests: by robot.

    Returns:
        Whether each was granted, and the answer, in the order of the requests.
    """
    replies: dict[str, _Reply] = {}
    waits: dict[str, _Wait] = dict.fromkeys(requests, (0.0, lambda: True))

    def is_due(wait: _Wait) -> bool:
        return wait[1]() or time.monotonic() >= wait[0]

    while waits:
        for robot in [name for name, wait in waits.items() if is_due(wait)]:
            try:
                waits[robot] = next(requests[robot])
            except StopIteration as end:
                replies[robot] = end.value
                del waits[robot]
        if waits:
            soonest_s = min(until_s for until_s, _ in waits.values())
            left_s = max(soonest_s - time.monotonic(), 0.0)
            listener.listen(left_s, enough=lambda: any(is_due(wait) for wait in waits.values()))
    return {robot: replies[robot] for robot in requests}


class _Operator:
    """Requests to robots whose status is received meanwhile."""

    def __init__(self, listener: Any, heard: FleetStatus, wait_s: float) -> None:
        self._listener, self._heard, self._wait_s = listener, heard, wait_s

    def arm(self, robot: str) -> _Steps:
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

    def start(self, robot: str) -> _Steps:
        """Start a robot, or return why it does not start."""
        return self._trigger(f"/{robot}/policy/start", until_granted=True)

    def rearm(self, robot: str, *, start: bool) -> _Steps:
        """Rearm the guard of a robot, or return why it refuses, and then start the robot if that is asked for."""
        granted, answer = yield from self._trigger(f"/{robot}/guard/rearm")
        if not granted or not start:
            return granted, answer
        # the policy gets the new state with the next status of the guard
        return (yield from self.start(robot))

    def _activate(self, robot: str) -> _Steps:
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

    def _change_state(self, robot: str, transition: str) -> _Steps:
        from lifecycle_msgs.msg import Transition  # noqa: PLC0415 -- the listener has found ROS
        from lifecycle_msgs.srv import ChangeState  # noqa: PLC0415

        number = getattr(Transition, f"TRANSITION_{transition.upper()}")
        request = ChangeState.Request(transition=Transition(id=number))
        return self._call(ChangeState, f"/{robot}/policy/change_state", request)

    def _trigger(self, service: str, *, until_granted: bool = False) -> _Steps:
        from std_srvs.srv import Trigger  # noqa: PLC0415 -- the listener has found ROS

        return self._call(Trigger, service, Trigger.Request(), until_granted=until_granted)

    def _call(self, kind: Any, service: str, request: Any, *, until_granted: bool = False) -> _Steps:
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


def rearm(
    robots: tyro.conf.Positional[tuple[str, ...]],
    start: bool = False,
    wait: float = 10.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Rearm stopped robots after the emergency stop is released; they brake until they are started.

    Shows the answer of each guard, and with --start of each policy; the exit status is 0 only if none refused.

    Example:
        testudo rearm r0 r1 --start

    Args:
        robots: names of the robots, as in the fleet file.
        start: also start them.
        wait: longest time to wait for a robot [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    return _ask("rearm", lambda operator, robot: operator.rearm(robot, start=start), robots, wait, domain, local)
