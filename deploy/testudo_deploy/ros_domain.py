"""Which ROS domain a verb speaks in; pure but for the environment."""

from __future__ import annotations

import os

from testudo_hardware.errors import TestudoError

_DOMAINS = range(233)


def ros_domain_id(given: int | None) -> int:
    """Return the ROS domain: the given one, else that of the environment, else 0.

    Raises:
        TestudoError: not a number that is one.
    """
    text = str(given) if given is not None else os.environ.get("ROS_DOMAIN_ID", "0")
    if not text.isdecimal() or int(text) not in _DOMAINS:
        where = "--domain" if given is not None else "ROS_DOMAIN_ID"
        raise TestudoError(f"{where}: found {text!r}, expected a number from 0 to {_DOMAINS[-1]}")
    return int(text)
