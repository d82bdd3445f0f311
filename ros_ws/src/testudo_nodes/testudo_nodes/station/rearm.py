"""`testudo rearm`: takes an emergency stop back, robot by robot, by hand."""

from __future__ import annotations

import time
from typing import Any

import tyro
from rich.console import Console

from testudo_deploy.commands.report import table
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_hardware.errors import TestudoError
from testudo_nodes.station.ros_availability import check_wait, fleet_listener

_FAILED = 1
_STEP_S = 0.1
_AGAIN_S = 0.5


def rearm(
    robots: tyro.conf.Positional[tuple[str, ...]],
    start: bool = False,
    wait: float = 10.0,
    domain: int | None = None,
    local: bool = False,
) -> int:
    """Take the emergency stop of robots back, once it is released; they brake on until they are started.

    Shows what each guard, and with --start each policy, answered; the exit status is 0 only if none refused.

    Example:
        testudo rearm r0 r1 --start

    Args:
        robots: names of the robots, as in the fleet file.
        start: also let them drive.
        wait: longest time to wait for a robot [s].
        domain: ROS_DOMAIN_ID; left out, that of the environment.
        local: reach fleets of this machine only, as `testudo up` starts them.
    """
    if not robots:
        raise TestudoError("rearm: no robot is named; expected one or more, as in `testudo rearm r0 r1`")
    check_wait(wait)
    domain_id = ros_domain_id(domain)
    with fleet_listener("rearm", FleetStatus(), domain_id, local=local) as listener:
        ask = _Asker(listener, wait)
        rows = [(name, *_rearm(ask, name, start=start)) for name in robots]
    Console().print(
        table("Rearmed", ("robot", "done", "answer"), [(row[0], "yes" if row[1] else "NO", row[2]) for row in rows])
    )
    return 0 if all(granted for _, granted, _ in rows) else _FAILED


def _rearm(ask: _Asker, robot: str, *, start: bool) -> tuple[bool, str]:
    granted, sentence = ask(f"/{robot}/guard/rearm")
    if not granted or not start:
        return granted, sentence
    # the policy hears of it by the next word of the guard
    return ask(f"/{robot}/policy/start", until_granted=True)


class _Asker:
    """Calls services of the type Trigger."""

    def __init__(self, listener: Any, wait_s: float) -> None:
        self._listener, self._wait_s = listener, wait_s

    def __call__(self, service: str, *, until_granted: bool = False) -> tuple[bool, str]:
        """Return whether it was granted, and the answer; asks again where that may help."""
        from std_srvs.srv import Trigger  # noqa: PLC0415 -- ROS is within reach from here on

        end_s = time.monotonic() + self._wait_s
        client = self._listener.node.create_client(Trigger, service)
        answer = (False, f"{service} is not there, in this domain and within {self._wait_s:g} s")
        while time.monotonic() < end_s:
            if not client.service_is_ready():
                self._listener.listen(_STEP_S)
                continue
            future = client.call_async(Trigger.Request())
            self._listener.listen(end_s - time.monotonic(), enough=future.done)
            if not future.done():
                answer = (False, f"{service} did not answer within {self._wait_s:g} s")
                break
            answer = (future.result().success, future.result().message)
            if answer[0] or not until_granted:
                break
            self._listener.listen(_AGAIN_S)
        self._listener.node.destroy_client(client)
        return answer
