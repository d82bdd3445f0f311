"""Probes of ROS 2 on this machine: distribution, middleware, domain, and whether multicast arrives."""

from __future__ import annotations

import os
import re
import secrets
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path

from testudo_deploy.doctor.machine_facts import probe
from testudo_hardware.errors import TestudoError

DISTRIBUTIONS = ("foxy", "galactic", "humble", "iron", "jazzy", "kilted", "lyrical", "rolling")
_RCLPY_OF = {3: "humble", 4: "iron", 7: "jazzy", 9: "kilted"}
"""ROS distribution by the first number of the version of rclpy."""
_SOURCED_VARIABLES = ("AMENT_PREFIX_PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH")
_SOURCED = re.compile(rf"/({'|'.join(DISTRIBUTIONS)})(?=/|:|$)")
_SITE = re.compile(r"/python(3\.\d+)/")
_KEPT = (
    *("ROS_DISTRO", "ROS_DOMAIN_ID", "ROS_LOCALHOST_ONLY", "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_STATIC_PEERS"),
    *("ROS_DISCOVERY_SERVER", "RMW_IMPLEMENTATION", "FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"),
    *("ROS_SECURITY_ENABLE", "ROS_SECURITY_KEYSTORE", "ROS_SECURITY_STRATEGY", "PYTHONPATH"),
)
_START = (
    "import json, os, rclpy; from diagnostic_msgs.msg import DiagnosticStatus; "
    "from rclpy.utilities import get_rmw_implementation_identifier as rmw; "
    "print(json.dumps([os.path.dirname(rclpy.__file__), rmw()]))"
)
_GROUP = "239.255.0.1"  # multicast group of DDS discovery
_UP, _LOOPBACK, _MULTICAST = 0x1, 0x8, 0x1000  # flags of a network interface
_HEARD_S = 0.5


@dataclass(frozen=True)
class RosFact:
    """ROS 2 as this process would start it."""

    environment: Mapping[str, str]  # variables that ROS reads, those that are set
    sourced: tuple[str, ...] = ()  # distributions that the environment names, each once
    sourced_python: tuple[str, ...] = ()  # Python versions of the folders in PYTHONPATH, such as `3.10`
    wheels: str = ""  # distribution of the Python wheels of ROS; empty if none are installed
    path: str = ""  # folder of rclpy; empty if it does not start
    rmw: str = ""  # middleware that it uses
    error: str = ""  # last line of the error, if it does not start
    present: bool = True  # there is an rclpy


@dataclass(frozen=True)
class NetworkFact:
    """Multicast, and the ports of DDS."""

    heard: tuple[str, ...] = ()  # interfaces, loopback left out, on which a multicast packet came back
    deaf: Mapping[str, str] = field(default_factory=dict[str, str])  # others that are up, and why
    first_ephemeral_port: int = 32768  # the kernel gives ports from here to any program
    last_ephemeral_port: int = 60999


def ros_fact(environment: Mapping[str, str] | None = None) -> RosFact:
    """Return what ROS 2 the environment gives; it is started in a process of its own, which may crash."""
    variables = dict(os.environ if environment is None else environment)
    kept = {name: variables[name] for name in _KEPT if variables.get(name)}
    paths = [variables.get(name, "") for name in _SOURCED_VARIABLES]
    named = [*([variables["ROS_DISTRO"]] if variables.get("ROS_DISTRO") else []), *_matches(_SOURCED, paths)]
    found = RosFact(
        kept,
        tuple(dict.fromkeys(named)),
        tuple(dict.fromkeys(_matches(_SITE, [variables.get("PYTHONPATH", "") + "/"]))),
        _wheels(),
    )
    try:
        path, rmw = probe(_START, variables)
    except TestudoError as error:
        return RosFact(
            found.environment,
            found.sourced,
            found.sourced_python,
            found.wheels,
            error=str(error),
            present=bool(found.sourced) or util.find_spec("rclpy") is not None,
        )
    return RosFact(found.environment, found.sourced, found.sourced_python, found.wheels, str(path), str(rmw))


def network_fact(root: Path = Path("/")) -> NetworkFact:
    """Return on which interfaces a multicast packet comes back: that tells of routes and this machine's firewall."""
    heard: list[str] = []
    deaf: dict[str, str] = {}
    for index, name in socket.if_nameindex():
        flags = _flags(root, name)
        if flags & _LOOPBACK or not flags & _UP:
            continue
        if not flags & _MULTICAST:
            deaf[name] = "it has no multicast"
            continue
        reason = _deafness(index)
        if reason:
            deaf[name] = reason
        else:
            heard.append(name)
    low, high = _port_range(root)
    return NetworkFact(tuple(heard), deaf, low, high)


def unknown_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the names of computers that have no address."""
    found: list[str] = []
    for host in dict.fromkeys(hosts):
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            found.append(host)
    return tuple(found)


def _matches(pattern: re.Pattern[str], texts: Iterable[str]) -> list[str]:
    return [match[1] for text in texts for match in pattern.finditer(text)]


def _wheels() -> str:
    try:
        version = metadata.version("ros-rclpy")
    except metadata.PackageNotFoundError:
        return ""
    return _RCLPY_OF.get(int(version.partition(".")[0]), f"of rclpy {version}")


def _flags(root: Path, name: str) -> int:
    try:
        return int((root / "sys/class/net" / name / "flags").read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        return 0


def _deafness(index: int) -> str:
    """Send one packet to the group on an interface; return why it did not come back, empty if it did."""
    word = secrets.token_bytes(16)
    request = struct.pack("4s4si", socket.inet_aton(_GROUP), b"\0\0\0\0", index)
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth,
        ):
            ear.bind(("", 0))
            ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            ear.settimeout(_HEARD_S)
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            mouth.sendto(word, (_GROUP, ear.getsockname()[1]))
            while ear.recv(64) != word:
                pass
    except TimeoutError:
        return "a packet to the group did not come back"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _port_range(root: Path) -> tuple[int, int]:
    try:
        low, high = (root / "proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        return int(low), int(high)
    except (OSError, ValueError):
        return NetworkFact.first_ephemeral_port, NetworkFact.last_ephemeral_port
