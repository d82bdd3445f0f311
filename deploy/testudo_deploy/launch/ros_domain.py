"""ROS domains: which one a program uses, a free one, and the environment that limits DDS to this machine."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

from testudo_hardware.errors import TestudoError

_DOMAINS = range(233)
_FREE_DOMAINS = range(1, 102)
"""Above these, DDS ports overlap those that the system gives to clients."""
PROFILE = str(Path(__file__).with_name("fastdds_localhost.xml"))
_FAST_DDS_2 = ("humble", "iron", "jazzy")
"""ROS distributions with Fast DDS 2, which reads the profile by the old name of the variable."""
LOOPBACK = {
    "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",  # another one ignores the profile and uses the network
    "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",  # that of the profile
    # newer versions accept the old name, too, but warn
    "FASTRTPS_DEFAULT_PROFILES_FILE"
    if os.environ.get("ROS_DISTRO") in _FAST_DDS_2
    else "FASTDDS_DEFAULT_PROFILES_FILE": PROFILE,
}
"""Environment of processes that communicate on this machine only."""


def ros_domain_id(given: int | None) -> int:
    """Return the ROS domain: the given one, else that of the environment, else 0.

    Raises:
        TestudoError: not a number from 0 to 232.
    """
    text = str(given) if given is not None else os.environ.get("ROS_DOMAIN_ID", "0")
    if not text.isdecimal() or int(text) not in _DOMAINS:
        where = "--domain" if given is not None else "ROS_DOMAIN_ID"
        raise TestudoError(f"{where}: found {text!r}, expected a number from 0 to {_DOMAINS[-1]}")
    return int(text)


def free_domain_id() -> int:
    """Return a ROS domain whose first ports are not open on this machine.

    Raises:
        TestudoError: there is none.
    """
    for domain_id in random.sample(_FREE_DOMAINS, len(_FREE_DOMAINS)):
        if all(_is_free(port) for port in _ports(domain_id)):
            return domain_id
    raise TestudoError("ROS_DOMAIN_ID: 1 to 101 are all in use on this machine; stop a fleet")


def _ports(domain_id: int) -> list[int]:
    """Return the discovery port of a domain and the ports of its first participants (DDSI-RTPS 9.6.1)."""
    base = 7400 + 250 * domain_id
    return [base, *(base + offset + 2 * participant for participant in range(4) for offset in (10, 11))]


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
