"""The messages by which an operator gives a running fleet another policy file, and how each process answers."""

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.messages import Envelope
from testudo_deploy.contract.policy_archive import policy_sha256
from testudo_hardware.errors import TestudoError

REST, CHECK, STOP, RECORD, BEGIN = "rest", "check", "stop", "record", "begin"
STEPS: dict[str, tuple[str, ...]] = {
    REST: ("policy",),
    CHECK: ("guard", "policy", "task", "recorder"),
    STOP: ("policy",),
    RECORD: ("recorder",),
    BEGIN: ("guard", "policy", "task"),
}
"""The steps of a change in their order, and the kinds of process that each of them is for. Robots that
drive refuse before any process is busy with the check. The recorder begins a new run while no robot has a policy, so
that a run holds one policy, and that from its first tick on."""

_SAME = (
    "robot",
    "robot_sha256",
    "control_period_s",
    "decision_ticks",
    "dead_man_s",
    "command.type",
    "command.message_size",
    "arena",
    "shield",
    "contract_hash",
)
"""Values of the contract that another policy file must share, in the order in which a refusal names them."""


class PolicyChangeError(TestudoError):
    """A change of the policy is refused."""


@dataclass(frozen=True)
class PolicyChange(Envelope):
    """One step of a change, for all processes of a fleet."""

    SCHEMA = "testudo/policy-change/1"

    change: str  # names the change; a step that is sent again is answered again and changes nothing
    step: str  # one of `STEPS`
    policy: str  # path of the file on the operator's computer
    policy_sha256: str  # of its bytes


@dataclass(frozen=True)
class PolicyInUse(Envelope):
    """What a process says of its policy: with each step of a change, and once a second."""

    SCHEMA = "testudo/policy-in-use/1"

    process: str  # `task`, `r0/guard`
    policy_sha256: str  # empty while it has none
    contract: str  # `Contract.contract_hash`; empty with it
    change: str = ""  # that it answers; empty: no answer
    step: str = ""
    accepted: bool = True
    sentence: str = ""  # why it is refused, or what it did


def in_use_topic(process: str) -> str:
    """Return the topic on which a process says its `PolicyInUse`; each has its own, as each signs by itself."""
    return f"/{process}/policy_in_use"


def policy_here(change: PolicyChange, present: Path) -> Path:
    """Return the file of a change on this computer: by the operator's path, or with that name beside the present file.

    Raises:
        PolicyChangeError: neither is the file with the hash of the change.
    """
    asked = Path(change.policy)
    places = [place for place in (asked, present.parent / asked.name) if place.is_absolute()]
    for place in places:
        try:
            if policy_sha256(place) == change.policy_sha256.lower():
                return place
        except TestudoError:
            continue
    where = " and ".join(map(str, dict.fromkeys(places)))
    raise PolicyChangeError(
        f"policy: found no file with the sha256 {change.policy_sha256} at {where}, expected it; copy the file there"
    )


def check_exchange(present: Contract, other: Contract, file: Path) -> None:
    """Check that a policy file may take the place of another one in a fleet that stays up.

    Shield, arena, robot, timing and messages must be the same: the margins of guards, plant and peers rest on them.

    Raises:
        PolicyChangeError: naming what differs, with both values.
    """
    for name in _SAME:
        found, wanted = (attrgetter(name)(contract) for contract in (other, present))
        if found != wanted:
            raise PolicyChangeError(
                f"{file}: contract.{name}: found {found}, expected {wanted} as in the present policy; "
                "end the fleet and start it with the new file"
            )
