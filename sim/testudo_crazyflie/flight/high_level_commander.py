"""The high-level commander (port 8): take-off, landing, stop and going to a place along polynomials of degree seven.

As in the firmware, a planner that does not fly wants the motors off, and any set-point from the radio stops it.
"""

from __future__ import annotations

import math
import struct
from enum import IntEnum

import numpy as np

from testudo_crazyflie.flight.low_level_commander import OFF, SetPoint
from testudo_crazyflie.services.crtp_packets import HIGH_LEVEL, Packet

_BUSY, _NOT_A_COMMAND, _REFUSED = 16, 8, 1
_MASK, _TAKE_OFF_OLD, _LAND_OLD, _STOP, _GO_OLD, _TAKE_OFF, _LAND, _GO = 0, 1, 2, 3, 4, 7, 8, 12
_OLD_HEIGHT = struct.Struct("<Bff")
_HEIGHT = struct.Struct("<Bff?f")
_GO_TO_OLD = struct.Struct("<BBfffff")
_GO_TO = struct.Struct("<BBBfffff")


class PlannerState(IntEnum):
    """As the firmware numbers them."""

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
        """Return whether its polynomial has come to its end."""
        return now_s >= self._start_s + self._duration_s

    def stop(self) -> None:
        """Want the motors off."""
        self.state = PlannerState.IDLE

    def block(self, blocked: bool) -> None:
        """Take whether flight is forbidden; what was planned then ends."""
        self.blocked = blocked
        if blocked:
            self.stop()

    def set_point(self, now_s: float) -> SetPoint:
        """Return what to do now; a landing that has ended turns the motors off from the next call on."""
        if not self.is_active:
            return OFF
        if self.state == PlannerState.LANDING and self.is_finished(now_s):
            self.state = PlannerState.IDLE
        place, speed = self._evaluate(now_s)
        return SetPoint("place", tuple(speed[:3]), tuple(place[:3]), float(place[3]))

    def handle(self, packet: Packet, at: tuple[np.ndarray, float], now_s: float) -> list[Packet]:
        """Return the answer to a command; ``at`` is position (3,) [m] and yaw [rad] now."""
        data = packet.data.ljust(3, b"\0")
        result = self._command(packet.data, at, now_s) if packet.data else _NOT_A_COMMAND
        return [Packet(HIGH_LEVEL, packet.channel, data[:3] + bytes([result]))]

    def _command(self, data: bytes, at: tuple[np.ndarray, float], now_s: float) -> int:
        kind, rest = data[0], data[1:]
        if kind == _MASK and rest:
            self.group_mask = rest[0]
            return 0
        if kind not in (_TAKE_OFF_OLD, _LAND_OLD, _STOP, _GO_OLD, _TAKE_OFF, _LAND, _GO) or not rest:
            return _NOT_A_COMMAND
        if rest[0] and not rest[0] & self.group_mask:
            return 0
        if kind == _STOP:
            self.stop()
            return 0
        return _BUSY if self.blocked else self._fly(kind, rest, at, now_s)

    def _fly(self, kind: int, rest: bytes, at: tuple[np.ndarray, float], now_s: float) -> int:
        if kind in (_GO_OLD, _GO):
            return self._go_to(rest, _GO_TO if kind == _GO else _GO_TO_OLD, at, now_s)
        return self._up_or_down(kind in (_LAND, _LAND_OLD), rest, at, now_s)

    def _up_or_down(self, down: bool, rest: bytes, at: tuple[np.ndarray, float], now_s: float) -> int:
        if len(rest) == _HEIGHT.size:
            _, height, yaw, keep_yaw, duration_s = _HEIGHT.unpack(rest)
        elif len(rest) == _OLD_HEIGHT.size:
            (_, height, duration_s), yaw, keep_yaw = _OLD_HEIGHT.unpack(rest), 0.0, False
        else:
            return _NOT_A_COMMAND
        if (self.state == PlannerState.LANDING) if down else self.is_active:
            return _REFUSED
        position, now_yaw = at
        begin = np.append(position, now_yaw)
        end = np.array([position[0], position[1], height, now_yaw if keep_yaw else yaw])
        self._plan(begin, np.zeros(4), end, duration_s, now_s)
        self.state = PlannerState.LANDING if down else PlannerState.FLYING
        return 0

    def _go_to(self, rest: bytes, form: struct.Struct, at: tuple[np.ndarray, float], now_s: float) -> int:
        if len(rest) != form.size:
            return _NOT_A_COMMAND
        numbers = form.unpack(rest)
        relative, duration_s = bool(numbers[1]), numbers[-1]
        begin, speed = self._evaluate(now_s) if self.is_active else (np.append(*at), np.zeros(4))
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
