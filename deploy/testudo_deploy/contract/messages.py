"""Envelopes: the peer-state message and the record of one control tick.

Both are JSON in a `std_msgs/UInt8MultiArray`, one object with a ``schema`` key, floats at full precision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain
from math import isfinite
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from testudo_hardware.errors import TestudoError

Vector = tuple[float, ...]
SegmentEnds = tuple[Vector, Vector]  # both ends (D,) [m] of a reserved segment, see `shield/reservations.py`
Echo = tuple[str, float, int]  # epoch, stamp and sequence of a message, on its sender's clock
_STALE_ECHO_S = 5.0


def is_recent(echo: Echo, received_s: float) -> bool:
    """Return whether an echo that a robot receives at ``received_s`` bounds an age.

    It names a message that the robot sent at most 5 s before, on its own clock, and not later.
    """
    return received_s - _STALE_ECHO_S < echo[1] <= received_s


class SuspectedPeer(NamedTuple):
    """The newest message that a robot received from a peer before that fell silent."""

    epoch: str
    sequence: int
    reserved_segment_world: SegmentEnds
    requested_segment_world: SegmentEnds


class EnvelopeError(TestudoError):
    """An envelope cannot be read: not JSON, another schema, or a missing or non-finite value."""


def _plain(value: Any) -> Any:
    """Convert a NumPy number, which the encoder does not know."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be in an envelope")


_ENCODER, _DECODER = msgspec.json.Encoder(enc_hook=_plain), msgspec.json.Decoder()


_RENAMED = {
    "owned_lane_world": "reserved_segment_world",
    "announced_lane_world": "requested_segment_world",
    "neighbour_owned_lane_world": "neighbour_reserved_segment_world",
    "neighbour_announced_lane_world": "neighbour_requested_segment_world",
    "announcement_pending": "request_pending",
    "announced_since": "requested_since",
}
"""Keys of the second version of both messages, and their names since the third."""


@dataclass(frozen=True)
class Envelope:
    """A message as JSON in bytes; a subclass names its schema."""

    SCHEMA = ""
    OLDER: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Older schemas of recorded runs, with the present names of their keys."""
    LEFT_OUT: ClassVar[tuple[str, ...]] = ()
    """Keys that are written only if they are not empty, so that older software reads messages without them."""

    def encode(self) -> bytes:
        """Return the envelope's bytes, which `decode` reads as an equal envelope.

        Raises:
            EnvelopeError: a number is not finite, or a value has a wrong type.
        """
        try:
            values = {key: value for key, value in vars(self).items() if value or key not in self.LEFT_OUT}
            data = _ENCODER.encode({"schema": self.SCHEMA, **values})
            if self.decode(data) == self:  # values that are not finite are written as null
                return data
        except (EnvelopeError, ValueError, TypeError) as error:
            raise EnvelopeError(f"{self.SCHEMA}: a value is not finite, or of a wrong type: {error}") from error
        raise EnvelopeError(f"{self.SCHEMA}: a value is not finite")

    @classmethod
    def decode(cls, data: bytes, *, recorded: bool = False) -> Self:
        """Read the output of `encode`; in a ``recorded`` run also older versions, which robots refuse live.

        Raises:
            EnvelopeError: the bytes do not hold such an envelope.
        """
        found = _as_written(cls, data) if type(data) is bytes else None
        if found is not None:
            return found
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


def _as_written[Kind: Envelope](kind: type[Kind], data: bytes) -> Kind | None:
    """Return a message that is written as `Envelope.encode` writes it, in less time; None for any other.

    The schema is the first key, and there is no key beside those of the class, whose value nobody would read.
    """
    begin, decoder, mappings = _form_of(kind)
    if not data.startswith(begin) or b"\\" in data or not data.isascii():
        return None
    try:
        found: Kind = decoder.decode(data)
    except (ValueError, TypeError, ArithmeticError, RecursionError):  # `Envelope.decode` says what is wrong
        return None
    keys = 1 + len(vars(found))  # what has a default and is absent is no variable, apart from mappings
    for name, key in mappings:
        values = getattr(found, name)
        keys += len(values) if values else -(key not in data)
    return found if data.count(b'":') == keys else None


@cache
def _form_of(kind: type[Envelope]) -> tuple[bytes, Any, tuple[tuple[str, bytes], ...]]:
    """Return how a message begins, its decoder, and each mapping with its key as it is written."""
    names = (key.name for key in fields(kind) if str(key.type).startswith("dict"))
    begin = b'{"schema":"' + kind.SCHEMA.encode() + b'",'
    return begin, msgspec.json.Decoder(kind), tuple((name, f'"{name}":'.encode()) for name in names)


@dataclass(frozen=True)
class PeerMessage(Envelope):
    """Announcement of a robot at every tick. Frame: the fleet's shared world."""

    SCHEMA = "testudo/peer/5"
    OLDER = {"testudo/peer/2": _RENAMED, "testudo/peer/3": {}, "testudo/peer/4": {}}  # noqa: RUF012
    LEFT_OUT = ("message",)

    robot: str
    epoch: str  # new at each start of the process; sequence numbers count within it
    sequence: int
    stamp_s: float  # sender's steady clock at sending
    sample_age_s: float  # age of the pose behind the announcement, at sending
    control_point_world: Vector  # (D,) [m]: predicted stopping point of the control point, pending commands included
    control_velocity_world: Vector  # (D,) [m/s]: velocity of that point under the command just sent
    position_world: Vector  # (D,) [m]
    yaw: float  # [rad]
    contract: str  # hash of shield parameters and timing; peers with another one are not trusted
    reserved_segment_world: SegmentEnds  # the robot's centre stays in it in every case
    requested_segment_world: SegmentEnds  # requested segment; a point of its own segment if there is no request
    echoes: dict[str, Echo]
    """By peer: the last message received from it."""
    suspected: dict[str, SuspectedPeer] = field(default_factory=dict)
    """Peers that have been silent for long, with the newest that the sender knows of each (rule R4)."""
    wanted_world: Vector = ()
    """(D,) [m/s]: the velocity that the robot wants, before the shield; empty for one that does not drive. It decides
    about the right of way only: no margin of the shield rests on it."""
    message: Vector = ()
    """(M,) in -1 to 1: the learned message of the sender's policy, for the policies of its peers; zeros while the robot
    is braked, empty if its policy has none. No part of the shield reads it."""

    def __post_init__(self) -> None:
        """Raise EnvelopeError if a number is not finite, or one of the learned message is outside -1 to 1."""
        vectors = (self.control_point_world, self.control_velocity_world, self.position_world, self.wanted_world)
        segments = (*self.reserved_segment_world, *self.requested_segment_world)
        values = chain((self.stamp_s, self.sample_age_s, self.yaw), *vectors, *segments, *self.relayed_ends())
        if not all(map(isfinite, values)):
            raise EnvelopeError(f"{self.SCHEMA}: a value is not finite")
        if not all(-1 <= value <= 1 for value in self.message):  # also true for NaN
            raise EnvelopeError(f"{self.SCHEMA}.message: found {list(self.message)}, expected numbers in -1 to 1")

    def relayed_ends(self) -> chain[Vector]:
        """Return the ends (D,) [m] of the segments of suspected peers."""
        return chain.from_iterable(
            (*known.reserved_segment_world, *known.requested_segment_world) for known in self.suspected.values()
        )


