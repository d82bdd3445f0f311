"""Flight messages: orders of the supervisor to the guard, requests to the vehicle, and the vehicle's state."""

import functools
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self, get_args, get_type_hints

from testudo_deploy.contract.messages import Envelope, EnvelopeError
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState


class DesiredFlightState(StrEnum):
    """The state of flight that the supervisor wants; a level that is sent repeatedly."""

    GROUND = "ground"  # on the ground, motors off; no set-point is sent
    TAKE_OFF = "take_off"  # climb to ``height_m`` by the vehicle's own planner; set-points begin there
    FLY = "fly"  # set-points without gaps
    LAND = "land"  # the last descent, straight down by the vehicle's own planner


@functools.cache
def _allowed_types(message: type[Envelope]) -> dict[str, tuple[type, ...]]:
    """Return the types that each field of a message may have; an int is accepted as a float, a bool is not."""
    hints = get_type_hints(message)
    kinds = {field.name: get_args(hints[field.name]) or (hints[field.name],) for field in fields(message)}
    return {name: (*found, int) if float in found else found for name, found in kinds.items()}


@dataclass(frozen=True)
class FlightEnvelope(Envelope):
    """An envelope whose fields have the types of their annotations."""

    def __post_init__(self) -> None:
        """Refuse values of a wrong type.

        Raises:
            EnvelopeError: a value is of a wrong type or out of range.
        """
        for name, kinds in _allowed_types(type(self)).items():
            value: Any = getattr(self, name)
            is_number = type(value) in (float, int) and float in kinds
            if type(value) not in kinds or (is_number and not abs(value) < 1e300):
                raise EnvelopeError(f"{self.SCHEMA}.{name}: found {value!r}, expected {kinds[0].__name__}")


@dataclass(frozen=True)
class FlightOrder(FlightEnvelope):
    """Topic `flight_order`: supervisor to guard, ten times a second and at every change."""

    SCHEMA = "testudo/flight_order/1"

    robot: str
    stamp_s: float  # steady clock at sending
    wanted: str  # a `DesiredFlightState`
    top_m: float  # height of the end of a take-off, above the origin of the world
    climb_s: float  # duration of the take-off, above 0
    ground_m: float  # height of the body on the ground
    down_s: float  # how long the vehicle may take from where it is to the ground, above 0

    def __post_init__(self) -> None:
        """Refuse values of a wrong type or out of range, by `EnvelopeError`."""
        super().__post_init__()
        if not (self.climb_s > 0 and self.down_s > 0):
            raise EnvelopeError(f"{self.SCHEMA}: found {self.climb_s} s up and {self.down_s} s down, expected above 0")
        if self.wanted not in list(DesiredFlightState):
            raise EnvelopeError(
                f"{self.SCHEMA}.wanted: found {self.wanted!r}, expected one of {', '.join(DesiredFlightState)}"
            )


@dataclass(frozen=True)
class FlightRequestMessage(FlightEnvelope):
    """Topic `flight_request`: guard to the driver of a vehicle, or to the simulated plant."""

    SCHEMA = "testudo/flight_request/1"

    robot: str
    sequence: int  # increases with every request; a repeated number is the same request
    stamp_s: float  # steady clock at sending
    act: str  # a `FlightAct`
    height_m: float
    duration_s: float
    remain_valid_s: float

    @classmethod
    def of(cls, robot: str, sequence: int, stamp_s: float, request: FlightRequest) -> Self:
        """Return the message of a request."""
        numbers = (request.height_m, request.duration_s, request.remain_valid_s)
        return cls(robot, sequence, stamp_s, str(request.act), *map(float, numbers))

    @property
    def request(self) -> FlightRequest:
        """Return the request.

        Raises:
            TestudoError: not a valid request.
        """
        return FlightRequest(FlightAct(self.act), self.height_m, self.duration_s, self.remain_valid_s)

    def __post_init__(self) -> None:
        """Refuse values of a wrong type and invalid requests, by `EnvelopeError`."""
        super().__post_init__()
        try:
            _ = self.request
        except (ValueError, TestudoError) as error:
            raise EnvelopeError(f"{self.SCHEMA}: {error}") from error


@dataclass(frozen=True)
class VehicleMessage(FlightEnvelope):
    """Topic `vehicle_state`: the vehicle's driver, or the plant, to policy and guard, at 10 Hz or more.

    They count its age from its stamp, so that a driver that repeats an old report does not look alive.
    """

    SCHEMA = "testudo/vehicle_state/2"

    robot: str
    stamp_s: float  # time of the state, on the steady clock of the computer on which driver, policy and guard run
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
