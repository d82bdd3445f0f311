"""Flight beside the stream of set-points: what is asked of a vehicle that flies, and what it says of itself; pure.

A link to such a vehicle is a `RobotLink` for set-points and a `FlightLink` for the rest. The guard of the robot is the
only one that asks; the phases that lead to it are in `testudo_deploy.supervision.flight_phases`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.wire import CommandReading, Measurement, WireError

_FUTURE_S = 0.5
"""A stamp so far in the future is of another clock."""


class FlightAct(StrEnum):
    """What can be asked of a vehicle."""

    ARM = "arm"
    """Motors may turn from now on."""
    DISARM = "disarm"
    """Motors may not turn; for a vehicle on the ground."""
    TAKE_OFF = "take_off"
    """Climb straight up to a height by its own planner, and stay there until set-points come."""
    NOTIFY_SETPOINTS_STOP = "notify_setpoints_stop"
    """The stream of set-points ends on purpose: its own planner may take over. Needed before `LAND`."""
    LAND = "land"
    """Go straight down to a height by its own planner and stop the motors there."""
    EMERGENCY = "emergency"
    """Motors off at once, wherever it is; it falls."""


@dataclass(frozen=True)
class FlightRequest:
    """One thing that is asked of one vehicle."""

    act: FlightAct
    height_m: float = 0.0
    """Where to end, above the origin of the world: for `TAKE_OFF` and `LAND`."""
    duration_s: float = 0.0
    """How long to take, above 0: for `TAKE_OFF` and `LAND`."""
    remain_valid_s: float = 0.0
    """How long the last set-point still holds: for `NOTIFY_SETPOINTS_STOP`."""

    def __post_init__(self) -> None:
        """Refuse what no vehicle should be asked.

        Raises:
            WireError: a number is not finite or negative where it must not be, or a way that takes no time.
        """
        sound = math.isfinite(self.height_m) and 0 <= self.duration_s < math.inf and 0 <= self.remain_valid_s < math.inf
        if not sound or (self.act in (FlightAct.TAKE_OFF, FlightAct.LAND) and not self.duration_s > 0):
            raise WireError(
                f"{self.act}: found {self.height_m} m in {self.duration_s} s, set-points valid for "
                f"{self.remain_valid_s} s, expected finite numbers and a duration above 0"
            )


@dataclass(frozen=True)
class VehicleState:
    """What a vehicle says of itself some times a second; None, or an empty text, where its link does not tell."""

    stamp_s: float
    """Steady clock of this computer at the moment that the state is of, not at its sending: who hears it counts its age
    from here."""
    battery_v: float | None = None
    armed: bool | None = None
    can_fly: bool | None = None
    """Nothing that it knows of speaks against flying; of one that is not armed: against arming it."""
    flying: bool | None = None
    """In the air, by its own judgement."""
    tumbled: bool | None = None
    locked: bool | None = None
    """It has crashed or was stopped by `EMERGENCY`, and has to be reset by hand."""
    controller: str = ""
    """`pid`, `mellinger`, ...: what turns set-points into thrust."""
    estimator: str = ""
    """`kalman`, `complementary`, ...: what tells the vehicle where it is."""
    latency_s: float | None = None
    """Of its radio, there and back."""
    holds: str = ""
    """Why its driver keeps it at standstill whatever is commanded; empty while commands pass."""
    planner_active: bool | None = None
    """Its own planner makes its set-points. A driver that ends a stream of set-points by itself does not tell."""

    def heard_s(self, received_s: float) -> float | None:
        """Return since when the state is known; None if it is of the future, and counts as little as an old one."""
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
    """Requests to one vehicle that flies; its states come as it sends them."""

    def ask(self, request: FlightRequest) -> None:
        """Ask; does not wait for the vehicle, whose state shows what became of it.

        Raises:
            WireError: the request cannot be carried; nothing was sent.
        """
