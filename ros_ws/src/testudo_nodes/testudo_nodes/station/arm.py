"""`testudo arm`, `start` and `rearm`: bring robots from any mode that an operator can resolve towards driving."""

import time
from collections.abc import Callable
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

    def request(operator: "_Operator", robot: str) -> _Reply:
        granted, answer = operator.arm(robot)
        return operator.start(robot) if granted and start else (granted, answer)

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


def call_trigger(listener: Any, wait_s: float, service: str, *, until_granted: bool = False) -> _Reply:
    """Call a service of the type `std_srvs/Trigger`; return whether it was granted, and the answer.

    Args:
        listener: receives messages meanwhile.
        wait_s: longest time to wait [s].
        service: its absolute name.
        until_granted: repeat the call until it is granted.
    """
    from std_srvs.srv import Trigger  # noqa: PLC0415 -- the listener has found ROS

    return _call(listener, wait_s, service, Trigger.Request(), until_granted=until_granted)


def _ask(
    verb: str,
    request: Callable[["_Operator", str], _Reply],
    robots: tuple[str, ...],
    wait_s: float,
    domain: int | None,
    local: bool,
) -> int:
    """Request something of each robot, and show the answers."""
    if not robots:
        raise TestudoError(f"{verb}: no robot is named; expected one or more, as in `testudo {verb} r0 r1`")
    check_wait(wait_s)
    domain_id, heard = ros_domain_id(domain), FleetStatus()
    with fleet_listener(verb, heard, domain_id, local=local) as listener:
        operator = _Operator(listener, heard, wait_s)
        rows = [(name, *request(operator, name)) for name in robots]
    shown = [(name, "yes" if granted else "NO", answer) for name, granted, answer in rows]
    Console().print(table({"arm": "Armed", "start": "Started"}[verb], ("robot", "done", "answer"), shown))
    return 0 if all(granted for _, granted, _ in rows) else _FAILED


class _Operator:
    """Requests to robots whose status is received meanwhile."""

    def __init__(self, listener: Any, heard: FleetStatus, wait_s: float) -> None:
        self._listener, self._heard, self._wait_s = listener, heard, wait_s

    def arm(self, robot: str) -> _Reply:
        """Arm a robot, or return why it cannot be armed."""
        self._listener.listen(_MODE_S, enough=lambda: self._mode(robot) != "")
        mode = self._mode(robot)
        if mode in ("armed", "hold"):
            return True, f"{robot} is {mode} already"
        if mode == "fault":
            granted, answer = self._change_state(robot, "deactivate")
            if not granted:
                return False, answer
            self._listener.listen(_MODE_S, enough=lambda: self._mode(robot) in _INACTIVE)
            mode = self._mode(robot)
        if mode in _INACTIVE:
            return self._activate(robot)
        remedy = {
            "": f"{robot} was not heard in this domain; does its policy node run?",
            "stopped": f"an emergency stop holds it: release it, then testudo rearm {robot}",
        }
        return False, remedy.get(mode, f"{robot} is {mode}, expected an inactive robot")

    def start(self, robot: str) -> _Reply:
        """Start a robot, or return why it does not start."""
        return call_trigger(self._listener, self._wait_s, f"/{robot}/policy/start", until_granted=True)

    def _activate(self, robot: str) -> _Reply:
        """Activate the policy node, again until its arming checks pass."""
        end_s = time.monotonic() + self._wait_s
        granted, answer = self._change_state(robot, "activate")
        while not granted and time.monotonic() < end_s:
            self._listener.listen(_RETRY_S)
            granted, answer = self._change_state(robot, "activate")
        if not granted:
            status = self._status(robot)
            return False, status.sentence if status is not None and status.code else answer
        self._listener.listen(_MODE_S, enough=lambda: self._mode(robot) not in _INACTIVE)
        return True, f"{robot} is {self._mode(robot)}"

    def _change_state(self, robot: str, transition: str) -> _Reply:
        from lifecycle_msgs.msg import Transition  # noqa: PLC0415 -- the listener has found ROS
        from lifecycle_msgs.srv import ChangeState  # noqa: PLC0415

        number = getattr(Transition, f"TRANSITION_{transition.upper()}")
        request = ChangeState.Request(transition=Transition(id=number))
        return _call(self._listener, self._wait_s, f"/{robot}/policy/change_state", request)

    def _status(self, robot: str) -> RobotStatus | None:
        return next((one for one in self._heard.robots(time.monotonic()) if one.name == robot), None)

    def _mode(self, robot: str) -> str:
        status = self._status(robot)
        return "" if status is None else status.mode


def _call(listener: Any, wait_s: float, service: str, request: Any, *, until_granted: bool = False) -> _Reply:
    end_s = time.monotonic() + wait_s
    kind = _service_of(request)
    client = listener.node.create_client(kind, service)
    answer = (False, f"{service} was not found in this domain within {wait_s:g} s")
    while time.monotonic() < end_s:
        if not client.service_is_ready():
            listener.listen(_POLL_S)
            continue
        future = client.call_async(request)
        listener.listen(end_s - time.monotonic(), enough=future.done)
        if not future.done():
            answer = (False, f"{service} did not answer within {wait_s:g} s")
            break
        result = future.result()
        answer = (result.success, getattr(result, "message", f"{service}: {'done' if result.success else 'refused'}"))
        if answer[0] or not until_granted:
            break
        listener.listen(_RETRY_S)
    listener.node.destroy_client(client)
    return answer


def _service_of(request: Any) -> Any:
    """Return the service type of a request."""
    from lifecycle_msgs.srv import ChangeState  # noqa: PLC0415 -- the listener has found ROS
    from std_srvs.srv import Trigger  # noqa: PLC0415

    return ChangeState if isinstance(request, ChangeState.Request) else Trigger


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
    if not robots:
        raise TestudoError("rearm: no robot is named; expected one or more, as in `testudo rearm r0 r1`")
    raise_priority(PRIORITIES["operator"])
    check_wait(wait)
    domain_id = ros_domain_id(domain)
    with fleet_listener("rearm", FleetStatus(), domain_id, local=local) as listener:
        rows = [(name, *_rearm(listener, wait, name, start=start)) for name in robots]
    shown = [(name, "yes" if granted else "NO", answer) for name, granted, answer in rows]
    Console().print(table("Rearmed", ("robot", "done", "answer"), shown))
    return 0 if all(granted for _, granted, _ in rows) else _FAILED


def _rearm(listener: Any, wait_s: float, robot: str, *, start: bool) -> tuple[bool, str]:
    granted, sentence = call_trigger(listener, wait_s, f"/{robot}/guard/rearm")
    if not granted or not start:
        return granted, sentence
    # the policy gets the new state with the next status of the guard
    return call_trigger(listener, wait_s, f"/{robot}/policy/start", until_granted=True)
