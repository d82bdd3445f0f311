"""Another policy file for a fleet that stays up: what every process that uses it checks by itself."""

from dataclasses import replace

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.contract.policy_change import PolicyChange, check_exchange, policy_here
from testudo_deploy.fleet.fleet import Fleet


def exchanged(fleet: Fleet, present: Contract, change: PolicyChange) -> tuple[Fleet, Contract]:
    """Return a fleet with the policy file of a change, and its contract; nothing else of the fleet changes.

    ``fleet.policy`` is the present file on this computer, which may have been written over since it was read, and
    ``present`` its contract.

    Raises:
        PolicyChangeError: the file is not here, or not for this robot, shield, arena and timing (`check_exchange`).
        TestudoError: the file cannot be read, or has no valid contract.
    """
    file = policy_here(change, fleet.policy)
    other = read_policy_contract(file, change.policy_sha256)
    check_exchange(present, other, file)
    return replace(fleet, policy=file, policy_sha256=change.policy_sha256), other
