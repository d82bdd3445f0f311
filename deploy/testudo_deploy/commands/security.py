"""`testudo security`: writes the sros2 access policy of a fleet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.commands.report import Report, table
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.access_policy import (
    KEYSTORE,
    POLICY_FILE,
    SCRIPT_FILE,
    Enclave,
    enclaves,
    environment_lines,
    keystore_script,
    policy_xml,
)
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_hardware.errors import TestudoError


def security(
    fleet: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    backend: Literal["sim", "hw"] = "sim",
    lock_step: bool = False,
    domain: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    json: Path | None = None,
) -> None:
    """Write the sros2 access policy of a fleet, and a script that makes its keys.

    Each process gets its own enclave with exactly the topics and services that it uses: only the guard of a robot may
    publish its commands, only its policy may command the guard. The script needs sros2 (`ros2 security`).

    Example:
        testudo security fleet.yaml keys/
        testudo security fleet.yaml keys/ --backend hw --domain 7

    Args:
        fleet: the fleet file.
        out: the folder to write policy.xml and make_keystore.sh into.
        backend: sim for the plant, hw for real robots, whose drivers get keys, too.
        lock_step: for fleets that run in lock-step.
        domain: ROS_DOMAIN_ID in which the permissions are valid; by default that of the environment.
        json: also write the permissions of each enclave to this file.
    """
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
