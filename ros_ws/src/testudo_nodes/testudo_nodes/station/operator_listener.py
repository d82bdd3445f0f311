"""The listener of operators' verbs; it is imported before ROS is, for an error text where there is none."""

import re
from typing import Any

from testudo_hardware.errors import TestudoError

STATUS_TYPES = {
    "mode": "diagnostic_msgs/msg/DiagnosticStatus",
    "guard_status": "diagnostic_msgs/msg/DiagnosticStatus",
    "battery_state": "sensor_msgs/msg/BatteryState",
}
"""Message type by the last part of a topic's name."""
STATUS_TOPIC = re.compile(rf"/([a-z][a-z0-9_]*)/({'|'.join(STATUS_TYPES)})")


class StatusIgnored:
    """Receiver of a `StatusListener` that takes no notice of any status; a verb overrides what it needs."""

    def on_mode(self, robot: str, sentence: str, values: dict[str, str], received_s: float) -> None:
        """Ignore the mode."""

    def on_guard_status(self, robot: str, values: dict[str, str], received_s: float) -> None:
        """Ignore the guard."""

    def on_battery(self, robot: str, share: float, voltage_v: float) -> None:
        """Ignore the battery."""


def check_wait(wait_s: float) -> None:
    """Check a time-out [s] of the command line.

    Raises:
        TestudoError: it is not positive and finite.
    """
    if not 0 < wait_s < float("inf"):
        raise TestudoError(f"--wait: found {wait_s:g}, expected a time above 0 s")


def fleet_listener(verb: str, receiver: Any, domain_id: int, *, local: bool) -> Any:
    """Return a `StatusListener`, a context manager with a node.

    Args:
        verb: the verb that needs it, for the error text.
        receiver: takes the messages, as `testudo_deploy.station.fleet_status.FleetStatus` does.
        domain_id: the ROS domain.
        local: reach this machine only, as `testudo up` does.

    Raises:
        TestudoError: ROS 2 is not installed.
    """
    try:
        from testudo_nodes.station.status_listener import StatusListener  # noqa: PLC0415 -- an error text without ROS
    except ImportError as error:
        raise TestudoError(
            f"{verb}: ROS 2 is not within reach ({error}): source the setup file of the robot's own "
            "ROS 2, or pip install 'testudo[ros]'"
        ) from error
    return StatusListener(receiver, domain_id, local=local)
