"""`testudo doctor`: checks this machine, a fleet file and a running fleet; one line and one remedy for each fault.

It works where nothing else does: it imports neither ROS 2 nor the policy's runtime before they are found to start.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from testudo_deploy.commands.report import Report
from testudo_deploy.doctor.finding import Finding, Level, failed, findings_values, has_failed, warning
from testudo_deploy.doctor.fleet_checks import FleetFacts, check_fleet_file, fleet_facts
from testudo_deploy.doctor.live_checks import check_live
from testudo_deploy.doctor.machine_checks import check_machine
from testudo_deploy.doctor.machine_facts import machine_facts
from testudo_deploy.doctor.ros_checks import check_ros
from testudo_deploy.doctor.ros_facts import RosFact, network_fact, ros_fact
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.launch.ros_domain import ros_domain_id
from testudo_hardware.errors import TestudoError

_FAILED = 1
_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILED: "bold red"}
_NAME_WIDTH = 17
_LONGEST_S = 600.0


def doctor(
    fleet: tyro.conf.Positional[Path | None] = None,
    seconds: float = 5.0,
    domain: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    local: bool = False,
    json: Path | None = None,
) -> int:
    """Check this machine, a fleet file, and the fleet if it runs; name each fault and what to do about it.

    One line for each check: ok, warning or failed. Nothing is changed and no robot is commanded. The exit status is 1
    if a check failed. Run it on every computer of a fleet: rights, clocks and keys are those of this one.

    Example:
        testudo doctor
        testudo doctor fleet.yaml --domain 42
        testudo doctor fleet.yaml --seconds 10 --json doctor.json

    Args:
        fleet: a fleet file; its policies, hosts and key are checked, and its robots if they are heard.
        seconds: time to listen to the robots [s]; 0 listens to none.
        domain: ROS_DOMAIN_ID; by default that of the environment.
        local: reach a fleet on this machine only, as `testudo up` starts it.
        json: also write the findings to this file.
    """
    if not 0 <= seconds <= _LONGEST_S:
        raise TestudoError(f"--seconds: found {seconds:g}, expected 0 to {_LONGEST_S:g} s")
    environment = dict(os.environ)
    if domain is not None:
        environment["ROS_DOMAIN_ID"] = str(ros_domain_id(domain))
    console = Console()
    found: list[Finding] = []

    def show(findings: Sequence[Finding]) -> None:
        found.extend(findings)
        for finding in findings:
            console.print(finding_text(finding), soft_wrap=True)

    facts = None if fleet is None else fleet_facts(fleet)
    several = facts is not None and len(facts.hosts) > 1
    machine = machine_facts()
    show(check_machine(machine, runs_fleet=facts is not None, needs_clock=bool(facts and facts.stamps_by_wall_clock)))
    ros = ros_fact(environment)
    show(check_ros(ros, network_fact(), machine.python, several_hosts=several))
    if facts is not None:
        show(check_fleet_file(facts))
        show(_live_findings(facts, ros, seconds, environment.get("ROS_DOMAIN_ID", "0"), local=local))
    console.print(_summary(found))
    Report(findings_values(found), ()).show(json)
    return _FAILED if has_failed(found) else 0


def finding_text(finding: Finding) -> Text:
    """Return a finding as a line, with its remedy in a second one."""
    text = Text.assemble(
        (f"{finding.level:<8}", _STYLES[finding.level]), f"{finding.check:<{_NAME_WIDTH}} {finding.found}"
    )
    if finding.remedy:
        text.append(f"\n{'':<8}{'do:':<{_NAME_WIDTH}} {finding.remedy}", style="cyan")
    return text


def _live_findings(facts: FleetFacts, ros: RosFact, seconds: float, domain: str, *, local: bool) -> Sequence[Finding]:
    name = "running fleet"
    if facts.fleet is None or not seconds:
        return ()
    if ros.error or not domain.isdecimal():
        what = "ROS 2 does not start" if ros.error else "its domain is no number"
        return (warning(name, f"not checked, as {what}", "see the lines above, then run this again"),)
    try:
        return check_live(facts.fleet, _hear(facts.fleet, seconds, int(domain), local=local))
    except TestudoError as error:
        return (failed(name, f"not heard: {error}", "see ROS distribution above"),)


def _hear(fleet: Fleet, seconds: float, domain_id: int, *, local: bool):  # noqa: ANN202 -- its type imports ROS
    from testudo_nodes.station.fleet_probe import hear_fleet  # noqa: PLC0415 -- ROS has been found to start

    return hear_fleet(fleet, seconds, ros_domain_id(domain_id), local=local)


def _summary(found: Sequence[Finding]) -> Text:
    counts = {level: sum(one.level == level for one in found) for level in Level}
    text = (
        f"{len(found)} checks: {counts[Level.OK]} ok, {counts[Level.WARNING]} warnings, {counts[Level.FAILED]} failed"
    )
    worst = Level.FAILED if counts[Level.FAILED] else Level.WARNING if counts[Level.WARNING] else Level.OK
    return Text(text, _STYLES[worst])
