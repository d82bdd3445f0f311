"""Checks of a fleet file on this machine: the file, policies, hosts and key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testudo_deploy.authentication.fleet_key import NO_KEY, load_key
from testudo_deploy.contract.policy_archive import policy_sha256
from testudo_deploy.doctor.finding import Finding, failed, ok, warning
from testudo_deploy.doctor.ros_facts import unknown_hosts
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, load_fleet
from testudo_deploy.guard.speed_cap import cap_sentence, speed_cap_m_s
from testudo_hardware.errors import TestudoError


@dataclass(frozen=True)
class PolicyFact:
    """A policy file of a fleet."""

    path: str
    required_sha256: str
    found_sha256: str  # empty if the file cannot be read
    error: str  # why it, or the fleet with it, is refused; empty if it is not


@dataclass(frozen=True)
class FleetFacts:
    """What this machine holds of a fleet."""

    fleet: Fleet | None
    file: Path
    file_error: str = ""
    policies: tuple[PolicyFact, ...] = ()
    hosts: tuple[str, ...] = ()
    unknown_hosts: tuple[str, ...] = ()
    key_error: str = ""
    key_identifier: str = ""  # short name of the key, equal on all computers of the fleet; empty without a key

    @property
    def stamps_by_wall_clock(self) -> bool:
        """Return whether a robot's driver stamps its messages with a wall clock."""
        robots = () if self.fleet is None else self.fleet.robots
        return any(robot.link.profile.stamps.value == "ros" for robot in robots)


def fleet_facts(file: Path) -> FleetFacts:
    """Return the facts of a fleet file; errors are facts, too."""
    try:
        fleet = load_fleet(file)
    except TestudoError as error:
        return FleetFacts(None, file, file_error=str(error))
    hosts = tuple(dict.fromkeys(robot.host for robot in fleet.robots if robot.host))
    key_error = identifier = ""
    if fleet.key_file is not None:
        try:
            identifier = load_key(fleet.key_file).identifier
        except TestudoError as error:
            key_error = str(error)
    return FleetFacts(fleet, file, "", _policies(fleet), hosts, unknown_hosts(hosts), key_error, identifier)


def check_fleet_file(facts: FleetFacts) -> tuple[Finding, ...]:
    """Return the findings about a fleet file, its policies, hosts and key."""
    if facts.fleet is None:
        remedy = f"correct this line of {facts.file}; docs/hardware.md has an example"
        if not facts.file.is_file():
            remedy = "give the path of the fleet file; `testudo export RUN` writes one beside the policy"
        return (failed("fleet file", facts.file_error, remedy),)
    found = [ok("fleet file", f"{len(facts.fleet.robots)} robots: {', '.join(facts.fleet.names)}")]
    found += [check_policy(policy) for policy in facts.policies]
    found += [finding for robot in facts.fleet.robots if (finding := check_calibration(robot)) is not None]
    return (*found, check_hosts(facts), check_key(facts))


def check_calibration(robot: FleetRobot) -> Finding | None:
    """Check that a robot's file holds measured values, without which it is slow on hardware; None if it does."""
    sentence = cap_sentence(robot.spec, speed_cap_m_s(robot.spec, "", on_hardware=True))
    if not sentence:
        return None
    remedy = f"testudo calibrate {robot.name} --area 2x2, then name the file that it writes as `type`"
    return warning("calibration", f"{robot.name}: {sentence.partition(';')[0]}", remedy)


def check_policy(policy: PolicyFact) -> Finding:
    """Check that a policy file is there, is the one of the fleet file, and that its robots may start with it."""
    name = "policy"
    if not policy.found_sha256:
        return failed(
            name, policy.error, f"copy the policy file to {policy.path}, or correct `policy:` in the fleet file"
        )
    if policy.found_sha256 != policy.required_sha256.lower():
        return failed(
            name,
            f"{policy.path} has the hash {policy.found_sha256[:12]}..., the fleet file asks for "
            f"{policy.required_sha256[:12]}...",
            f"copy the file of the fleet here; if this one is right: policy_sha256: {policy.found_sha256}",
        )
    if policy.error:
        return failed(
            name, policy.error, "correct the place that the text names, or export the policy again: testudo export RUN"
        )
    return ok(name, f"{policy.path} ({policy.found_sha256[:12]}...)")


def check_hosts(facts: FleetFacts) -> Finding:
    """Check that every computer of the fleet has an address here."""
    name = "hosts"
    if facts.unknown_hosts:
        first = facts.unknown_hosts[0]
        return failed(
            name,
            f"{', '.join(facts.unknown_hosts)}: no address is known here",
            f"echo 'ADDRESS {first}' | sudo tee -a /etc/hosts, or correct `host:` in {facts.file}",
        )
    return ok(name, ", ".join(facts.hosts) or "all robots run where they are started")


def check_key(facts: FleetFacts) -> Finding:
    """Check that the fleet key is here, and readable by this user alone."""
    name, key = "fleet key", None if facts.fleet is None else facts.fleet.key_file
    if key is None:
        return warning(name, NO_KEY.partition(". Make")[0], f"testudo security {facts.file} --key")
    if facts.key_error:
        fix = f"chmod 600 {key}" if key.is_file() else f"copy {key.name} from the computer that made it to {key.parent}"
        return failed(name, facts.key_error, fix)
    return ok(name, f"{facts.key_identifier}; every computer of the fleet must show the same")


def _policies(fleet: Fleet) -> tuple[PolicyFact, ...]:
    refusal = _refusal(fleet)
    found: list[PolicyFact] = []
    for team in fleet.teams:
        try:
            sha256 = policy_sha256(team.policy)
        except TestudoError as error:
            found.append(PolicyFact(str(team.policy), team.policy_sha256, "", str(error)))
        else:
            found.append(PolicyFact(str(team.policy), team.policy_sha256, sha256, refusal))
    return tuple(found)


def _refusal(fleet: Fleet) -> str:
    """Return why the fleet may not start, as `testudo up` and the nodes would say; empty if it may."""
    try:
        check: Callable[[Fleet], object]
        from testudo_deploy.admission.fleet_admission import (  # noqa: PLC0415 -- loads onnxruntime
            checked_safety_contracts as check,
        )

        check(fleet)
    except TestudoError as error:
        return str(error)
    except ImportError as error:
        return f"the policy cannot be run here: {error}"
    return ""