@dataclass(frozen=True)
class TaskMessage(Envelope):
    """Signals of the task for one robot, from the task node of the station.

    The clocks of two computers are not comparable. The message names the newest announcement of the robot that the
    sender had received, so that it was sent after that moment on the robot's clock.
    """

    SCHEMA = "testudo/task/1"
    LEFT_OUT = ("hold_within_m", "paused")

    robot: str  # the receiver
    contract: str  # `Contract.task_hash` of the sender
    epoch: str  # new at each start of the sender; sequence numbers count within it
    sequence: int
    stamp_s: float  # sender's steady clock at sending
    sample_age_s: float  # age of the oldest measurement behind the values, at sending, on the sender's clock
    echo: Echo  # of the receiver's newest announcement
    peers: tuple[str, ...]  # order of the neighbours in the values
    values: dict[str, Vector]
    """By signal of the contract: its numbers, the last axis of its shape fastest."""
    hold_within_m: float = 0.0
    """How near to its goal the robot arrives and stands [m]; 0: never, as the task is no goal of its own."""
    paused: bool = False  # an operator lets it stand where it is

    def __post_init__(self) -> None:
        """Raise EnvelopeError if a number is not finite, or the sample is of the future."""
        numbers = chain((self.stamp_s, self.sample_age_s, self.echo[1], self.hold_within_m), *self.values.values())
        if not all(map(isfinite, numbers)) or self.sample_age_s < 0 or self.hold_within_m < 0:
            raise EnvelopeError(f"{self.SCHEMA}: a value is not finite, or the sample's age or a length is below 0")


