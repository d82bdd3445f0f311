"""Which ROS domain a program speaks in, and how it keeps to this machine; pure but for the environment."""

from __future__ import annotations

import os
from pathlib import Path

from testudo_hardware.errors import TestudoError

_DOMAINS = range(233)
PROFILE = str(Path(__file__).with_name("fastdds_localhost.xml"))
_OLD = ("humble", "iron", "jazzy")
"""Distributions with Fast DDS 2."""
LOOPBACK = {
    "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",  # no other reads the profile, and would speak in the network
    "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",  # that of the profile
    # newer ones read the old name, too, and complain of it
    "FASTRTPS_DEFAULT_PROFILES_FILE"
    if os.environ.get("ROS_DISTRO") in _OLD
    else "FASTDDS_DEFAULT_PROFILES_FILE": PROFILE,
}
"""Environment of processes that speak and hear on this machine only."""


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
