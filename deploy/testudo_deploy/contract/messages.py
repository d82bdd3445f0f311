"""What travels in envelopes: the peer-state message and the record of one control tick.

Both are JSON in a `std_msgs/UInt8MultiArray`, one object with a ``schema`` key, floats at full precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any, ClassVar, Self

import msgspec

from testudo_hardware.errors import TestudoError

Vector = tuple[float, ...]
SegmentEnds = tuple[Vector, Vector]
"""Both ends (D,) [m] of a reserved segment, see `shield/reservations.py`."""


class EnvelopeError(TestudoError):
    """An envelope cannot be read: not JSON, another schema, or a missing or non-finite value."""


def _plain(value: Any) -> Any:
    """Return a number of NumPy as the number that it is; the encoder knows the types of Python only."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} has no place in an envelope")


_ENCODER, _DECODER = msgspec.json.Encoder(enc_hook=_plain), msgspec.json.Decoder()


_RENAMED = {
    "owned_lane_world": "reserved_segment_world",
    "announced_lane_world": "requested_segment_world",
    "neighbour_owned_lane_world": "neighbour_reserved_segment_world",
    "neighbour_announced_lane_world": "neighbour_requested_segment_world",
    "announcement_pending": "request_pending",
    "announced_since": "requested_since",
}
"""Keys of the second version of both messages, and what they are called since the third."""


@dataclass(frozen=True)
class Envelope:
    """What travels as JSON in bytes; a subclass names its schema."""

    SCHEMA = ""
    OLDER: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Older schemas that recorded runs may hold, with what their keys are called now."""

    def encode(self) -> bytes:
        """Return the envelope's bytes, which `decode` reads as the very same envelope.

        Raises:
            EnvelopeError: it would not: a number is not finite, or a value is of a wrong type.
        """
        try:
            data = _ENCODER.encode({"schema": self.SCHEMA, **vars(self)})
            if self.decode(data) == self:  # what is not finite is written as null
                return data
        except (EnvelopeError, ValueError, TypeError) as error:
            raise EnvelopeError(f"{self.SCHEMA}: a value is not finite, or of a wrong type: {error}") from error
        raise EnvelopeError(f"{self.SCHEMA}: a value is not finite")

    @classmethod
    def decode(cls, data: bytes, *, recorded: bool = False) -> Self:
        """Read what `encode` wrote; of a recorded run also what older versions wrote, which no robot takes live.

        Raises:
            EnvelopeError: the bytes do not hold such an envelope.
        """
        try:
            values = _DECODER.decode(data)
            schema = values.pop("schema")
            if recorded and schema in cls.OLDER:
                values = {cls.OLDER[schema].get(key, key): value for key, value in values.items()}
            elif schema != cls.SCHEMA:
                raise EnvelopeError(f"envelope: expected schema {cls.SCHEMA}")
            return msgspec.convert(values, cls)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise EnvelopeError(f"{cls.SCHEMA}: unreadable envelope: {error!r}") from error


@dataclass(frozen=True)
class PeerMessage(Envelope):
    """What a robot announces at every tick. Frame: the fleet's shared world."""

    SCHEMA = "testudo/peer/3"
    OLDER = {"testudo/peer/2": _RENAMED}  # noqa: RUF012

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
    reserved_segment_world: SegmentEnds
    """Where the robot's centre stays, whatever happens."""
    requested_segment_world: SegmentEnds
    """What it asks for; a point of its own lane if nothing."""
    echoes: dict[str, tuple[str, float, int]]
    """By peer: epoch, stamp and sequence of the last message heard from it, on that peer's own clock."""

    def __post_init__(self) -> None:
        """Refuse what no peer could use.

        Raises:
            EnvelopeError: a number is not finite.
        """
        numbers = (
            self.stamp_s,
            self.sample_age_s,
            self.yaw,
            *self.control_point_world,
            *self.control_velocity_world,
            *self.position_world,
        )
        if not all(map(isfinite, chain(numbers, *self.reserved_segment_world, *self.requested_segment_world))):
            raise EnvelopeError(f"{self.SCHEMA}: a value is not finite")


@dataclass(frozen=True)
class TickRecord(Envelope):
    """What one control tick used and did: written by the control loop itself."""

    SCHEMA = "testudo/tick/3"
    OLDER = {"testudo/tick/2": _RENAMED}  # noqa: RUF012

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
    neighbour_reserved_segment_world: tuple[SegmentEnds, ...]
    neighbour_requested_segment_world: tuple[SegmentEnds, ...]
    neighbour_acknowledged: tuple[int, ...]
    """Sequence of the newest own message that each peer had heard; -1 for none."""
    neighbour_silent: tuple[bool, ...]
    reserved_segment_world: SegmentEnds | None
    """Own space when the tick began."""
    requested_segment_world: SegmentEnds | None
    request_pending: bool
    requested_since: int
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
    nominal_yaw_rate: float = 0.0
    """[rad/s], from the policy; zero if it commands none, or there is no nominal command."""
    sent_yaw_rate: float = 0.0
    """[rad/s], within the limits of the contract; zero whenever the robot is braked."""
