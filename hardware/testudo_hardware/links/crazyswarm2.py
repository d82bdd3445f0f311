"""Crazyswarm2: commands of a drone as its three streaming set-points, and its services; fields only, as in `wire`.

The firmware does not look whether a set-point is finite, so one that is not is refused here and never sent.
Every set-point holds the heading: the rate of turn is zero, which needs no unit (the server takes degrees per
second for `cmd_velocity_world`, radians per second for `cmd_hover`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from testudo_hardware.frames import Placement, turned
from testudo_hardware.links.wire import (
    CommandReading,
    WireError,
    fill_axes,
    fill_pose,
    fill_stamp,
    read_axes,
    read_stamp,
)


def fill_velocity_world(message: Any, frame: str, reading: CommandReading) -> Any:
    """Write a velocity in the world into an empty `VelocityWorld` and return it.

    Raises:
        WireError: a number is not finite.
    """
    _begin(message, frame, reading)
    fill_axes(message.vel, reading.command)
    message.yaw_rate = 0.0
    return message


def read_velocity_world(message: Any, frame: str) -> CommandReading:
    """Read a `VelocityWorld`.

    Raises:
        WireError: another frame.
    """
    return CommandReading(_stamp(message, frame), read_axes(message.vel, 3))


def fill_hover(message: Any, frame: str, reading: CommandReading, at: Placement) -> Any:
    """Write a velocity in the world into an empty `Hover`: horizontal velocity in the body, and a height.

    Args:
        message: with the fields of the message type.
        frame: for the header.
        reading: velocity (3,) [m/s] in the world.
        at: the set-point so far, see `led_set_point`: its height is held, its yaw says how the body is turned.

    Raises:
        WireError: a number is not finite.
    """
    _begin(message, frame, reading, at)
    vx, vy, _ = turned(reading.command, -at.yaw)
    message.vx, message.vy, message.yaw_rate = float(vx), float(vy), 0.0
    message.z_distance = float(at.position[2])
    return message


def fill_full_state(message: Any, frame: str, reading: CommandReading, at: Placement) -> Any:
    """Write a velocity in the world into an empty `FullState`: pose, velocity in the world, no acceleration.

    Args:
        message: with the fields of the message type.
        frame: for the header.
        reading: velocity (3,) [m/s] in the world.
        at: the set-point so far, see `led_set_point`.

    Raises:
        WireError: a number is not finite.
    """
    _begin(message, frame, reading, at)
    fill_pose(message.pose, at.position, at.yaw)
    fill_axes(message.twist.linear, reading.command)
    fill_axes(message.twist.angular, (0.0, 0.0, 0.0))
    fill_axes(message.acc, (0.0, 0.0, 0.0))
    return message


def read_full_state(message: Any, frame: str) -> CommandReading:
    """Read the velocity of a `FullState`.

    Raises:
        WireError: another frame.
    """
    return CommandReading(_stamp(message, frame), read_axes(message.twist.linear, 3))


def led_set_point(before: Placement, command: Sequence[float], elapsed_s: float, measured: Placement, leash_m: float
                  ) -> Placement:
    """Return the set-point that a command leads on, for set-points that are a place and not a velocity.

    It runs ahead with the commanded velocity, stays within ``leash_m`` of where the drone is measured, and keeps
    the heading: a drone that is held back is not drawn by a set-point far away when it comes free.

    Args:
        before: the set-point of the last tick; at the beginning the measured pose.
        command: velocity (3,) [m/s] in the world, held since then.
        elapsed_s: time since then.
        measured: where the drone is.
        leash_m: the longest distance between drone and set-point.
    """
    ahead = [value + elapsed_s * speed for value, speed in zip(before.position, command, strict=True)]
    lead = [value - here for value, here in zip(ahead, measured.position, strict=True)]
    distance = math.hypot(*lead)
    share = min(1.0, leash_m / distance) if distance > 0 else 1.0
    position = tuple(here + share * value for here, value in zip(measured.position, lead, strict=True))
    return Placement(position, before.yaw)


def fill_height(request: Any, height_m: float, duration_s: float) -> Any:
    """Write an empty request of the service `takeoff` or `land` and return it.

    Args:
        request: with the fields `group_mask`, `height` and `duration`.
        height_m: where to end, above the world's origin.
        duration_s: how long to take.

    Raises:
        WireError: a number is not finite, or a duration that is not positive.
    """
    if not (math.isfinite(height_m) and 0 < duration_s < math.inf):
        raise WireError(f"Crazyswarm2: found {height_m} m in {duration_s} s, expected finite numbers and a duration "
                        "above zero")
    request.group_mask, request.height = 0, float(height_m)
    fill_stamp(request.duration, duration_s)
    return request


def fill_notify_setpoints_stop(request: Any, remain_valid_s: float) -> Any:
    """Write an empty request of `notify_setpoints_stop`, which a drone needs before it can land, and return it.

    Args:
        request: with the fields `group_mask` and `remain_valid_millisecs`.
        remain_valid_s: how long the last set-point still holds.
    """
    request.group_mask, request.remain_valid_millisecs = 0, round(1000 * remain_valid_s)
    return request


def _begin(message: Any, frame: str, reading: CommandReading, at: Placement | None = None) -> None:
    numbers = (*reading.command, *((*at.position, at.yaw) if at else ()))
    if len(reading.command) != 3 or not all(math.isfinite(number) for number in numbers):
        raise WireError(f"Crazyswarm2: found the set-point {numbers}, expected a finite velocity (x, y, z)"
                        f"{' and place' if at else ''}")
    fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id = frame


def _stamp(message: Any, frame: str) -> float:
    if message.header.frame_id != frame:
        raise WireError(f"Crazyswarm2: found frame {message.header.frame_id!r}, expected {frame!r}")
    return read_stamp(message.header.stamp)
