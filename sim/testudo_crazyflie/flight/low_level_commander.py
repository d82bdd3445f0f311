"""Set-points of the low-level commander (ports 3 and 7), and which of several sources is followed."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import Literal

from testudo_crazyflie.services.crtp_packets import GENERIC, Packet
from testudo_hardware.links.crazyflie.quaternion_compression import decompressed

DISABLED, LOWEST, HIGH_LEVEL, RADIO = 0, 1, 1, 2
"""Priorities of sources: a source is followed if its priority is at least that of the last one followed."""

Kind = Literal["off", "velocity", "hover", "place", "attitude"]
_STOP, _OLD_VELOCITY, _OLD_HEIGHT, _CLIMB, _OLD_HOVER, _FULL_STATE, _PLACE, _VELOCITY, _HEIGHT, _HOVER, _MANUAL = (
    0,
    1,
    2,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
)
_FOUR = struct.Struct("<ffff")
_FULL = struct.Struct("<hhhhhhhhhIhhh")
_RATES = struct.Struct("<fffH")
_META, _NOTIFY = 1, 0


@dataclass(frozen=True)
class SetPoint:
    """What the vehicle is to do."""

    kind: Kind = "off"
    velocity: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """[m/s]; in the world, for `hover` in the body and without the height."""
    position_world: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """[m]; for `place` and the height of `hover`."""
    yaw: float = 0.0
    """[rad], for `place`: of the quaternion of a full state."""
    yaw_rate: float = 0.0
    """[rad/s], anticlockwise."""
    stamp_s: float = 0.0
    """When it was taken, on the clock of the vehicle."""


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
    if kind == _STOP:
        return OFF
    if kind == _MANUAL:
        return _rates(rest[:-1])
    return _full_state(rest) if kind == _FULL_STATE else _four_numbers(kind, rest)


def is_notification(packet: Packet) -> bool:
    """Return whether a packet says that set-points end, so that any source may follow."""
    return packet.port == GENERIC and packet.channel == _META and len(packet.data) == 5 and packet.data[0] == _NOTIFY


class Commander:
    """The set-point that is followed, and the priority of its source."""

    def __init__(self) -> None:
        """Begin with motors off."""
        self.set_point, self.priority = OFF, DISABLED

    def take(self, set_point: SetPoint, priority: int, now_s: float) -> bool:
        """Follow a set-point if its source may command; return whether it does."""
        if priority < self.priority:
            return False
        self.set_point, self.priority = replace(set_point, stamp_s=now_s), priority
        return True

    def relax(self) -> None:
        """Let any source command next."""
        self.priority = LOWEST


def _rates(data: bytes) -> SetPoint | None:
    if len(data) != _RATES.size:
        return None
    return SetPoint("attitude" if _RATES.unpack(data)[3] else "off")


def _four_numbers(kind: int, rest: bytes) -> SetPoint | None:
    if len(rest) != _FOUR.size:
        return None
    a, b, c, d = _FOUR.unpack(rest)
    if kind in (_VELOCITY, _OLD_VELOCITY):
        return SetPoint("velocity", (a, b, c), yaw_rate=math.radians(d if kind == _VELOCITY else -d))
    if kind in (_HOVER, _OLD_HOVER):
        return SetPoint("hover", (a, b, 0.0), (0.0, 0.0, d), yaw_rate=math.radians(c if kind == _HOVER else -c))
    if kind in (_HEIGHT, _OLD_HEIGHT):
        return SetPoint("attitude", position_world=(0.0, 0.0, d))
    if kind == _PLACE:
        return SetPoint("place", position_world=(a, b, c), yaw=math.radians(d))
    return SetPoint("attitude", (0.0, 0.0, d)) if kind == _CLIMB else None


def _full_state(rest: bytes) -> SetPoint | None:
    if len(rest) != _FULL.size:
        return None
    numbers = _FULL.unpack(rest)
    x, y, z, vx, vy, vz = (value / 1000 for value in numbers[:6])
    i, j, k, w = decompressed(numbers[9])  # of any 32 bits: its length need not be 1
    yaw = math.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
    return SetPoint("place", (vx, vy, vz), (x, y, z), yaw, numbers[12] / 1000)
