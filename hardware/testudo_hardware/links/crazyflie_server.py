"""The other end of `crazyswarm2`: requests as crazyflie_server reads them, and the status that it sends.

For a stand-in of the server; by fields only. `go_to` is not among the services: nothing of this project asks for it.
"""

import math
from collections.abc import Callable
from typing import Any

from testudo_hardware.links import crazyswarm2 as wire
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState
from testudo_hardware.links.wire import read_stamp

ALL = "all"
"""Namespace of the services that reach every drone."""


def _read_arm(request: Any) -> FlightRequest:
    return FlightRequest(FlightAct.ARM if request.arm else FlightAct.DISARM)


def _reader_of_height(act: FlightAct) -> Callable[[Any], FlightRequest]:
    return lambda request: FlightRequest(act, float(request.height), read_stamp(request.duration))


def _read_stop(request: Any) -> FlightRequest:
    return FlightRequest(FlightAct.NOTIFY_SETPOINTS_STOP, remain_valid_s=1e-3 * float(request.remain_valid_millisecs))


_READ: dict[str, Callable[[Any], FlightRequest]] = {
    "arm": _read_arm,
    "takeoff": _reader_of_height(FlightAct.TAKE_OFF),
    "land": _reader_of_height(FlightAct.LAND),
    "notify_setpoints_stop": _read_stop,
    "emergency": lambda _: FlightRequest(FlightAct.EMERGENCY),
}
SERVICES: dict[str, str] = {call.name: call.type for call in wire.CALLS.values()}
"""Type of each service, by its name."""


def read_call(service: str, request: Any) -> FlightRequest | None:
    """Read the request of a service; None if it is for a group of drones, in which none of ours is.

    Raises:
        WireError: a number is not finite, or a duration is missing.
    """
    return None if getattr(request, "group_mask", 0) else _READ[service](request)


def fill_status(message: Any, state: VehicleState) -> Any:
    """Write the state of a vehicle into an empty `Status` and return it; what the state does not say is 0."""
    ready = bool(state.can_fly)
    bits = {
        wire.CAN_BE_ARMED: ready and not state.armed,
        wire.ARMED: bool(state.armed),
        wire.CAN_FLY: ready and bool(state.armed),
        wire.FLYING: bool(state.flying),
        wire.TUMBLED: bool(state.tumbled),
        wire.LOCKED: bool(state.locked),
        wire.PLANNER: bool(state.planner_active),
    }
    message.supervisor_info = sum(bit for bit, is_set in bits.items() if is_set)
    volts = state.battery_v
    message.battery_voltage = 0.0 if volts is None or not math.isfinite(volts) else volts
    message.latency_unicast = round(1e3 * (state.latency_s or 0.0))
    return message
