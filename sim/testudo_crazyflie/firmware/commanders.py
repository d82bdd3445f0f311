"""Low-level commander (ports 3 and 7) and high-level planner (port 8) of the firmware."""

import math
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

import numpy as np

from testudo_crazyflie.firmware.crtp_packets import GENERIC, HIGH_LEVEL, Packet
from testudo_hardware.links.crazyflie.vehicle_messages import decompressed

DISABLED, LOWEST, HIGH_LEVEL_PRIORITY, RADIO = 0, 1, 1, 2
"""Priorities of sources: a source is followed if its priority is at least that of the last one followed."""

Kind = Literal["off", "velocity", "hover", "place", "attitude"]


class _Type(IntEnum):
    """Types of set-points on port 7, as the firmware numbers them."""

    STOP = 0
    OLD_VELOCITY = 1
    OLD_HEIGHT = 2
    CLIMB_RATE = 4
    OLD_HOVER = 5
    FULL_STATE = 6
    PLACE = 7
    VELOCITY = 8
    HEIGHT = 9
    HOVER = 10
    MANUAL = 11


_FOUR = struct.Struct("<ffff")
_FULL = struct.Struct("<hhhhhhhhhIhhh")
_RATES = struct.Struct("<fffH")
_META, _NOTIFY = 1, 0


@dataclass(frozen=True)
class SetPoint:
    """One set-point."""

    kind: Kind = "off"
    velocity: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """[m/s]; in the world, for `hover` in the body and without the height."""
    position_world: tuple[float, float, float] = (0.0, 0.0, 0.0)  # [m]; for `place` and the height of `hover`
    yaw: float = 0.0  # [rad], for `place`: of the quaternion of a full state
    yaw_rate: float = 0.0  # [rad/s], anticlockwise
    stamp_s: float = 0.0  # time of reception on the clock of the vehicle


OFF = SetPoint()


def decode_set_point(packet: Packet) -> SetPoint | None:
    """Return the set-point of a packet of ports 3 or 7; None if it has another size or an unknown type.

    The firmware stops with an assertion at a wrong size; here the packet is ignored.
    """
    if packet.channel != 0 or not packet.data:
        return None
    if packet.port != GENERIC:
        return _rates(packet.data)
    kind, rest = packet.data[0], packet.data[1:]
    if kind == _Type.STOP:
        return OFF
    if kind == _Type.MANUAL:
        return _rates(rest[:-1])
    return _full_state(rest) if kind == _Type.FULL_STATE else _four_numbers(kind, rest)


def is_notification(packet: Packet) -> bool:
    """Return whether a packet notifies the end of set-points, which releases their priority."""
    return packet.port == GENERIC and packet.channel == _META and len(packet.data) == 5 and packet.data[0] == _NOTIFY


class Commander:
    """The active set-point and the priority of its source."""

    def __init__(self) -> None:
        """Begin with motors off."""
        self.set_point, self.priority = OFF, DISABLED

    def take(self, set_point: SetPoint, priority: int, now_s: float) -> bool:
        """Follow a set-point if the priority of its source suffices; return whether it does."""
        if priority < self.priority:
            return False
        self.set_point, self.priority = replace(set_point, stamp_s=now_s), priority
        return True

    def relax(self) -> None:
        """Release the priority."""
        self.priority = LOWEST


def _rates(data: bytes) -> SetPoint | None:
    if len(data) != _RATES.size:
        return None
    return SetPoint("attitude" if _RATES.unpack(data)[3] else "off")


def _four_numbers(kind: int, rest: bytes) -> SetPoint | None:
    if len(rest) != _FOUR.size:
        return None
    a, b, c, d = _FOUR.unpack(rest)
    if kind in (_Type.VELOCITY, _Type.OLD_VELOCITY):
        return SetPoint("velocity", (a, b, c), yaw_rate=math.radians(d if kind == _Type.VELOCITY else -d))
    if kind in (_Type.HOVER, _Type.OLD_HOVER):
        return SetPoint("hover", (a, b, 0.0), (0.0, 0.0, d), yaw_rate=math.radians(c if kind == _Type.HOVER else -c))
    if kind in (_Type.HEIGHT, _Type.OLD_HEIGHT):
        return SetPoint("attitude", position_world=(0.0, 0.0, d))
    if kind == _Type.PLACE:
        return SetPoint("place", position_world=(a, b, c), yaw=math.radians(d))
    return SetPoint("attitude", (0.0, 0.0, d)) if kind == _Type.CLIMB_RATE else None


def _full_state(rest: bytes) -> SetPoint | None:
    if len(rest) != _FULL.size:
        return None
    numbers = _FULL.unpack(rest)
    x, y, z, vx, vy, vz = (value / 1000 for value in numbers[:6])
    i, j, k, w = decompressed(numbers[9])  # arbitrary bits: the norm need not be 1
    yaw = math.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
    return SetPoint("place", (vx, vy, vz), (x, y, z), yaw, numbers[12] / 1000)


_BUSY, _NOT_A_COMMAND, _REFUSED = 16, 8, 1
_MASK, _TAKE_OFF_OLD, _LAND_OLD, _STOP, _GO_OLD, _TAKE_OFF, _LAND, _GO = 0, 1, 2, 3, 4, 7, 8, 12
_OLD_HEIGHT_FORMAT = struct.Struct("<Bff")
_HEIGHT_FORMAT = struct.Struct("<Bff?f")
_OLD_GO_TO_FORMAT = struct.Struct("<BBfffff")
_GO_TO_FORMAT = struct.Struct("<BBBfffff")


