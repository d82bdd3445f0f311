"""The stand-in of crazyflie_server reads what the guard asks for, and its status is understood on the robot."""

import itertools
import math
from types import SimpleNamespace

import pytest
from tests.hardware import plain_messages as plain

from testudo_hardware.links.crazyflie_server import SERVICES, fill_status, read_call
from testudo_hardware.links.crazyswarm2 import CALLS, read_status
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState
from testudo_hardware.links.wire import WireError


def asked(request):
    """Return the service and its request as the guard fills them."""
    call = CALLS[request.act]
    message = SimpleNamespace(arm=None, group_mask=7, height=0.0, duration=plain.stamp(), remain_valid_millisecs=0)
    if request.act in (FlightAct.ARM, FlightAct.DISARM, FlightAct.EMERGENCY):
        del message.group_mask
    call.fill(message, request)
    return call.name, message


@pytest.mark.parametrize("act", list(FlightAct))
def test_every_request_of_the_guard_is_read_as_it_was_meant(act):
    flies = act in (FlightAct.TAKE_OFF, FlightAct.LAND)
    valid_s = 0.1 if act is FlightAct.NOTIFY_SETPOINTS_STOP else 0.0
    request = FlightRequest(act, 0.75 if flies else 0.0, 2.25 if flies else 0.0, valid_s)
    service, message = asked(request)
    assert service in SERVICES
    assert read_call(service, message) == request


def test_a_request_for_a_group_reaches_none_and_one_that_is_not_finite_is_refused():
    service, message = asked(FlightRequest(FlightAct.LAND, 0.0, 2.0))
    message.group_mask = 1
    assert read_call(service, message) is None
    message.group_mask, message.height = 0, math.nan
    with pytest.raises(WireError, match="land: found nan m"):
        read_call(service, message)


def test_every_state_of_a_drone_is_understood_from_its_status():
    for armed, ready, flying, tumbled, locked, planner in itertools.product((False, True), repeat=6):
        state = VehicleState(3.0, 3.9, armed, ready, flying, tumbled, locked, latency_s=0.004, planner_active=planner)
        status = fill_status(SimpleNamespace(), state)
        assert read_status(status, 3.0) == state
    assert read_status(fill_status(SimpleNamespace(), VehicleState(3.0, math.nan)), 3.0).battery_v is None