@dataclass(frozen=True)
class TickRecord(Envelope):
    """Inputs and results of one control tick, written by the control loop."""

    SCHEMA = "testudo/tick/7"
    OLDER = {"testudo/tick/2": _RENAMED, **{f"testudo/tick/{version}": {} for version in range(3, 7)}}  # noqa: RUF012
    LEFT_OUT = (
        "message",
        "neighbour_message",
        "sensed_age_s",
        "holds",
        "body_points_world",
        "scan_age_s",
        "body_speed_m_s",
    )

    robot: str
    sequence: int
    stamp_s: float  # steady clock at the start of the tick
    late_s: float  # delay of the start of the tick
    duration_s: float  # from the start of the tick to the command being ready
    pose_stamp_s: float | None  # of the pose used; None if there was none
    measured_position_world: Vector | None
    measured_yaw: float | None
    measured_velocity: Vector | None
    pending_commands: tuple[Vector, ...]
    """Effective commands that act between the pose and this tick's command, newest first."""
    pending_time_s: Vector  # duration of each
    estimate_position_world: Vector | None  # the state when this tick's command begins to act
    estimate_yaw: float | None
    estimate_velocity: Vector | None
    control_point_world: Vector | None
    goal_world: Vector
    neighbour_names: tuple[str, ...]
    neighbour_control_point_world: tuple[Vector, ...]  # by slot, then axis
    neighbour_control_velocity_world: tuple[Vector, ...]
    neighbour_age_s: Vector
    neighbour_valid: tuple[bool, ...]
    neighbour_untrusted: tuple[bool, ...]
    """Treated as a body without a contract; its control point is its measured position."""
    neighbour_reserved_segment_world: tuple[SegmentEnds, ...]
    neighbour_requested_segment_world: tuple[SegmentEnds, ...]
    neighbour_acknowledged: tuple[int, ...]  # sequence of the newest own message that each peer received; -1 for none
    reserved_segment_world: SegmentEnds | None  # at the start of the tick
    requested_segment_world: SegmentEnds | None
    request_pending: bool
    requested_since: int  # sequence of the first message with the request
    decided: bool  # the policy ran in this tick; otherwise its last command was held
    hidden_before: Vector
    hidden_after: Vector
    nominal_world: Vector | None  # (D,) [m/s]: control-point velocity of the policy
    shielded_world: Vector | None  # (D,) [m/s]: control-point velocity after the shield
    sent_command: Vector  # (D,): actuator command that was sent
    change_m_s: float
    status: str  # passed, projected, gated, waiting or braked
    reason: str  # code of the brake reason; empty if the robot was not braked
    nominal_yaw_rate: float = 0.0  # [rad/s], from the policy; 0 if it commands none, or there is no nominal command
    sent_yaw_rate: float = 0.0  # [rad/s], within the limits of the contract; 0 whenever the robot is braked
    neighbour_lost: tuple[bool, ...] = ()  # declared lost by an operator; empty if none is
    neighbour_excused: tuple[bool, ...] = ()
    """The robot may proceed without that peer's acknowledgement (rule R4)."""
    neighbour_silent: tuple[bool, ...] = ()
    """In records of the fourth version and earlier, in place of the above: no message for a while."""
    deadlock_memory: Vector = ()
    """Memory of the deadlock rule after the tick, see `DeadlockResolver`; empty in a tick without the rule."""
    caution: Vector = ()
    """Most of the wanted speed [m/s], and the distance [m] that layer 1 kept more, of a robot whose motion was outside
    of its file (`AssumptionMonitor`); empty if it was not."""
    neighbour_wanted_world: tuple[Vector, ...] = ()  # (K, D) [m/s]: announced; empty in records before testudo/tick/6
    untrusted_speed_m_s: float = 0.0  # of rule R5; 0 in records without it: that of the robot file
    waypoint_world: Vector = ()  # (D,) [m]: the policy's way-point behind `nominal_world`; empty if it chooses none
    task_values: dict[str, Vector] = field(default_factory=dict)
    """Task signals that the policy read, by name, as in `TaskMessage` with the slots of `neighbour_names`; empty in a
    tick without a decision, without a task node, and before testudo/tick/7."""
    task_age_s: float = 0.0  # upper bound; 0 without a message of the task node
    task_epoch: str = ""  # of that message
    task_sequence: int = -1
    task_contract: str = ""
    message: Vector = ()  # (M,): the policy's learned message; empty if it has none, or the robot is braked
    neighbour_message: tuple[Vector, ...] = ()  # (K, M): that of each peer, as the policy reads it; empty without
    sensed_age_s: dict[str, float] = field(default_factory=dict)  # of the task values of sensors; empty without any
    holds: str = ""
    """Why the robot stands, `arrived`, `paused`, or `gives_way` where it would; it then wants no speed (`caution`),
    and its nominal velocity counts for nothing. Empty where its policy drives it."""
    body_points_world: tuple[Vector, ...] = ()
    """(R, 2) [m]: nearest places of unknown bodies that the robot's scanner saw, see `SensedBodies`."""
    scan_age_s: float = 0.0  # of that scan; 0 without a scanner in the shield
    body_speed_m_s: float = 0.0  # highest speed of a body
