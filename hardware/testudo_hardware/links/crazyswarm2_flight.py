"""Crazyswarm2: what is asked of a drone as calls of its services, and its status; fields only, as in `wire`.

`Status.supervisor_info` is the bit field of the firmware's supervisor. Controller and estimator are parameters of the
firmware and stand in no message: `testudo fleet import` reads them from `crazyflies.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState
from testudo_hardware.links.wire import fill_stamp

STATUS = "crazyflie_interfaces/msg/Status"
_CAN_BE_ARMED, _ARMED, _CAN_FLY, _FLYING, _TUMBLED, _LOCKED, _CRASHED, _PLANNER = 1, 2, 8, 16, 32, 64, 128, 256
"""Bits of `Status.supervisor_info`."""
_ALL_GROUPS = 0


@dataclass(frozen=True)
class Call:
    """One kind of call of a service."""

    name: str
    """Of the service, in the drone's namespace."""
    type: str
    fill: Callable[[Any, FlightRequest], None]
    """Writes what is asked into an empty request."""


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
"""How each request travels."""


def read_status(message: Any, received_s: float) -> VehicleState:
    """Return what a `Status` says.

    Args:
        message: with the fields of the message type.
        received_s: when it came, on the steady clock: how old a log block is, nobody knows.
    """
    bits = int(message.supervisor_info)
    volts = float(message.battery_voltage)
    ready = bits & (_CAN_FLY if bits & _ARMED else _CAN_BE_ARMED)
    return VehicleState(
        received_s,
        battery_v=volts if 0 < volts < 100 else None,
        armed=bool(bits & _ARMED),
        can_fly=bool(ready),
        flying=bool(bits & _FLYING),
        tumbled=bool(bits & _TUMBLED),
        locked=bool(bits & (_LOCKED | _CRASHED)),
        latency_s=1e-3 * float(message.latency_unicast),
        planner_active=bool(bits & _PLANNER),
    )
