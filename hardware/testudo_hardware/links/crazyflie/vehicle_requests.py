"""What a pilot tells the vehicle, and what can be wrong with it; plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LinkPhase(StrEnum):
    """Where a flight stands, as the link sees it."""

    GROUND = "ground"
    TAKING_OFF = "taking off"
    HOVERING = "hovering"
    """Above its start by its own planner, until commands come."""
    FLYING = "flying"
    LANDING = "landing"
    STOPPED = "stopped"


class VehicleAction(StrEnum):
    """Kinds of orders."""

    SET_POINT = "set_point"
    TAKE_OFF = "take_off"
    LAND = "land"
    NOTIFY = "notify"
    ARM = "arm"
    DISARM = "disarm"
    EMERGENCY = "emergency"


@dataclass(frozen=True)
class VehicleRequest:
    """One packet to send."""

    act: VehicleAction
    velocity_world: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """[m/s], of a set-point."""
    yaw_rate: float = 0.0
    """[rad/s], of a set-point, anticlockwise."""
    height_m: float = 0.0
    """Above the origin of the world."""
    duration_s: float = 0.0


STANDSTILL = VehicleRequest(VehicleAction.SET_POINT)

SENTENCES = {
    "": "all is well",
    "lost": "the radio link has ended ({detail}): the drone levels after 0.5 s and cuts its motors after 2 s",
    "restarted": "the drone was switched off and on: open the link again",
    "emergency": "emergency stop: motors are off; switch the drone off and on",
    "locked": "the drone is locked: switch it off and on",
    "tumbled": "the drone has tumbled or crashed: its motors are off; put it upright and switch it off and on",
    "disarmed": "the drone was disarmed by somebody else in flight: its motors are off",
    "radio_silent": "nothing was heard from the drone for {detail} s: it levels after 0.5 s and cuts its motors "
    "after 2 s without set-points",
    "block_silent": "the log block stopped for {detail} s though the drone answers: holding still, then landing",
    "uplink_silent": "the drone does not follow the set-points that are sent: holding still",
    "second_commander": "somebody else sends set-points to the drone: holding still; switch the other sender off",
    "battery": "the battery is down to {detail} V: landing",
    "commands_silent": "no command for {detail} s: holding still, then landing",
}
"""By code: everything that can be wrong."""
