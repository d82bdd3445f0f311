"""Reads the contract of a policy file: version, keys and types, hash, and the rules that it must meet."""

from __future__ import annotations

import json
from typing import Any

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.parts import FAMILY, VERSION, PolicyContractError
from testudo_deploy.contract.rules import check_contract
from testudo_deploy.shield.projection_margins import SHIELD_VERSION
from testudo_hardware.files.strict_json import read_as


def read_contract(text: str, where: str = "contract") -> Contract:
    """Read what `Contract.to_json` wrote; ``where`` names the file in errors.

    Raises:
        ContractError: not JSON, a newer version, an unknown or missing key, a wrong type, a
            number that is not finite, or fields that contradict each other.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyContractError(f"{where}: not JSON: {error}; export the policy again") from error
    if not isinstance(values, dict):
        raise PolicyContractError(f"{where}: found {type(values).__name__}, expected an object")
    _check_version(values, where)
    stored_hash = values.pop("contract_hash", None)
    contract: Contract = read_as(Contract, values, where, PolicyContractError)
    if stored_hash != contract.contract_hash:
        raise PolicyContractError(
            f"{where}.contract_hash: found {stored_hash!r}, expected "
            f"{contract.contract_hash!r}: shield, timing or robot were edited; export again"
        )
    check_contract(contract, where)
    return contract


def _check_version(values: dict[str, Any], where: str) -> None:
    """Refuse another version before its keys are looked at, which may differ."""
    found = values.get("version")
    if found != VERSION:
        number = found.removeprefix(FAMILY) if isinstance(found, str) else ""
        newer = number.isdecimal() and int(number) > int(VERSION.removeprefix(FAMILY))
        raise PolicyContractError(
            f"{where}.version: found {found!r}, expected {VERSION!r}; "
            + ("update this software" if newer else "export the policy again")
        )
    shield = values.get("shield")
    version = shield.get("version") if isinstance(shield, dict) else None
    if version != SHIELD_VERSION:
        raise PolicyContractError(
            f"{where}.shield.version: found {version!r}, expected {SHIELD_VERSION}: the policy was "
            "trained with another shield; export it again with this version"
        )
