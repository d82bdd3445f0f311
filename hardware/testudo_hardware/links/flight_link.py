"""Interfaces of links: `RobotLink` for commands and measurements, `FlightLink` for requests to a flying vehicle; pure.

Only the guard of a robot sends requests; the flight phases before it are in `testudo_deploy.supervision.flight_phases`.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.wire import CommandReading, Measurement, WireError

_FUTURE_S = 0.5  # a stamp further in the future comes from another clock


class FlightAct(StrEnum):
    """Requests to a vehicle."""

    ARM = "arm"  # motors may turn from now on
    DISARM = "disarm"  # motors may not turn; for a vehicle on the ground
    TAKE_OFF = "take_off"
    """Climb straight up to a height by the vehicle's own planner, and hold it until set-points arrive."""
    NOTIFY_SETPOINTS_STOP = "notify_setpoints_stop"
    """Set-points end on purpose: the vehicle's planner may take over. Needed before `LAND`."""
    LAND = "land"  # descend straight to a height by the vehicle's own planner and stop the motors there
    EMERGENCY = "emergency"  # motors off immediately, also in the air: the vehicle falls


@dataclass(frozen=True)
class FlightRequest:
    """One request to one vehicle."""

    act: FlightAct
    height_m: float = 0.0  # final height above the origin of the world, for `TAKE_OFF` and `LAND`
    duration_s: float = 0.0  # above 0, for `TAKE_OFF` and `LAND`
    remain_valid_s: float = 0.0  # how long the last set-point remains valid, for `NOTIFY_SETPOINTS_STOP`

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            WireError: a number is not finite, a time is negative, or a climb or landing has no duration.
        """
        sound = math.isfinite(self.height_m) and 0 <= self.duration_s < math.inf and 0 <= self.remain_valid_s < math.inf
        if not sound or (self.act in (FlightAct.TAKE_OFF, FlightAct.LAND) and not self.duration_s > 0):
            raise WireError(
                f"{self.act}: found {self.height_m} m in {self.duration_s} s, set-points valid for "
                f"{self.remain_valid_s} s, expected finite numbers and a duration above 0"
            )


@dataclass(frozen=True)
class VehicleState:
    """State that a vehicle reports some times a second; None or an empty text where its link does not report it."""

    stamp_s: float
    """Steady clock of this computer at the time of the state, not of its sending: its age counts from here."""
    battery_v: float | None = None
    armed: bool | None = None
    can_fly: bool | None = None  # no check of the vehicle fails; if it is not armed: it can be armed
    flying: bool | None = None  # in the air, by its own estimate
    tumbled: bool | None = None
    locked: bool | None = None  # crashed, or stopped by `EMERGENCY`: it has to be reset by hand
    controller: str = ""  # such as `pid`, `mellinger`
    estimator: str = ""  # such as `kalman`, `complementary`
    latency_s: float | None = None  # round trip of its radio
    holds: str = ""  # why its driver holds it at standstill in place of commands; empty while commands pass
    planner_active: bool | None = None
    """Its own planner makes its set-points; None from a driver that ends set-points by itself."""

    def heard_s(self, received_s: float) -> float | None:
        """Return the time from which the age of the state counts; None, too old, for a stamp in the future."""
        return min(self.stamp_s, received_s) if self.stamp_s <= received_s + _FUTURE_S else None


class RobotLink(Protocol):
    """Commands to one robot and measurements from it."""

    def send(self, reading: CommandReading, at: PlanarTransform | None = None) -> None:
        """Send a command; ``at`` is the set-point so far, for wires whose command is a position.

        Raises:
            WireError: the link cannot carry the command; nothing was sent.
        """

    def take(self, sample: Any) -> Measurement | None:
        """Return the measurement in a sample, stamped on the steady clock; None if it belongs to another robot.

        Raises:
            WireError: it cannot be read.
        """


class FlightLink(Protocol):
    """Requests to one flying vehicle."""

    def ask(self, request: FlightRequest) -> None:
        """Send a request without waiting; the vehicle's state shows the result.

        Raises:
            WireError: the link cannot carry the request; nothing was sent.
        """
