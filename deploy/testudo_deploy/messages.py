"""What travels in envelopes: the peer-state message and the record of one control tick.

Both are JSON in a `std_msgs/UInt8MultiArray`, one object with a ``schema`` key, floats at full precision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Self

from testudo_hardware.errors import TestudoError

Vector = tuple[float, ...]
Lane = tuple[Vector, Vector]
"""Both ends (D,) [m] of a lane, see `shield/space.py`."""


class EnvelopeError(TestudoError):
    """An envelope cannot be read: not JSON, another schema, or a missing or non-finite value."""


@dataclass(frozen=True)
class Envelope:
    """What travels as JSON in bytes; a subclass names its schema."""

    SCHEMA = ""

    def encode(self) -> bytes:
        """Return the envelope's bytes.

        Raises:
            EnvelopeError: a number is not finite.
        """
        try:
            # not `asdict`, which copies: all values are numbers, texts, tuples and dictionaries of these
            return json.dumps({"schema": self.SCHEMA, **vars(self)}, allow_nan=False).encode()
        except ValueError as error:
            raise EnvelopeError(f"{self.SCHEMA}: a value is not finite") from error

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` wrote.

        Raises:
            EnvelopeError: the bytes do not hold such an envelope.
        """
        try:
            values = json.loads(bytes(data), parse_constant=_refuse_constant)
            if values.pop("schema") != cls.SCHEMA:
                raise EnvelopeError(f"envelope: expected schema {cls.SCHEMA}")
            return cls(**{field.name: _frozen(values[field.name]) for field in fields(cls)})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise EnvelopeError(f"{cls.SCHEMA}: unreadable envelope: {error!r}") from error


@dataclass(frozen=True)
class PeerMessage(Envelope):
    """What a robot announces at every tick. Frame: the fleet's shared world."""

    SCHEMA = "testudo/peer/2"

    robot: str
    epoch: str
    """New at each start of the process; sequence numbers count within it."""
    sequence: int
    stamp_s: float
    """Sender's steady clock at sending."""
    sample_age_s: float
    """Age of the pose that the announcement rests on, at sending."""
    control_point_world: Vector
    """(D,) [m]: predicted stopping point of the control point, pending commands included."""
    control_velocity_world: Vector
    """(D,) [m/s]: velocity of that point under the command just sent."""
    position_world: Vector
    """(D,) [m]."""
    yaw: float
    """[rad]."""
    contract: str
    """Hash of shield parameters and timing; peers with another one are not trusted."""
    owned_lane_world: Lane
    """Where the robot's centre stays, whatever happens."""
    announced_lane_world: Lane
    """What it asks for; a point of its own lane if nothing."""
    echoes: dict[str, tuple[str, float, int]]
    """By peer: epoch, stamp and sequence of the last message heard from it, on that peer's own clock."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type: they come from other machines.

        Raises:
            EnvelopeError: a text, number, vector or echo is something else.
        """
        lanes = (self.owned_lane_world, self.announced_lane_world)
        sound = (type(self.robot) is type(self.epoch) is type(self.contract) is str and type(self.sequence) is int
                 and all(type(lane) is tuple and len(lane) == 2 for lane in lanes)
                 and all(map(_is_vector, (self.control_point_world, self.control_velocity_world, self.position_world,
                                          *lanes[0], *lanes[1])))
                 and _is_number(self.stamp_s) and _is_number(self.sample_age_s) and _is_number(self.yaw)
                 and type(self.echoes) is dict and all(map(_is_echo, self.echoes.items())))
        if not sound:
            raise EnvelopeError(f"{self.SCHEMA}: a value is of a wrong type or not finite")


@dataclass(frozen=True)
class TickRecord(Envelope):
    """What one control tick used and did: written by the control loop itself."""

    SCHEMA = "testudo/tick/2"

    robot: str
    sequence: int
    stamp_s: float
    """Steady clock at the start of the tick."""
    late_s: float
    """How late the tick began."""
    duration_s: float
    """From the start of the tick to the command being ready."""
    pose_stamp_s: float | None
    """Stamp of the pose used; None if there was none."""
    measured_position_world: Vector | None
    measured_yaw: float | None
    measured_velocity: Vector | None
    pending_commands: tuple[Vector, ...]
    """Effective commands that act between the pose and this tick's command, newest first."""
    pending_time_s: Vector
    """How long each of them acts."""
    estimate_position_world: Vector | None
    """The state when this tick's command begins to act."""
    estimate_yaw: float | None
    estimate_velocity: Vector | None
    control_point_world: Vector | None
    goal_world: Vector
    neighbour_names: tuple[str, ...]
    neighbour_control_point_world: tuple[Vector, ...]
    """By slot, then axis."""
    neighbour_control_velocity_world: tuple[Vector, ...]
    neighbour_age_s: Vector
    neighbour_valid: tuple[bool, ...]
    neighbour_untrusted: tuple[bool, ...]
    """Kept clear of as a body that keeps to no contract; the control point is where it was seen."""
    neighbour_owned_lane_world: tuple[Lane, ...]
    neighbour_announced_lane_world: tuple[Lane, ...]
    neighbour_acknowledged: tuple[int, ...]
    """Sequence of the newest own message that each peer had heard; -1 for none."""
    neighbour_silent: tuple[bool, ...]
    owned_lane_world: Lane | None
    """Own space when the tick began."""
    announced_lane_world: Lane | None
    announcement_pending: bool
    announced_since: int
    """Sequence of the first message with the announcement."""
    decided: bool
    """The policy ran in this tick; else its last command was held."""
    hidden_before: Vector
    hidden_after: Vector
    nominal_world: Vector | None
    """(D,) [m/s]: wanted control-point velocity, from the policy."""
    shielded_world: Vector | None
    """(D,) [m/s]: control-point velocity that the shield let through."""
    sent_command: Vector
    """(D,): actuator command that left the loop."""
    change_m_s: float
    status: str
    """passed, projected, gated, waiting or braked."""
    reason: str
    """Why the robot was braked: a stable code; empty otherwise."""


def _is_number(value: Any) -> bool:
    # by type, which is quick and no bool; an integer that no float can hold is no number; NaN fails the comparison
    kind = type(value)
    return (kind is float or kind is int or isinstance(value, float)) and -1e308 < value < 1e308


def _is_vector(value: Any) -> bool:
    return type(value) is tuple and all(map(_is_number, value))


def _is_echo(item: Any) -> bool:
    peer, echo = item
    return (type(peer) is str and type(echo) is tuple and len(echo) == 3
            and type(echo[0]) is str and type(echo[2]) is int and _is_number(echo[1]))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def _frozen(value: Any) -> Any:
    """Return lists as tuples; numbers must be finite (JSON allows 1e999)."""
    kind = type(value)
    if kind is float:
        if not isfinite(value):
            raise ValueError("a value is not finite")
        return value
    if kind is list:
        return tuple([_frozen(item) for item in value])
    if kind is dict:
        return {key: _frozen(item) for key, item in value.items()}
    return value
