"""Messages of a Crazyflie: the log block at 100 Hz (26 bytes, the largest that fits a packet), requests, faults."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from testudo_hardware.frames import yaw_from_quaternion_xyzw
from testudo_hardware.links.wire import OdometryReading

_STEPS = 511
_MASK = 0x1FF


def compressed(quaternion_xyzw: Sequence[float]) -> int:
    """Return a unit quaternion (x, y, z, w) in 32 bits: index of the largest component, three others in ten bits each.

    The error of each component is at most 0.0007.
    """
    largest = max(range(4), key=lambda k: abs(quaternion_xyzw[k]))
    negated = quaternion_xyzw[largest] < 0  # the largest is sent as positive
    word = largest
    for k in range(4):
        if k != largest:
            value = quaternion_xyzw[k]
            size = min(_STEPS, int(_STEPS * abs(value) * math.sqrt(2) + 0.5))
            word = word << 10 | ((value < 0) != negated) << 9 | size
    return word


def decompressed(word: int) -> tuple[float, float, float, float]:
    """Return the unit quaternion (x, y, z, w) of 32 bits."""
    largest = word >> 30
    values = [0.0] * 4
    for k in (index for index in (3, 2, 1, 0) if index != largest):
        size = (word & _MASK) / _STEPS / math.sqrt(2)
        values[k] = -size if word >> 9 & 1 else size
        word >>= 10
    values[largest] = math.sqrt(max(0.0, 1.0 - sum(value * value for value in values)))
    x, y, z, w = values
    return x, y, z, w


PERIOD_MS = 10
VARIABLES: tuple[tuple[str, str], ...] = (
    *((f"stateEstimateZ.{name}", "int16_t") for name in ("x", "y", "z", "vx", "vy", "vz")),
    ("stateEstimateZ.quat", "uint32_t"),
    ("supervisor.info", "uint16_t"),
    ("pm.vbatMV", "uint16_t"),
    *((f"ctrltargetZ.{name}", "int16_t") for name in ("vx", "vy", "vz")),
)
"""Names and types: position [mm], velocity [mm/s], attitude, supervisor, battery [mV], velocity set-point [mm/s]."""
_WRAP, _HALF = 1 << 24, 1 << 23
_WINDOW_S = 10.0


@dataclass(frozen=True)
class Info:
    """Flags of the firmware's supervisor, from its lowest bit on."""

    can_be_armed: bool
    armed: bool
    arms_itself: bool  # it needs no arming request
    can_fly: bool  # it follows set-points
    flying: bool
    tumbled: bool  # it is upside down, or was tilted for long
    locked: bool  # it has to be switched off and on
    crashed: bool
    planner_active: bool  # its own planner makes set-points
    planner_finished: bool

    @classmethod
    def from_bits(cls, bits: int) -> Self:
        """Return the flags of the bit field."""
        return cls(*(bool(bits >> position & 1) for position in range(10)))


@dataclass(frozen=True)
class RadioSample:
    """One packet of the log block."""

    stamp_s: float  # steady clock of the measurement; never later than it was
    received_s: float  # steady clock of its arrival
    position_world: tuple[float, float, float]
    velocity_world: tuple[float, float, float]
    quaternion_xyzw: tuple[float, float, float, float]
    info: Info
    battery_v: float
    target_velocity: tuple[float, float, float]  # [m/s]: of the current set-point

    @property
    def odometry(self) -> OdometryReading:
        """Return position and velocity in the world."""
        yaw = yaw_from_quaternion_xyzw(*self.quaternion_xyzw)
        return OdometryReading(self.stamp_s, self.position_world, yaw, self.velocity_world)


def read_block(values: Mapping[str, float], stamp_s: float, received_s: float) -> RadioSample:
    """Return the sample of a packet; ``values`` by the names in `VARIABLES`."""

    def vector(group: str, prefix: str) -> tuple[float, float, float]:
        x, y, z = (values[f"{group}.{prefix}{axis}"] / 1000 for axis in "xyz")
        return x, y, z

    return RadioSample(
        stamp_s,
        received_s,
        vector("stateEstimateZ", ""),
        vector("stateEstimateZ", "v"),
        decompressed(int(values["stateEstimateZ.quat"])),
        Info.from_bits(int(values["supervisor.info"])),
        values["pm.vbatMV"] / 1000,
        vector("ctrltargetZ", "v"),
    )


