"""The ROS domain of a program, and the transport of fleets on one machine; imports little, for the emergency stop."""

import os
from pathlib import Path

from testudo_hardware.errors import TestudoError

DOMAINS = range(233)
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
    if not text.isdecimal() or int(text) not in DOMAINS:
        where = "--domain" if given is not None else "ROS_DOMAIN_ID"
        raise TestudoError(f"{where}: found {text!r}, expected a number from 0 to {DOMAINS[-1]}")
    return int(text)
