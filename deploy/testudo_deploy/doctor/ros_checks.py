"""Checks of ROS 2 on a machine: distribution, middleware, domain, discovery, multicast; pure."""

from __future__ import annotations

from pathlib import Path

from testudo_deploy.doctor.finding import Finding, failed, ok, warning
from testudo_deploy.doctor.ros_facts import NetworkFact, RosFact
from testudo_deploy.launch.ros_domain import DOMAINS, PEERS_PROFILE, PROFILE_VARIABLE

_TESTED_RMW = "rmw_fastrtps_cpp"
_PORT_BASE, _DOMAIN_PORTS, _FIRST_OFFSET, _PORTS_EACH = 7400, 250, 10, 2  # DDSI-RTPS 9.6.1.1: ports of a domain
_FLEET_PROCESSES = 100  # ports of a domain that a fleet may use, see launch/fastdds_localhost.xml
_NARROW = ("LOCALHOST", "OFF")
_CLEAR = "env -u AMENT_PREFIX_PATH -u PYTHONPATH -u LD_LIBRARY_PATH -u ROS_DISTRO"


def check_ros(fact: RosFact, network: NetworkFact, python: str, *, several_hosts: bool) -> tuple[Finding, ...]:
    """Return the findings about ROS 2.

    Args:
        fact: as this process would start it.
        network: of this machine.
        python: version of the interpreter.
        several_hosts: the fleet runs on more than one computer.
    """
    return (
        check_distribution(fact, python),
        check_rmw(fact),
        check_domain(fact, network),
        check_discovery(fact, several_hosts=several_hosts),
        check_multicast(fact, network, several_hosts=several_hosts),
        check_security(fact),
    )


def check_distribution(fact: RosFact, python: str) -> Finding:
    """Check that one ROS 2 distribution is there, and that it starts."""
    name = "ROS distribution"
    mixed, error = _mixed(fact), "" if _lacks_rmw(fact) else fact.error
    if mixed:
        make = failed if error else warning
        broken = f"; it does not start: {error}" if error else ""
        return make(
            name,
            f"mixed distributions: {mixed}{broken}",
            f"one of them: a new shell that sources no setup.bash, or `{_CLEAR} testudo ...`; or, for the system's "
            "own, a virtual environment without the wheels: pip uninstall ros-rclpy",
        )
    if not fact.present:
        return failed(
            name,
            "ROS 2 is not within reach",
            "source /opt/ros/jazzy/setup.bash (or your distribution), or pip install 'testudo[ros]' on x86-64",
        )
    own = ".".join(python.split(".")[:2])
    others = [version for version in fact.sourced_python if version != own]
    if error and others:
        return failed(
            name,
            f"{', '.join(fact.sourced)} is sourced, which is for Python {', '.join(others)}; this is Python {own}",
            f"a virtual environment of that Python: python{others[0]} -m venv --system-site-packages .venv",
        )
    if error:
        return failed(
            name,
            f"{_distribution(fact)} does not start: {error}",
            "install its parts again: sudo apt install ros-$ROS_DISTRO-rclpy ros-$ROS_DISTRO-common-interfaces, or "
            "pip install --force-reinstall 'testudo[ros]'",
        )
    return ok(name, f"{_distribution(fact)}{f' ({fact.path})' if fact.path else ''}")


def check_rmw(fact: RosFact) -> Finding:
    """Check the middleware; all computers of a fleet need the same."""
    name, asked = "RMW", fact.environment.get("RMW_IMPLEMENTATION", "")
    if not fact.rmw:
        if _lacks_rmw(fact):
            return failed(
                name,
                f"RMW_IMPLEMENTATION asks for {asked}, which is not installed",
                f"unset RMW_IMPLEMENTATION, or sudo apt install ros-$ROS_DISTRO-{asked.replace('_', '-')}",
            )
        return warning(name, "not known, as ROS 2 does not start", "see ROS distribution")
    if fact.rmw != _TESTED_RMW:
        return warning(
            name,
            f"{fact.rmw}: Testudo is tested with {_TESTED_RMW}, and all computers of a fleet need the same",
            f"export RMW_IMPLEMENTATION={_TESTED_RMW} on every computer",
        )
    return ok(name, fact.rmw)


def check_domain(fact: RosFact, network: NetworkFact) -> Finding:
    """Check ROS_DOMAIN_ID: a number, with ports that no other program is given."""
    name = "domain"
    text = fact.environment.get("ROS_DOMAIN_ID", "0")
    if not text.isdecimal() or int(text) not in DOMAINS:
        expected = f"expected a number from 0 to {DOMAINS[-1]}"
        return failed(name, f"ROS_DOMAIN_ID is {text!r}, {expected}", "export ROS_DOMAIN_ID=42")
    domain = int(text)
    first = _PORT_BASE + _DOMAIN_PORTS * domain + _FIRST_OFFSET
    last = first + _PORTS_EACH * _FLEET_PROCESSES
    low, high = network.first_ephemeral_port, network.last_ephemeral_port
    if first <= high and last >= low:
        return warning(
            name,
            f"ROS_DOMAIN_ID={domain} uses ports {first} to {last}, and the kernel gives those from {low} to {high} "
            "to any program",
            "a domain from 1 to 100 on every computer of the fleet: export ROS_DOMAIN_ID=42",
        )
    shared = ", the domain that every robot has from the box" if domain == 0 else ""
    return ok(name, f"ROS_DOMAIN_ID={domain}{shared}")


