"""The parts of a contract: signal, command, test vector, and the names that are fixed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.files.strict_json import OPTIONAL
from testudo_hardware.links import link_profile

FAMILY = "testudo/contract/"
VERSION = FAMILY + "1"
METADATA_KEY = "testudo"
NEIGHBOURS = "neighbours"
COMMAND_TYPE = link_profile.CONTROL_POINT_VELOCITY
VELOCITY_YAW_RATE = link_profile.VELOCITY_YAW_RATE
ATTITUDE_THRUST = "attitude_thrust"
MOTOR_THRUSTS = "motor_thrusts"
HOLD_RULE = "zero_order_hold_world"


class PolicyContractError(TestudoError):
    """A contract cannot be read, contradicts itself, or is for something else than is here."""


@dataclass(frozen=True)
class Signal:
    """One named input of the graph; the graph adds a leading batch axis."""

    name: str
    shape: tuple[int | str, ...]
    """Lengths; `neighbours` is one entry for each neighbour slot, any number."""
    unit: str
    frame: str
    """`world`, `body`, or empty where no frame applies."""
    max_age_s: float | None
    """Oldest value that may be used [s]; None where age is an input itself or means nothing."""


@dataclass(frozen=True)
class Command:
    """What the graph's output `command` means."""

    type: str
    unit: str
    limit: float
    """Largest length of the velocity [m/s]; of a type below velocities the largest of its limits by channel."""
    limits: tuple[tuple[float, float], ...] = field(default=(), metadata=OPTIONAL)
    """Lowest and highest value by channel; of a velocity only that of the yaw rate, where there is one."""


@dataclass(frozen=True)
class TestVector:
    """Inputs and the outputs that they must give, by name, as nested lists with a batch axis."""

    __test__: ClassVar[bool] = False  # pytest collects names that begin with "Test"

    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @classmethod
    def from_arrays(cls, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> TestVector:
        """Return the vector of float32 arrays (B, ...) by name."""
        return cls(
            {name: np.asarray(array, np.float32).tolist() for name, array in inputs.items()},
            {name: np.asarray(array, np.float32).tolist() for name, array in outputs.items()},
        )
