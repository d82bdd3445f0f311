"""What verbs of the command line need to speak to a fleet; says what to do where ROS 2 is missing."""

from __future__ import annotations

from typing import Any

from testudo_hardware.errors import TestudoError


def check_wait(wait_s: float) -> None:
    """Refuse a longest time to wait [s] in which nothing could be said.

    Raises:
        TestudoError: it is no time above 0.
    """
    if not 0 < wait_s < float("inf"):
        raise TestudoError(f"--wait: found {wait_s:g}, expected a time above 0 s")


def fleet_listener(verb: str, heard: Any, domain_id: int, *, local: bool) -> Any:
    """Return a `StatusListener`, a context manager with a node.

    Args:
        verb: who asks.
        heard: takes what is heard, as `testudo_deploy.station.fleet_status.FleetStatus` does.
        domain_id: the ROS domain.
        local: reach this machine only, as `testudo up` speaks.

    Raises:
        TestudoError: ROS 2 is not within reach.
    """
    try:
        from testudo_nodes.station.status_listener import StatusListener  # noqa: PLC0415 -- says what to do without ROS
    except ImportError as error:
        raise TestudoError(
            f"{verb}: ROS 2 is not within reach ({error}): source the setup file of the robot's own "
            "ROS 2, or pip install 'testudo[ros]'"
        ) from error
    return StatusListener(heard, domain_id, local=local)