def check_discovery(fact: RosFact, *, several_hosts: bool) -> Finding:
    """Check that the set discovery range and profile reach the other computers."""
    name, environment = "discovery", fact.environment
    for variable in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        file = environment.get(variable, "")
        if file and not Path(file).is_file():
            return failed(name, f"{variable} names {file}, which does not exist", f"unset {variable}, or correct it")
        if file and several_hosts and Path(file).name == "fastdds_localhost.xml":
            return failed(
                name,
                f"{variable} is the profile of this machine only, and the fleet has several computers",
                f"unset {variable}",
            )
    profiles = [
        environment.get(name, "") for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
    ]
    if environment.get("ROS_STATIC_PEERS") and not any(profiles) and fact.rmw in ("", _TESTED_RMW):
        return warning(
            name,
            "ROS_STATIC_PEERS reaches the first four processes of each computer, and later ones do not find each other",
            f"export {PROFILE_VARIABLE}={PEERS_PROFILE}",
        )
    narrow = environment.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    if environment.get("ROS_LOCALHOST_ONLY", "0") == "1":
        variable, value = "ROS_LOCALHOST_ONLY", "1"
    else:
        variable, value = "ROS_AUTOMATIC_DISCOVERY_RANGE", narrow
    if (value == "1" or value in _NARROW) and not environment.get("ROS_STATIC_PEERS"):
        make = failed if several_hosts else warning
        return make(name, f"{variable}={value}: other computers are not found", f"unset {variable}")
    server = environment.get("ROS_DISCOVERY_SERVER", "")
    return ok(name, f"by the server {server}" if server else f"{variable.lower().replace('ros_', '')} {value.lower()}")


def check_multicast(fact: RosFact, network: NetworkFact, *, several_hosts: bool) -> Finding:
    """Check that multicast packets arrive, by which DDS finds other computers unless a server or peers are named."""
    name = "multicast"
    if fact.environment.get("ROS_DISCOVERY_SERVER") or fact.environment.get("ROS_STATIC_PEERS"):
        return ok(name, "not needed: a discovery server or peers are named")
    if network.deaf and not network.heard:
        make = failed if several_hosts else warning
        listed = "; ".join(f"{interface}: {why}" for interface, why in network.deaf.items())
        interface = next(iter(network.deaf))
        return make(
            name,
            f"no interface receives it: {listed}",
            f"sudo ip link set {interface} multicast on; sudo ip route add 239.0.0.0/8 dev {interface}; "
            "sudo ufw allow proto udp to 239.0.0.0/8; or name the computers: export ROS_STATIC_PEERS='HOST;HOST'",
        )
    if not network.heard:
        make = failed if several_hosts else ok
        if make is ok:
            return ok(name, "no network: fleets of this machine only")
        return failed(name, "no network interface is up, and the fleet has several computers", "connect the network")
    between = "; between computers: `ros2 multicast receive` on one, `ros2 multicast send` on another"
    return ok(name, f"comes back on {', '.join(network.heard)}{between if several_hosts else ''}")


def check_security(fact: RosFact) -> Finding:
    """Check that the keystore of sros2 is there, if security is on."""
    name, environment = "DDS security", fact.environment
    if environment.get("ROS_SECURITY_ENABLE", "").lower() != "true":
        return ok(name, "off")
    store = environment.get("ROS_SECURITY_KEYSTORE", "")
    if not store or not Path(store).is_dir():
        return failed(
            name,
            f"on, and ROS_SECURITY_KEYSTORE is {store or 'not set'}{', which is no folder' if store else ''}",
            "testudo security fleet.yaml keys/, run its script, and export the variables that it prints",
        )
    return ok(name, f"on, keys in {store}")


def _lacks_rmw(fact: RosFact) -> bool:
    """Return whether ROS 2 does not start for want of the middleware that the environment asks for."""
    asked = fact.environment.get("RMW_IMPLEMENTATION", "")
    return bool(asked) and asked in fact.error


def _mixed(fact: RosFact) -> str:
    """Return the distributions that are mixed; empty if there is one, or none."""
    parts = [f"{one} (sourced)" for one in fact.sourced]
    if fact.wheels and fact.sourced:
        parts.append(f"{fact.wheels} (wheels in this Python)")
    return " and ".join(parts) if len(parts) > 1 else ""


def _distribution(fact: RosFact) -> str:
    if fact.wheels:
        return f"{fact.wheels}, from wheels"
    return ", ".join(fact.sourced) or "a distribution without a name"
