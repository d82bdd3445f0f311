"""Crazyswarm2 messages: streaming set-points, flight services and the status of a drone; by fields only, as in `wire`.

The firmware does not check that set-points are finite: values that are not finite are refused here.

A yaw rate is sent only where its sign is known. `cmd_full_state`: rad/s counter-clockwise in both servers, beside the
heading of the pose. `cmd_velocity_world`: degrees/s, which the C++ server sends as the firmware's old packet,
clockwise, and the cflib server as the new one, counter-clockwise: the link profile has to say which. `cmd_hover`
carries none: its velocity is in the body frame, which has turned further when the message arrives.

`Status.supervisor_info` is the bit field of the firmware's supervisor. Controller and estimator are firmware parameters
and are in no message: `testudo fleet import` reads them from `crazyflies.yaml`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testudo_hardware.frames import PlanarTransform, turned, wrapped
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState
from testudo_hardware.links.wire import (
    CommandReading,
    WireError,
    fill_axes,
    fill_pose,
    fill_stamp,
    read_axes,
    read_stamp,
)

LEASH_M = 0.3  # largest distance of a position set-point from the drone
LEASH_RAD = 0.5  # largest angle of a yaw set-point from the drone's heading


def fill_velocity_world(message: Any, frame: str, reading: CommandReading, per_radian: float = 0.0) -> Any:
    """Write a velocity (3,) [m/s] in the world into an empty `VelocityWorld` and return it.

    ``frame`` is for the header; ``per_radian`` is `YawRate.per_radian`, where 0 holds the heading.

    Raises:
        WireError: a number is not finite.
    """
    _begin(message, frame, reading)
    fill_axes(message.vel, reading.command)
    message.yaw_rate = float(per_radian * reading.yaw_rate)
    return message


def read_velocity_world(message: Any, frame: str, per_radian: float = 0.0) -> CommandReading:
    """Read a `VelocityWorld`; ``per_radian`` as in `fill_velocity_world`.

    Raises:
        WireError: another frame.
    """
    yaw_rate = message.yaw_rate / per_radian if per_radian else 0.0
    return CommandReading(_stamp(message, frame), read_axes(message.vel, 3), yaw_rate)


def fill_hover(message: Any, frame: str, reading: CommandReading, at: PlanarTransform) -> Any:
    """Write a velocity (3,) [m/s] in the world into an empty `Hover`: horizontal velocity in the body, and a height.

    ``at`` is the current set-point, see `led_set_point`: its height is held, its yaw is the heading of the body.

    Raises:
        WireError: a number is not finite.
    """
    _begin(message, frame, reading, at)
    vx, vy, _ = turned(reading.command, -at.yaw)
    message.vx, message.vy, message.yaw_rate = float(vx), float(vy), 0.0
    message.z_distance = float(at.position[2])
    return message


def fill_full_state(message: Any, frame: str, reading: CommandReading, at: PlanarTransform) -> Any:
    """Write a velocity (3,) [m/s] in the world into an empty `FullState`: with the pose ``at``, no acceleration.

    Raises:
        WireError: a number is not finite.
    """
    _begin(message, frame, reading, at)
    fill_pose(message.pose, at.position, at.yaw)
    fill_axes(message.twist.linear, reading.command)
    fill_axes(message.twist.angular, (0.0, 0.0, reading.yaw_rate))
    fill_axes(message.acc, (0.0, 0.0, 0.0))
    return message


def read_full_state(message: Any, frame: str) -> CommandReading:
    """Read velocity and yaw rate of a `FullState`.

    Raises:
        WireError: another frame.
    """
    return CommandReading(_stamp(message, frame), read_axes(message.twist.linear, 3), message.twist.angular.z)


def led_set_point(
    before: PlanarTransform,
    command: Sequence[float],
    elapsed_s: float,
    measured: PlanarTransform,
    leash_m: float,
    yaw_rate: float = 0.0,
) -> PlanarTransform:
    """Return the next position set-point of a drone under a velocity command (3,) [m/s] in the world.

    The set-point moves with the commanded velocity, stays within ``leash_m`` of the measured position, and holds the
    heading, so that a blocked drone does not fly to a distant set-point once it is free. With a yaw rate [rad/s] the
    heading moves in the same way, within `LEASH_RAD`. Both were held for ``elapsed_s`` since ``before``.
    """
    ahead = [value + elapsed_s * speed for value, speed in zip(before.position, command, strict=True)]
    lead = [value - here for value, here in zip(ahead, measured.position, strict=True)]
    distance = math.hypot(*lead)
    share = min(1.0, leash_m / distance) if distance > 0 else 1.0
    position = tuple(here + share * value for here, value in zip(measured.position, lead, strict=True))
    if yaw_rate == 0:
        return PlanarTransform(position, before.yaw)
    turn = wrapped(before.yaw + yaw_rate * elapsed_s - measured.yaw)
    return PlanarTransform(position, wrapped(measured.yaw + min(max(turn, -LEASH_RAD), LEASH_RAD)))


class SetPointLeader:
    """Moves the position set-point of one drone, see `led_set_point`."""

    def __init__(self, leash_m: float = LEASH_M, oldest_s: float = 0.1) -> None:
        """Wait for the first pose; a pose older than ``oldest_s`` is not used."""
        self._leash_m, self._oldest_s = leash_m, oldest_s
        self._measured: PlanarTransform | None = None
        self._measured_s = self._led_s = -math.inf
        self._at: PlanarTransform | None = None

    def see(self, measured: PlanarTransform, now_s: float) -> None:
        """Take the measured pose."""
        self._measured, self._measured_s = measured, now_s

    def sees(self, now_s: float) -> bool:
        """Return whether the pose is recent enough."""
        return now_s - self._measured_s <= self._oldest_s

    def forget(self) -> None:
        """Start again at the measured pose: the vehicle flew by itself."""
        self._at = None

    def lead(
        self, command: Sequence[float], now_s: float, yaw_rate: float = 0.0
    ) -> tuple[tuple[float, ...], PlanarTransform] | None:
        """Return velocity (3,) [m/s] in the world and set-point to send at ``now_s`` on the clock of `see`.

        Without a recent pose: zero velocity at the last set-point, or None if there never was one. Send the yaw rate
        [rad/s] only while `sees` is true.
        """
        if self._measured is None or not self.sees(now_s):
            return None if self._at is None else ((0.0,) * len(command), self._at)
        elapsed_s = min(max(now_s - self._led_s, 0.0), self._oldest_s)
        at = self._measured
        if self._at is not None:
            at = led_set_point(self._at, command, elapsed_s, at, self._leash_m, yaw_rate)
        self._at, self._led_s = at, now_s
        return tuple(command), at


def _begin(message: Any, frame: str, reading: CommandReading, at: PlanarTransform | None = None) -> None:
    numbers = (*reading.command, reading.yaw_rate, *((*at.position, at.yaw) if at else ()))
    if len(reading.command) != 3 or not all(math.isfinite(number) for number in numbers):
        raise WireError(
            f"Crazyswarm2: found the set-point {numbers}, expected a finite velocity (x, y, z)"
            f"{' and position' if at else ''}"
        )
    fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id = frame


def _stamp(message: Any, frame: str) -> float:
    if message.header.frame_id != frame:
        raise WireError(f"Crazyswarm2: found frame {message.header.frame_id!r}, expected {frame!r}")
    return read_stamp(message.header.stamp)


STATUS = "crazyflie_interfaces/msg/Status"
CAN_BE_ARMED, ARMED, CAN_FLY, FLYING, TUMBLED, LOCKED, CRASHED, PLANNER = 1, 2, 8, 16, 32, 64, 128, 256
"""Bits of `Status.supervisor_info`."""
_ALL_GROUPS = 0


@dataclass(frozen=True)
class Call:
    """One kind of service call."""

    name: str  # of the service, in the drone's namespace
    type: str
    fill: Callable[[Any, FlightRequest], None]  # writes a request into an empty service request


def _fill_arm(request: Any, asked: FlightRequest) -> None:
    request.arm = asked.act is FlightAct.ARM


def _fill_height(request: Any, asked: FlightRequest) -> None:
    request.group_mask, request.height = _ALL_GROUPS, float(asked.height_m)
    fill_stamp(request.duration, asked.duration_s)


def _fill_stop(request: Any, asked: FlightRequest) -> None:
    request.group_mask, request.remain_valid_millisecs = _ALL_GROUPS, round(1000 * asked.remain_valid_s)


def _fill_nothing(_: Any, __: FlightRequest) -> None:
    pass


_ARM = Call("arm", "crazyflie_interfaces/srv/Arm", _fill_arm)
CALLS: dict[FlightAct, Call] = {
    FlightAct.ARM: _ARM,
    FlightAct.DISARM: _ARM,
    FlightAct.TAKE_OFF: Call("takeoff", "crazyflie_interfaces/srv/Takeoff", _fill_height),
    FlightAct.LAND: Call("land", "crazyflie_interfaces/srv/Land", _fill_height),
    FlightAct.NOTIFY_SETPOINTS_STOP: Call(
        "notify_setpoints_stop", "crazyflie_interfaces/srv/NotifySetpointsStop", _fill_stop
    ),
    FlightAct.EMERGENCY: Call("emergency", "std_srvs/srv/Empty", _fill_nothing),
}
"""The service for each request."""


def read_status(message: Any, received_s: float) -> VehicleState:
    """Read a `Status`; ``received_s`` is its arrival on the steady clock, since the age of a log block is unknown."""
    bits = int(message.supervisor_info)
    volts = float(message.battery_voltage)
    ready = bits & (CAN_FLY if bits & ARMED else CAN_BE_ARMED)
    return VehicleState(
        received_s,
        battery_v=volts if 0 < volts < 100 else None,
        armed=bool(bits & ARMED),
        can_fly=bool(ready),
        flying=bool(bits & FLYING),
        tumbled=bool(bits & TUMBLED),
        locked=bool(bits & (LOCKED | CRASHED)),
        latency_s=1e-3 * float(message.latency_unicast),
        planner_active=bool(bits & PLANNER),
    )
