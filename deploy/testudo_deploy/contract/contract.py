"""The contract inside `policy.onnx`: signals, command, robot, times, shield; and the signals that a policy reads.

It is one JSON value in the metadata of the file (key `testudo`), with numbers at full precision. `rules.py` reads and
checks one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.velocity_projection import Arena, PeerTable, extrapolated
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.errors import TestudoError
from testudo_hardware.links import link_profile
from testudo_hardware.motion import MotionState, StoppingPoint
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL

FAMILY = "testudo/contract/"
VERSION = FAMILY + "1"
METADATA_KEY = "testudo"
NEIGHBOURS = "neighbours"
COMMAND_TYPE = link_profile.CONTROL_POINT_VELOCITY
VELOCITY_YAW_RATE = link_profile.VELOCITY_YAW_RATE
ATTITUDE_THRUST = "attitude_thrust"
MOTOR_THRUSTS = "motor_thrusts"
WAYPOINT = "waypoint_world"
HOLD_RULE = "zero_order_hold_world"


class PolicyContractError(TestudoError):
    """A contract cannot be read, contradicts itself, or does not fit the robot."""


@dataclass(frozen=True)
class Signal:
    """One named input of the graph; the graph adds a leading batch axis."""

    name: str
    shape: tuple[int | str, ...]  # lengths; `neighbours` is the number of neighbour slots, any number
    unit: str
    frame: str  # `world`, `body`, or empty where no frame applies
    max_age_s: float | None  # largest age of a usable value [s]; None where age is an input itself or has no meaning


@dataclass(frozen=True)
class Command:
    """Meaning of the graph's output `command`."""

    type: str
    unit: str
    limit: float
    """Largest length of the velocity [m/s], also of one to a way-point; of attitude and motor commands the largest
    limit of a channel."""
    limits: tuple[tuple[float, float], ...] = field(default=(), metadata=OPTIONAL)
    """Lowest and highest value by channel; of a velocity only that of the yaw rate, where there is one."""
    gain_per_s: float = field(default=0.0, metadata=OPTIONAL)
    """Of a way-point: velocity over distance, see `WaypointTracking`; 0 for all other commands."""
    message_size: int = field(default=0, metadata=OPTIONAL)
    """Numbers in the graph's output `message`, a learned message to the peers; 0 is a policy without that output."""