class PlannerState(IntEnum):
    """States as numbered in the firmware."""

    IDLE = 0
    FLYING = 1
    LANDING = 3


class Planner:
    """Makes set-points along one polynomial; times are seconds on the clock of the vehicle."""

    def __init__(self) -> None:
        """Begin idle."""
        self.state = PlannerState.IDLE
        self.blocked = False
        """The supervisor allows no flight."""
        self.group_mask = 0
        self._coefficients = np.zeros((4, 8))
        self._start_s = self._duration_s = 0.0

    @property
    def is_active(self) -> bool:
        """Return whether it makes set-points for flight."""
        return self.state != PlannerState.IDLE

    def is_finished(self, now_s: float) -> bool:
        """Return whether its polynomial has ended."""
        return now_s >= self._start_s + self._duration_s

    def stop(self) -> None:
        """Switch the motors off."""
        self.state = PlannerState.IDLE

    def block(self, blocked: bool) -> None:
        """Set whether flight is blocked, which ends the present plan."""
        self.blocked = blocked
        if blocked:
            self.stop()

    def set_point(self, now_s: float) -> SetPoint:
        """Return the present set-point; after a landing the motors are off from the next call on."""
        if not self.is_active:
            return OFF
        if self.state == PlannerState.LANDING and self.is_finished(now_s):
            self.state = PlannerState.IDLE
        place, speed = self._evaluate(now_s)
        return SetPoint("place", tuple(speed[:3]), tuple(place[:3]), float(place[3]))

    def handle(self, packet: Packet, at: np.ndarray, now_s: float) -> list[Packet]:
        """Return the answer to a command; ``at`` (4,) is position [m] and yaw [rad]."""
        data = packet.data.ljust(3, b"\0")
        result = self._command(packet.data, at, now_s) if packet.data else _NOT_A_COMMAND
        return [Packet(HIGH_LEVEL, packet.channel, data[:3] + bytes([result]))]

    def _command(self, data: bytes, at: np.ndarray, now_s: float) -> int:
        """Execute a command at position and yaw (4,); return the result code."""
        kind, rest = data[0], data[1:]
        if kind == _MASK and rest:
            self.group_mask = rest[0]
            return 0
        if kind not in (_TAKE_OFF_OLD, _LAND_OLD, _STOP, _GO_OLD, _TAKE_OFF, _LAND, _GO) or not rest:
            return _NOT_A_COMMAND
        is_addressed = not rest[0] or bool(rest[0] & self.group_mask)
        if kind == _STOP and is_addressed:
            self.stop()
        if kind == _STOP or not is_addressed:
            return 0
        if self.blocked:
            return _BUSY
        if kind in (_GO_OLD, _GO):
            return self._go_to(rest, _GO_TO_FORMAT if kind == _GO else _OLD_GO_TO_FORMAT, at, now_s)
        return self._up_or_down(kind in (_LAND, _LAND_OLD), rest, at, now_s)

    def _up_or_down(self, down: bool, rest: bytes, at: np.ndarray, now_s: float) -> int:
        if len(rest) == _HEIGHT_FORMAT.size:
            _, height, yaw, keep_yaw, duration_s = _HEIGHT_FORMAT.unpack(rest)
        elif len(rest) == _OLD_HEIGHT_FORMAT.size:
            (_, height, duration_s), yaw, keep_yaw = _OLD_HEIGHT_FORMAT.unpack(rest), 0.0, False
        else:
            return _NOT_A_COMMAND
        if (self.state == PlannerState.LANDING) if down else self.is_active:
            return _REFUSED
        end = np.array([at[0], at[1], height, at[3] if keep_yaw else yaw])
        self._plan(at, np.zeros(4), end, duration_s, now_s)
        self.state = PlannerState.LANDING if down else PlannerState.FLYING
        return 0

    def _go_to(self, rest: bytes, form: struct.Struct, at: np.ndarray, now_s: float) -> int:
        if len(rest) != form.size:
            return _NOT_A_COMMAND
        numbers = form.unpack(rest)
        relative, duration_s = bool(numbers[1]), numbers[-1]
        begin, speed = self._evaluate(now_s) if self.is_active else (at, np.zeros(4))
        end = np.array(numbers[-5:-1]) + (begin if relative else 0.0)
        self._plan(begin, speed, end, duration_s, now_s)
        self.state = PlannerState.FLYING
        return 0

    def _plan(self, begin: np.ndarray, speed: np.ndarray, end: np.ndarray, duration_s: float, now_s: float) -> None:
        """Plan from place (4,) and speed (4,) to rest at a place, without acceleration and jerk at both ends."""
        turn = math.remainder(end[3] - begin[3], 2 * math.pi)
        goal = np.append(end[:3], begin[3] + turn)
        way = goal - begin - speed * duration_s
        brake = -speed * duration_s
        self._coefficients = np.zeros((4, 8))
        self._coefficients[:, 0], self._coefficients[:, 1] = begin, speed * duration_s
        # the four last coefficients from way, speed, acceleration and jerk at the end, in units of the duration
        self._coefficients[:, 4:] = np.stack(
            [35 * way - 15 * brake, 39 * brake - 84 * way, 70 * way - 34 * brake, 10 * brake - 20 * way], axis=1
        )
        self._start_s, self._duration_s = now_s, max(duration_s, 1e-3)

    def _evaluate(self, now_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Return place (4,) and speed (4,): x, y, z, yaw."""
        share = min(max((now_s - self._start_s) / self._duration_s, 0.0), 1.0)
        powers = share ** np.arange(8)
        slopes = np.arange(1, 8) * powers[:7]
        return self._coefficients @ powers, self._coefficients[:, 1:] @ slopes / self._duration_s