class VehicleClock:
    """Converts stamps of the vehicle, milliseconds in 24 bits, to the steady clock of this computer.

    The fastest packet of the last ten seconds gives the offset of the clocks plus its transport time, which is at most
    the shortest round trip of that time. All stamps are moved back by that round trip, so that an age is never too
    small and at most one round trip too large.
    """

    def __init__(self) -> None:
        self.restarted = False
        """The vehicle's clock jumped: it was switched off and on."""
        self.trip_s: float | None = None
        """Recent round trip, smoothed."""
        self._last: int | None = None
        self._time_s = 0.0
        self._ahead: deque[tuple[float, float]] = deque()
        self._trips: deque[tuple[float, float]] = deque()

    def hear_trip(self, trip_s: float, now_s: float) -> None:
        """Take the round trip time of a packet."""
        self.trip_s = trip_s if self.trip_s is None else 0.8 * self.trip_s + 0.2 * trip_s
        _keep_least(self._trips, trip_s, now_s)

    @property
    def least_trip_s(self) -> float | None:
        """Return the shortest recent round trip; None before the first."""
        return self._trips[0][1] if self._trips else None

    def stamp(self, milliseconds: int, received_s: float) -> float | None:
        """Return the steady time of a measurement [s]; None if it is unknown.

        It is unknown before the first round trip, for a packet that was overtaken, and when the vehicle's clock jumps.
        """
        if self._last is not None:
            step = (milliseconds - self._last) % _WRAP
            if step >= _HALF:  # a packet that was overtaken, or a restart
                self.restarted |= _WRAP - step > 1000 * _WINDOW_S or milliseconds < self._last - 2000
                if not self.restarted:
                    return None
                step = 0
                self._ahead.clear()
            self._time_s += step / 1000
        self._last = milliseconds
        _keep_least(self._ahead, received_s - self._time_s, received_s)
        trip_s = self.least_trip_s
        return None if trip_s is None else self._time_s + self._ahead[0][1] - trip_s


def _keep_least(window: deque[tuple[float, float]], value: float, now_s: float) -> None:
    """Add a value to a sliding window whose first entry is its minimum."""
    while window and window[-1][1] >= value:
        window.pop()
    window.append((now_s, value))
    while window[0][0] < now_s - _WINDOW_S:
        window.popleft()


class LinkPhase(StrEnum):
    """Phase of a flight, as the link sees it."""

    GROUND = "ground"
    TAKING_OFF = "taking off"
    HOVERING = "hovering"  # held by its own planner until commands arrive
    FLYING = "flying"
    LANDING = "landing"
    STOPPED = "stopped"


class VehicleAction(StrEnum):
    """Kinds of requests."""

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
    velocity_world: tuple[float, ...] = (0.0, 0.0, 0.0)  # (3,) [m/s], of a set-point
    yaw_rate: float = 0.0  # [rad/s], of a set-point, counter-clockwise
    height_m: float = 0.0  # above the origin of the world
    duration_s: float = 0.0


STANDSTILL = VehicleRequest(VehicleAction.SET_POINT)

SENTENCES = {
    "": "no fault",
    "lost": "the radio link has ended ({detail}): the drone levels after 0.5 s and cuts its motors after 2 s",
    "restarted": "the drone was switched off and on: open the link again",
    "emergency": "emergency stop: motors are off; switch the drone off and on",
    "locked": "the drone is locked: switch it off and on",
    "tumbled": "the drone has tumbled or crashed: its motors are off; put it upright and switch it off and on",
    "disarmed": "the drone was disarmed by another sender in flight: its motors are off",
    "radio_silent": "nothing was received from the drone for {detail} s: without set-points it levels after 0.5 s and "
    "cuts its motors after 2 s",
    "block_silent": "no log block for {detail} s although the drone answers: standstill, then landing",
    "uplink_silent": "the drone does not follow the set-points that are sent: standstill",
    "second_commander": "another sender sends set-points to the drone: standstill; switch it off",
    "battery": "the battery is down to {detail} V: landing",
    "commands_silent": "no command for {detail} s: standstill, then landing",
}
"""Fault texts by code."""
