"""Flight messages: orders of the supervisor to the guard, requests to the vehicle, and the vehicle's state."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from testudo_deploy.contract.messages import Envelope, EnvelopeError
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState


class DesiredFlightState(StrEnum):
    """The state of flight that the supervisor wants; a level that is sent repeatedly."""

    GROUND = "ground"
    """On the ground, motors off; no set-point is sent."""
    TAKE_OFF = "take_off"
    """Climb to ``height_m`` by the vehicle's own planner; set-points begin there."""
    FLY = "fly"
    """Set-points without gaps."""
    LAND = "land"
    """The last descent, straight down by the vehicle's own planner."""


@dataclass(frozen=True)
class FlightOrder(Envelope):
    """Topic `flight_order`: supervisor to guard, ten times a second and at every change."""

    SCHEMA = "testudo/flight_order/1"

    robot: str
    stamp_s: float
    """Steady clock at sending."""
    wanted: str
    """A `DesiredFlightState`."""
    top_m: float
    """Height of the end of a take-off, above the origin of the world."""
    climb_s: float
    """Duration of the take-off, above 0."""
    ground_m: float
    """Height of the body on the ground."""
    down_s: float
    """How long the vehicle may take from where it is to the ground, above 0."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type.

        Raises:
            EnvelopeError: a value is of a wrong type or out of range.
        """
        _check(
            self,
            {"robot": str, "wanted": str} | dict.fromkeys(("stamp_s", "top_m", "climb_s", "ground_m", "down_s"), float),
        )
        if not (self.climb_s > 0 and self.down_s > 0):
            raise EnvelopeError(f"{self.SCHEMA}: found {self.climb_s} s up and {self.down_s} s down, expected above 0")
        if self.wanted not in list(DesiredFlightState):
            raise EnvelopeError(
                f"{self.SCHEMA}.wanted: found {self.wanted!r}, expected one of {', '.join(DesiredFlightState)}"
            )


@dataclass(frozen=True)
class FlightRequestMessage(Envelope):
    """Topic `flight_request`: guard to the driver of a vehicle, or to the simulated plant."""

    SCHEMA = "testudo/flight_request/1"

    robot: str
    sequence: int
    """Increases with every request; a repeated number is the same request."""
    stamp_s: float
    """Steady clock at sending."""
    act: str
    """A `FlightAct`."""
    height_m: float
    duration_s: float
    remain_valid_s: float

    @classmethod
    def of(cls, robot: str, sequence: int, stamp_s: float, request: FlightRequest) -> Self:
        """Return the message of a request."""
        return cls(
            robot,
            sequence,
            stamp_s,
            str(request.act),
            float(request.height_m),
            float(request.duration_s),
            float(request.remain_valid_s),
        )

    @property
    def request(self) -> FlightRequest:
        """Return the request.

        Raises:
            TestudoError: not a valid request.
        """
        return FlightRequest(FlightAct(self.act), self.height_m, self.duration_s, self.remain_valid_s)

    def __post_init__(self) -> None:
        """Refuse values of a wrong type, and invalid requests.

        Raises:
            EnvelopeError: a value is of a wrong type or out of range.
        """
        _check(
            self,
            {
                "robot": str,
                "sequence": int,
                "stamp_s": float,
                "act": str,
                "height_m": float,
                "duration_s": float,
                "remain_valid_s": float,
            },
        )
        try:
            _ = self.request
        except (ValueError, TestudoError) as error:
            raise EnvelopeError(f"{self.SCHEMA}: {error}") from error


@dataclass(frozen=True)
class VehicleMessage(Envelope):
    """Topic `vehicle_state`: the vehicle's driver, or the plant, to policy and guard, at 10 Hz or more.

    They count its age from its stamp, so that a driver that repeats an old report does not look alive.
    """

    SCHEMA = "testudo/vehicle_state/2"

    robot: str
    stamp_s: float
    """Time of the state, on the steady clock of the computer on which driver, policy and guard run."""
    battery_v: float | None
    armed: bool | None
    can_fly: bool | None
    flying: bool | None
    tumbled: bool | None
    locked: bool | None
    controller: str
    estimator: str
    latency_s: float | None
    holds: str
    planner_active: bool | None = None

    @classmethod
    def of(cls, robot: str, state: VehicleState) -> Self:
        """Return the message of a state."""
        return cls(robot, **{field.name: getattr(state, field.name) for field in fields(VehicleState)})

    @property
    def state(self) -> VehicleState:
        """Return the state."""
        return VehicleState(**{field.name: getattr(self, field.name) for field in fields(VehicleState)})

    def __post_init__(self) -> None:
        """Refuse values of a wrong type.

        Raises:
            EnvelopeError: a value is of a wrong type.
        """
        flags = dict.fromkeys(("armed", "can_fly", "flying", "tumbled", "locked", "planner_active"), bool)
        numbers = {"battery_v": float, "latency_s": float}
        given = {name: kind for name, kind in (numbers | flags).items() if getattr(self, name) is not None}
        _check(self, {"robot": str, "stamp_s": float, "controller": str, "estimator": str, "holds": str} | given)


def _check(envelope: Envelope, kinds: dict[str, type]) -> None:
    """Refuse an envelope whose values are of other types; an int is accepted as a float, a bool is not."""
    for name, kind in kinds.items():
        value: Any = getattr(envelope, name)
        good = type(value) in (float, int) and abs(value) < 1e300 if kind is float else type(value) is kind
        if not good:
            raise EnvelopeError(f"{envelope.SCHEMA}.{name}: found {value!r}, expected {kind.__name__}")