@dataclass(frozen=True)
class TestVector:
    """Inputs and their expected outputs by name, as nested lists with a batch axis."""

    __test__: ClassVar[bool] = False  # pytest collects names that begin with "Test"

    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @classmethod
    def from_arrays(cls, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> TestVector:
        """Return the vector of float32 arrays (B, ...) by name."""
        sides = (
            {name: np.asarray(array, np.float32).tolist() for name, array in side.items()} for side in (inputs, outputs)
        )
        return cls(*sides)


@dataclass(frozen=True)
class Contract:
    """What a policy file needs and guarantees; lengths m, times s."""

    version: str
    scenario: str
    robot: str
    robot_spec: dict[str, Any]  # `RobotSpec.to_dict()` of the robot that the policy was trained for
    robot_sha256: str
    dimension: int
    signals: tuple[Signal, ...]  # inputs of the graph without the hidden state
    command: Command
    hidden_size: int  # length of `hidden` and `hidden_next`; 0 is a policy without memory
    control_period_s: float  # period of the shield
    decision_ticks: int  # number of control ticks between runs of the policy
    hold_rule: str  # the nominal command between decisions
    dead_man_s: float  # time without commands after which the driver stops the robot (T_dm)
    arena: Arena | None
    team_size: int  # robots in training; the file runs with any number
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
        """Return the hash of what peers depend on: shield, timing, robot, and the length of a learned message."""
        relied_on = {
            "shield": self.shield.to_dict(),
            "control_period_s": self.control_period_s,
            "dead_man_s": self.dead_man_s,
            "decision_ticks": self.decision_ticks,
            "robot_sha256": self.robot_sha256,
        }
        if self.command.message_size:
            relied_on["message_size"] = self.command.message_size
        return hashlib.sha256(json.dumps(relied_on, sort_keys=True).encode()).hexdigest()

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """Return the signals of the task: those that a robot does not have by itself."""
        return tuple(signal for signal in self.signals if signal.name not in OWN_SIGNALS)

    @property
    def task_hash(self) -> str:
        """Return the hash of what the task node must share with the robots: scenario, signals of the task, contract."""
        shared = {
            "contract": self.contract_hash,
            "scenario": self.scenario,
            "signals": [asdict(signal) for signal in self.task_signals],
        }
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()

    def replace(self, **changes: Any) -> Contract:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> str:
        """Return the JSON text.

        Raises:
            PolicyContractError: a number is not finite, or a value has no JSON form.
        """
        values: dict[str, Any] = asdict(self)
        values |= {"shield": self.shield.to_dict(), "contract_hash": self.contract_hash}
        for name in ("limits", "gain_per_s", "message_size"):  # left out, so that older software reads the file
            if not values["command"][name]:
                values["command"].pop(name)
        try:
            return json.dumps(values, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise PolicyContractError(f"contract: cannot be written as JSON: {error}") from error


NEIGHBOUR_MESSAGE = "neighbour_message"
NEIGHBOUR_SIGNALS = (
    "neighbour_position_world",
    "neighbour_velocity_world",
    "neighbour_age",
    "neighbour_valid",
    NEIGHBOUR_MESSAGE,
)
OWN_SIGNALS = ("position_world", "yaw", "velocity", "control_point_world", *NEIGHBOUR_SIGNALS)
"""Names of the signals that every robot has by itself, see `robot_signals`."""


def robot_signals(spec: RobotSpec, message_size: int = 0) -> tuple[Signal, ...]:
    """Return the signals of every robot of this kind; a scenario adds those of its task.

    With a ``message_size`` the last one is the learned messages of the peers.
    """
    size, age = spec.dimension, spec.pose_max_age_s
    wheeled = spec.kind == DIFFERENTIAL_DRIVE
    unit, frame = ("m/s, rad/s", "body") if wheeled else ("m/s", "world")
    heard = (Signal(NEIGHBOUR_MESSAGE, (NEIGHBOURS, message_size), "-1 to 1", "", None),) if message_size else ()
    return (
        Signal("position_world", (size,), "m", "world", age),
        Signal("yaw", (1,), "rad", "world", age),
        Signal("velocity", (size,), unit, frame, age),
        Signal("control_point_world", (size,), "m", "world", age),
        Signal("neighbour_position_world", (NEIGHBOURS, size), "m", "world", None),
        Signal("neighbour_velocity_world", (NEIGHBOURS, size), "m/s", "world", None),
        Signal("neighbour_age", (NEIGHBOURS,), "s", "", None),
        Signal("neighbour_valid", (NEIGHBOURS,), "0 or 1", "", None),
        *heard,
    )


def policy_signals(
    estimate: MotionState, stop: StoppingPoint, table: PeerTable, hold_s: float, task: Mapping[str, Array]
) -> dict[str, Array]:
    """Return every signal by its name in the contract, component first: (D, ...) or (D, K, ...).

    Args:
        estimate: the delay-compensated own state.
        stop: its stopping point.
        table: the neighbours, slots (K, ...).
        hold_s: longest extrapolation of an announced velocity.
        task: the scenario's own signals, for example ``goal_world`` (D, ...) [m].
    """
    xp = array_namespace(table.age_s)
    dtype = stop.position_world.dtype
    heard = {} if table.message is None else {NEIGHBOUR_MESSAGE: table.message}
    return {
        "position_world": estimate.position_world,
        "yaw": estimate.yaw[None, ...],
        "velocity": estimate.velocity,
        "control_point_world": stop.position_world,
        "neighbour_position_world": extrapolated(table, hold_s),
        "neighbour_velocity_world": table.control_velocity_world,
        "neighbour_age": table.age_s,
        "neighbour_valid": xp.astype(table.valid, dtype),
        **heard,
        **task,
    }


def slots_first(signals: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the signals of one robot with the component last: (D,), (K, D) and (K,)."""
    return {name: value.T for name, value in signals.items()}
