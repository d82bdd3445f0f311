"""`testudo arm`, `start`, `pause` and `rearm`: robots towards driving, and out of it."""

from collections.abc import Callable

import tyro
from rich.console import Console

from testudo_deploy.commands.report import table
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_hardware.errors import TestudoError
from testudo_nodes.common.process_priority import PRIORITIES, raise_priority
from testudo_nodes.station.operator_listener import check_wait, fleet_listener
from testudo_nodes.station.operator_requests import Operator, Steps, side_by_side

_FAILED = 1


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

    def request(operator: Operator, robot: str) -> Steps:
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


def pause(
    robots: tyro.conf.Positional[tuple[str, ...]],
    wait: float = 10.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Let robots that drive brake and wait, armed, until `testudo start`; a drone hovers. This is no emergency stop.

    For every fleet, and before people change something: a paused robot gives way to nobody. In a fleet with `orders:
    true` a robot that shall only wait, and let others pass, is better paused by `testudo goal --pause`.

    Example:
        testudo pause r0 r1

    Args:
        robots: names of the robots, as in the fleet file.
        wait: longest time to wait for a robot [s].
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach fleets on this machine only, as `testudo up` starts them.
    """
    return _ask("pause", lambda operator, robot: operator.pause(robot), robots, wait, domain, local)


def _ask(
    verb: str,
    request: Callable[[Operator, str], Steps],
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
        operator = Operator(listener, heard, wait_s)
        replies = side_by_side(listener, {name: request(operator, name) for name in robots})
    shown = [(name, "yes" if granted else "NO", answer) for name, (granted, answer) in replies.items()]
    title = {"arm": "Armed", "start": "Started", "rearm": "Rearmed", "pause": "Paused"}[verb]
    Console().print(table(title, ("robot", "done", "answer"), shown))
    return 0 if all(granted for granted, _ in replies.values()) else _FAILED


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
