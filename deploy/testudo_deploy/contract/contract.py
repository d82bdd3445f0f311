"""The contract inside `policy.onnx`: what goes in, what comes out, for which robot, at which times.

It is one JSON value in the metadata of the file (key `testudo`), with numbers at full precision.
`contract_rules.py` says which contracts hold.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from testudo_deploy.contract.parts import (
    FAMILY,
    HOLD_RULE,
    METADATA_KEY,
    VERSION,
    Command,
    ContractError,
    Signal,
    TestVector,
)
from testudo_deploy.contract.rules import check_contract, robot_signals
from testudo_deploy.shield.projection_margins import SHIELD_VERSION, ShieldParameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.strict import read_as

__all__ = [
    "HOLD_RULE",
    "METADATA_KEY",
    "VERSION",
    "Command",
    "Contract",
    "ContractError",
    "Signal",
    "TestVector",
    "robot_signals",
]


@dataclass(frozen=True)
class Contract:
    """What a policy file promises and asks for; lengths m, times s."""

    version: str
    scenario: str
    robot: str
    robot_spec: dict[str, Any]
    """`RobotSpec.to_dict()` of the robot that the policy was trained for."""
    robot_sha256: str
    dimension: int
    signals: tuple[Signal, ...]
    """Inputs of the graph, the hidden state left out."""
    command: Command
    hidden_size: int
    """Length of `hidden` and `hidden_next`; 0 is a policy without memory."""
    control_period_s: float
    """The shield runs once in it."""
    decision_ticks: int
    """The policy runs at every so many control ticks."""
    hold_rule: str
    """What becomes of the nominal command between decisions."""
    dead_man_s: float
    """The driver stops the robot when no command came for so long (T_dm)."""
    arena: Arena | None
    team_size: int
    """Robots in training; the file runs with any number."""
    shield: ShieldParameters
    provenance: dict[str, Any] = field(repr=False)
    evaluation: dict[str, Any] = field(repr=False)
    parity: dict[str, Any] = field(repr=False)
    test_vector: TestVector = field(repr=False)

    @property
    def decision_period_s(self) -> float:
        """Return the time between two runs of the policy."""
        return self.decision_ticks * self.control_period_s

    @property
    def contract_hash(self) -> str:
        """Return the hash of what peers rely on: shield, timing and robot."""
        relied_on = {
            "shield": self.shield.to_dict(),
            "control_period_s": self.control_period_s,
            "dead_man_s": self.dead_man_s,
            "decision_ticks": self.decision_ticks,
            "robot_sha256": self.robot_sha256,
        }
        return hashlib.sha256(json.dumps(relied_on, sort_keys=True).encode()).hexdigest()

    def replace(self, **changes: Any) -> Contract:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> str:
        """Return the JSON text.

        Raises:
            ContractError: a number is not finite, or a value is of a type that JSON has not.
        """
        values = asdict(self) | {
            "shield": self.shield.to_dict(),
            "contract_hash": self.contract_hash,
        }
        if not self.command.limits:  # what says nothing is left out, so that software from before it reads the file
            values["command"].pop("limits")
        try:
            return json.dumps(values, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ContractError(f"contract: cannot be written as JSON: {error}") from error

    @classmethod
    def from_json(cls, text: str, where: str = "contract") -> Contract:
        """Read what `to_json` wrote; ``where`` names the file in errors.

        Raises:
            ContractError: not JSON, a newer version, an unknown or missing key, a wrong type, a
                number that is not finite, or fields that contradict each other.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ContractError(f"{where}: not JSON: {error}; export the policy again") from error
        if not isinstance(values, dict):
            raise ContractError(f"{where}: found {type(values).__name__}, expected an object")
        _check_version(values, where)
        stored_hash = values.pop("contract_hash", None)
        contract: Contract = read_as(cls, values, where, ContractError)
        if stored_hash != contract.contract_hash:
            raise ContractError(
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
        raise ContractError(
            f"{where}.version: found {found!r}, expected {VERSION!r}; "
            + ("update this software" if newer else "export the policy again")
        )
    shield = values.get("shield")
    version = shield.get("version") if isinstance(shield, dict) else None
    if version != SHIELD_VERSION:
        raise ContractError(
            f"{where}.shield.version: found {version!r}, expected {SHIELD_VERSION}: the policy was "
            "trained with another shield; export it again with this version"
        )
