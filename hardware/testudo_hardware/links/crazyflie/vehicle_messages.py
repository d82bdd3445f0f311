"""Messages of a Crazyflie: the log block at 100 Hz (26 bytes, the largest that fits a packet), requests, faults."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from testudo_hardware.frames import yaw_from_quaternion_xyzw
from testudo_hardware.links.wire import OdometryReading

_STEPS = 511
_MASK = 0x1FF


def compressed(quaternion_xyzw: Sequence[float]) -> int:
    """Return a unit quaternion (4,) as 32 bits; each component is off by at most 0.0007."""
    largest = max(range(4), key=lambda k: abs(quaternion_xyzw[k]))
    turned = quaternion_xyzw[largest] < 0  # the largest is sent as positive
    word = largest
    for k in range(4):
        if k != largest:
            value = quaternion_xyzw[k]
            size = min(_STEPS, int(_STEPS * abs(value) * math.sqrt(2) + 0.5))
            word = word << 10 | ((value < 0) != turned) << 9 | size
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
    return tuple(values)


PERIOD_MS = 10
VARIABLES: tuple[tuple[str, str], ...] = (
    *((f"stateEstimateZ.{name}", "int16_t") for name in ("x", "y", "z", "vx", "vy", "vz")),
    ("stateEstimateZ.quat", "uint32_t"),
    ("supervisor.info", "uint16_t"),
    ("pm.vbatMV", "uint16_t"),
    *((f"ctrltargetZ.{name}", "int16_t") for name in ("vx", "vy", "vz")),
)
"""Names and types: where it is [mm], how fast [mm/s], attitude, supervisor, battery [mV], the set-point it follows."""
_WRAP, _HALF = 1 << 24, 1 << 23
_WINDOW_S = 10.0


@dataclass(frozen=True)
class Info:
    """The supervisor's bit field."""

    bits: int

    @property
    def can_be_armed(self) -> bool:
        """Return whether it would accept to be armed."""
        return bool(self.bits & 1)

    @property
    def armed(self) -> bool:
        """Return whether it is armed."""
        return bool(self.bits >> 1 & 1)

    @property
    def arms_itself(self) -> bool:
        """Return whether it needs nobody to arm it."""
        return bool(self.bits >> 2 & 1)

    @property
    def can_fly(self) -> bool:
        """Return whether it follows set-points."""
        return bool(self.bits >> 3 & 1)

    @property
    def flying(self) -> bool:
        """Return whether it says that it flies."""
        return bool(self.bits >> 4 & 1)

    @property
    def tumbled(self) -> bool:
        """Return whether it lies upside down, or tilted for long."""
        return bool(self.bits >> 5 & 1)

    @property
    def locked(self) -> bool:
        """Return whether it has to be switched off and on."""
        return bool(self.bits >> 6 & 1)

    @property
    def crashed(self) -> bool:
        """Return whether it has crashed and was not recovered."""
        return bool(self.bits >> 7 & 1)

    @property
    def planner_active(self) -> bool:
        """Return whether its own planner makes set-points."""
        return bool(self.bits >> 8 & 1)

    @property
    def planner_finished(self) -> bool:
        """Return whether what its planner had to fly has come to its end."""
        return bool(self.bits >> 9 & 1)


@dataclass(frozen=True)
class RadioSample:
    """One packet of the log block."""

    stamp_s: float
    """Steady clock of the measurement, never too young."""
    received_s: float
    """Steady clock of its arrival."""
    position_world: tuple[float, float, float]
    velocity_world: tuple[float, float, float]
    quaternion_xyzw: tuple[float, float, float, float]
    info: Info
    battery_v: float
    target_velocity: tuple[float, float, float]
    """[m/s]: of the set-point that it follows."""

    @property
    def odometry(self) -> OdometryReading:
        """Return where it was and how fast, in the world."""
        yaw = yaw_from_quaternion_xyzw(*self.quaternion_xyzw)
        return OdometryReading(self.stamp_s, self.position_world, yaw, self.velocity_world)


def read_block(values: Mapping[str, float], stamp_s: float, received_s: float) -> RadioSample:
    """Return what the values of a packet, by the names in `VARIABLES`, say."""
    place = tuple(values[f"stateEstimateZ.{name}"] / 1000 for name in ("x", "y", "z"))
    speed = tuple(values[f"stateEstimateZ.{name}"] / 1000 for name in ("vx", "vy", "vz"))
    target = tuple(values[f"ctrltargetZ.{name}"] / 1000 for name in ("vx", "vy", "vz"))
    return RadioSample(
        stamp_s,
        received_s,
        place,
        speed,
        decompressed(int(values["stateEstimateZ.quat"])),
        Info(int(values["supervisor.info"])),
        values["pm.vbatMV"] / 1000,
        target,
    )


class VehicleClock:
    """Brings stamps of the vehicle, milliseconds in 24 bits, to the steady clock of this computer.

    The packet that was fastest in the last ten seconds tells the difference of the clocks but for its own way, which
    is at most the shortest round trip of that time: by so much all stamps are put back, so that an age is never told
    too small and at most one round trip too large.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.restarted = False
        """Its clock jumped: the vehicle was switched off and on."""
        self.trip_s: float | None = None
        """A round trip of late, smoothed."""
        self._last: int | None = None
        self._time_s = 0.0
        self._ahead: deque[tuple[float, float]] = deque()
        self._trips: deque[tuple[float, float]] = deque()

    def hear_trip(self, trip_s: float, now_s: float) -> None:
        """Take the time that a packet took there and back."""
        self.trip_s = trip_s if self.trip_s is None else 0.8 * self.trip_s + 0.2 * trip_s
        _keep_least(self._trips, trip_s, now_s)

    @property
    def least_trip_s(self) -> float | None:
        """Return the shortest round trip of late; None before the first."""
        return self._trips[0][1] if self._trips else None

    def stamp(self, milliseconds: int, received_s: float) -> float | None:
        """Return when a measurement was taken [s]; None if that is not known.

        It is not before the first round trip, of a packet that was overtaken, and at the moment of a clock's jump.
        """
        if self._last is not None:
            step = (milliseconds - self._last) % _WRAP
            if step >= _HALF:  # a packet that was overtaken, or another life
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
    """Add a value to a window whose first entry stays the least of the last seconds."""
    while window and window[-1][1] >= value:
        window.pop()
    window.append((now_s, value))
    while window[0][0] < now_s - _WINDOW_S:
        window.popleft()


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
