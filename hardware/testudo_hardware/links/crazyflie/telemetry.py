"""What a Crazyflie logs at 100 Hz: one block of 26 bytes, the most that one packet holds; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from testudo_hardware.frames import yaw_from_quaternion_xyzw
from testudo_hardware.links.crazyflie.quaternion_compression import decompressed
from testudo_hardware.links.wire import OdometryReading

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
