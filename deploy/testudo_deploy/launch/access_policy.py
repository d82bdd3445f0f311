"""The sros2 access policy of a fleet: which process may use which topic and service; pure."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.launch_plan import ENCLAVES, WATCHERS, plan
from testudo_deploy.launch.node_interfaces import (
    DRIVER,
    OPERATOR,
    Interfaces,
    driver_interfaces,
    operator_interfaces,
    process_interfaces,
)

POLICY_FILE, SCRIPT_FILE, KEYSTORE = "policy.xml", "make_keystore.sh", "keystore"
_SCHEMA = "0.2.0"
"""Version of the policy files of sros2."""
_RULES = (
    ("services", "reply", "serves"),
    ("services", "request", "calls"),
    ("topics", "publish", "publishes"),
    ("topics", "subscribe", "subscribes"),
)


@dataclass(frozen=True)
class Enclave:
    """One set of keys, and what the process that holds it may do."""

    path: str
    """Path in the keystore, such as `/testudo/r0/guard`."""
    namespace: str
    """Namespace of the node, without a leading slash; empty for the root."""
    node: str
    robot: str
    """The robot whose computer needs the keys; empty: the station."""
    interfaces: Interfaces


def enclaves(fleet: Fleet, backend: str = "sim", *, lock_step: bool = False) -> tuple[Enclave, ...]:
    """Return the enclaves of all processes that a plan can start, of the operator and of the drivers of real robots.

    Args:
        fleet: the robots.
        backend: ``sim`` or ``hw``, as for the plan.
        lock_step: as for the plan.

    Raises:
        TestudoError: unknown backend, or lock-step without the plant.
    """
    processes = plan(fleet, run_folder=Path("run"), backend=backend, watch=WATCHERS, lock_step=lock_step)
    found = [
        Enclave(process.enclave, process.namespace, process.name, process.namespace, process_interfaces(process, fleet))
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
    """Return the policy file of sros2; sros2 denies everything that is not in it."""
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
    """Return the shell script that makes keys and signed permissions with sros2 in the folder of the policy file.

    Args:
        found: the enclaves.
        domain_id: the ROS domain; permissions are valid in this domain only.
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
    """Return the shell commands that turn security on for processes started after them."""
    return (
        f"export ROS_SECURITY_KEYSTORE={shlex.quote(keystore)}",
        "export ROS_SECURITY_ENABLE=true",
        "export ROS_SECURITY_STRATEGY=Enforce",
        f"export ROS_DOMAIN_ID={domain_id}",
    )
