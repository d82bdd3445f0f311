"""The ROS domain of a program, and the transport of fleets on one machine; imports little, for the emergency stop."""

import os
from collections.abc import MutableMapping
from pathlib import Path

from testudo_hardware.errors import TestudoError

DOMAINS = range(233)
PROFILE = str(Path(__file__).with_name("fastdds_localhost.xml"))
PEERS_PROFILE = str(Path(__file__).with_name("fastdds_peers.xml"))
"""Beside ROS_STATIC_PEERS: without it two processes that are not among the first four of their computers never meet."""
_FAST_DDS_2 = ("humble", "iron", "jazzy")
"""ROS distributions with Fast DDS 2, which reads the profile by the old name of the variable."""
PROFILE_VARIABLE = (
    "FASTRTPS_DEFAULT_PROFILES_FILE"
    if os.environ.get("ROS_DISTRO") in _FAST_DDS_2
    else "FASTDDS_DEFAULT_PROFILES_FILE"  # newer versions accept the old name, too, but warn
)
LOOPBACK = {
    "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",  # another one ignores the profile and uses the network
    "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",  # that of the profile
    PROFILE_VARIABLE: PROFILE,
}
"""Environment of processes that communicate on this machine only."""


def discover_everything(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask a discovery server for all nodes and topics; without a server change nothing. Call it before ROS starts.

    To an ordinary client the server tells only its partners: who publishes on a topic does not hear of a second
    publisher there, which the guard must see. A tool would find no robots either.
    """
    if environment.get("ROS_DISCOVERY_SERVER"):
        environment["ROS_SUPER_CLIENT"] = "TRUE"


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
