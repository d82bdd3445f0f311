"""The sros2 policy of a fleet, from the plan that starts its processes: who may speak on what; pure."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.launch_plan import WATCHERS, plan
from testudo_deploy.launch.node_interfaces import (
    DRIVER,
    OPERATOR,
    Interfaces,
    driver_interfaces,
    operator_interfaces,
    process_interfaces,
)
from testudo_deploy.launch.sros2_enclave import ENCLAVES, enclave_of

POLICY_FILE, SCRIPT_FILE, KEYSTORE = "policy.xml", "make_keystore.sh", "keystore"
_SCHEMA = "0.2.0"
"""Of sros2's policy files."""
_RULES = (
    ("services", "reply", "serves"),
    ("services", "request", "calls"),
    ("topics", "publish", "publishes"),
    ("topics", "subscribe", "subscribes"),
)


@dataclass(frozen=True)
class Enclave:
    """One set of keys, and what its owner may do."""

    path: str
    """In the keystore, such as `/testudo/r0/guard`."""
    namespace: str
    """Of its node, without a leading slash; empty for the root."""
    node: str
    robot: str
    """Whose computer needs the keys; empty: that of the station."""
    interfaces: Interfaces


def enclaves(fleet: Fleet, backend: str = "sim", *, lock_step: bool = False) -> tuple[Enclave, ...]:
    """Return the enclaves of all that a plan can start, of the operator and, on real robots, of their drivers.

    Args:
        fleet: the robots.
        backend: of the plan: ``sim`` or ``hw``.
        lock_step: of the plan.

    Raises:
        TestudoError: unknown backend, or lock-step without the plant.
    """
    processes = plan(fleet, run_folder=Path("run"), backend=backend, watch=WATCHERS, lock_step=lock_step)
    found = [
        Enclave(
            enclave_of(process), process.namespace, process.name, process.namespace, process_interfaces(process, fleet)
        )
        for process in processes
    ]
    if backend == "hw":
        found += [
            Enclave(f"{ENCLAVES}/{name}/{DRIVER}", name, DRIVER, name, driver_interfaces(fleet, name))
            for name in fleet.names
            if fleet.robot(name).link.profile.driver is None
        ]
    return (*found, Enclave(f"{ENCLAVES}/{OPERATOR}", "", OPERATOR, "", operator_interfaces(fleet)))


def policy_xml(found: Iterable[Enclave]) -> str:
    """Return the policy file of sros2: what is not in it is denied."""
    policy = ET.Element("policy", version=_SCHEMA)
    group = ET.SubElement(policy, "enclaves")
    for enclave in found:
        profiles = ET.SubElement(ET.SubElement(group, "enclave", path=enclave.path), "profiles")
        profile = ET.SubElement(profiles, "profile", ns=f"/{enclave.namespace}", node=enclave.node)
        for kind, rule, field in _RULES:
            names = getattr(enclave.interfaces, field)
            if not names:
                continue
            listed = ET.SubElement(profile, kind, {rule: "ALLOW"})
            for name in sorted(names):
                ET.SubElement(listed, kind.removesuffix("s")).text = name
    ET.indent(policy)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(policy, encoding="unicode")}\n'


def keystore_script(found: Iterable[Enclave], domain_id: int) -> str:
    """Return the shell script that makes keys and signed permissions with sros2, beside the policy file.

    Args:
        found: whom to make keys for.
        domain_id: the ROS domain; permissions hold in no other.
    """
    paths = " \\\n    ".join(shlex.quote(enclave.path) for enclave in found)
    return f"""#!/bin/sh
# Makes the keys of a fleet and signs what each process may do. Needs ROS 2 with sros2 and its set-up file sourced.
# Run again, it keeps keys and signs the permissions anew. {KEYSTORE}/private belongs on no robot.
set -eu
cd "$(dirname "$0")"
export ROS_DOMAIN_ID={domain_id}  # permissions hold in this domain only
[ -d {KEYSTORE} ] || ros2 security create_keystore {KEYSTORE}
for enclave in \\
    {paths}
do
    ros2 security create_enclave {KEYSTORE} "$enclave"
    ros2 security create_permission {KEYSTORE} "$enclave" {POLICY_FILE}
done
"""


def environment_lines(keystore: str, domain_id: int) -> tuple[str, ...]:
    """Return the lines of a shell that turn security on for what is started after them."""
    return (
        f"export ROS_SECURITY_KEYSTORE={shlex.quote(keystore)}",
        "export ROS_SECURITY_ENABLE=true",
        "export ROS_SECURITY_STRATEGY=Enforce",
        f"export ROS_DOMAIN_ID={domain_id}",
    )
