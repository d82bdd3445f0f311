"""The contract inside `policy.onnx`: what goes in, what comes out, for which robot, at which times.

It is one JSON value in the metadata of the file (key `testudo`), with numbers at full precision.
`rules.py` says which contracts hold, `contract_reader.py` reads one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from testudo_deploy.contract.parts import (
    HOLD_RULE,
    METADATA_KEY,
    VERSION,
    Command,
    PolicyContractError,
    Signal,
    TestVector,
)
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.velocity_projection import Arena

__all__ = [
    "HOLD_RULE",
    "METADATA_KEY",
    "VERSION",
    "Command",
    "Contract",
    "PolicyContractError",
    "Signal",
    "TestVector",
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
    shield: ProjectionParameters
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
            PolicyContractError: a number is not finite, or a value is of a type that JSON has not.
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
            raise PolicyContractError(f"contract: cannot be written as JSON: {error}") from error
