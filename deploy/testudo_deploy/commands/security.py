"""`testudo security`: makes the key of a fleet, or the sros2 policy: which process may use which topic and service."""

from __future__ import annotations

import os
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.authentication.fleet_key import new_key, write_key
from testudo_deploy.commands.report import Report, table
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_deploy.launch.launch_plan import ENCLAVES, WATCHERS, plan
from testudo_deploy.launch.process_interfaces import (
    Interfaces,
    driver_interfaces,
    operator_interfaces,
    process_interfaces,
)
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_deploy.launch.topic_names import DRIVER, OPERATOR
from testudo_hardware.errors import TestudoError

POLICY_FILE, SCRIPT_FILE, KEYSTORE = "policy.xml", "make_keystore.sh", "keystore"
_SCHEMA = "0.2.0"  # version of the policy files of sros2
_RULES = (
    ("services", "reply", "serves"),
    ("services", "request", "calls"),
    ("topics", "publish", "publishes"),
    ("topics", "subscribe", "subscribes"),
)


def security(
    fleet: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path | None] = None,
    key: bool = False,
    backend: Literal["sim", "hw"] = "sim",
    lock_step: bool = False,
    domain: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    json: Path | None = None,
) -> None:
    """Make the key of a fleet, or write its sros2 access policy and a script that makes the keys for that.

    With --key: a file beside the fleet file, named in it as `key_file`. The processes of the fleet then sign their
    messages and refuse others; this needs nothing but the key on each computer.

    With a folder: each process gets its own enclave with exactly the topics and services that it uses: only the guard
    of a robot may publish its commands, only its policy may command the guard. The script needs sros2.

    Example:
        testudo security fleet.yaml --key
        testudo security fleet.yaml keys/
        testudo security fleet.yaml keys/ --backend hw --domain 7

    Args:
        fleet: the fleet file.
        out: the folder to write policy.xml and make_keystore.sh into.
        key: make the fleet key.
        backend: sim for the plant, hw for real robots, whose drivers get keys, too.
        lock_step: for fleets that run in lock-step.
        domain: ROS_DOMAIN_ID in which the permissions are valid; by default that of the environment.
        json: also write the permissions of each enclave to this file.
    """
    if key:
        add_key(load_fleet(fleet))
    if out is None:
        if not key:
            raise TestudoError("security: found neither --key nor a folder for the sros2 policy, expected one of them")
        return
    domain_id = ros_domain_id(domain)
    found = enclaves(load_fleet(fleet), backend, lock_step=lock_step)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / POLICY_FILE).write_text(policy_xml(found), encoding="utf-8")
        script = out / SCRIPT_FILE
        script.write_text(keystore_script(found, domain_id), encoding="utf-8")
        script.chmod(0o755)
    except OSError as error:
        raise TestudoError(f"{out}: cannot be written: {error.strerror}") from error
    _report(found, domain_id).show(json)
    lines = (
        f"wrote {out / POLICY_FILE} and {script}",
        f"next: {script}   (once, on a computer that stays in the lab; it makes {out / KEYSTORE})",
        "then on each computer, in the shell that starts its processes:",
        *(f"    {line}" for line in environment_lines(os.fspath((out / KEYSTORE).absolute()), domain_id)),
    )
    for line in lines:
        Console().print(Text(line), soft_wrap=True)


def add_key(fleet: Fleet) -> None:
    """Make the key of a fleet beside its file, name it there, and keep it out of a git repository around it.

    Raises:
        FleetKeyError: there is a key already, or it cannot be written.
        TestudoError: the fleet file cannot be written.
    """
    file = fleet.key_file or fleet.file.absolute().with_suffix(".key")
    key = new_key()
    write_key(key, file)
    try:
        if fleet.key_file is None:
            text = fleet.file.read_text(encoding="utf-8")
            fleet.file.write_text(f"{text.rstrip()}\nkey_file: {file.name}\n", encoding="utf-8")
        if any((folder / ".git").exists() for folder in file.parents):
            _add_line(file.parent / ".gitignore", file.name)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise TestudoError(f"{fleet.file}: cannot be written: {error.strerror}; no key was made") from error
    lines = (
        f"wrote the fleet key {key.identifier} to {file}, and key_file: {file.name} to {fleet.file}",
        "next: copy both to every computer of the fleet, by a safe way; each holder of the key can drive the robots",
    )
    for line in lines:
        Console().print(Text(line), soft_wrap=True)


def _add_line(file: Path, line: str) -> None:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in text.splitlines():
        file.write_text(f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n", encoding="utf-8")


def _report(found: tuple[Enclave, ...], domain_id: int) -> Report:
    names = ("publishes", "subscribes", "serves", "calls")
    rows = [
        (item.path, item.robot or "station", *(len(getattr(item.interfaces, name)) for name in names)) for item in found
    ]
    values = {
        "schema": "testudo/security/1",
        "domain_id": domain_id,
        "enclaves": {item.path: {name: sorted(getattr(item.interfaces, name)) for name in names} for item in found},
    }
    return Report(
        values, (table("Enclaves: number of permitted topics and services", ("enclave", "keys on", *names), rows),)
    )


@dataclass(frozen=True)
class Enclave:
    """One set of keys, and what the process that holds it may do."""

    path: str  # path in the keystore, such as `/testudo/r0/guard`
    namespace: str  # namespace of the node, without a leading slash; empty for the root
    node: str
    robot: str  # the robot whose computer needs the keys; empty: the station
    interfaces: Interfaces


def enclaves(fleet: Fleet, backend: str = "sim", *, lock_step: bool = False) -> tuple[Enclave, ...]:
    """Return the enclaves of all processes that a plan can start, of the operator and of the drivers of real robots.

    ``backend`` and ``lock_step`` are those of the plan.

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

    The permissions are valid in this ROS domain only.
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
