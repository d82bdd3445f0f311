"""Envelopes of flight: a round trip keeps every value; whatever else arrives ends in an EnvelopeError."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.guard.flight_messages import DesiredFlightState, FlightOrder, FlightRequestMessage, VehicleMessage
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState
from testudo_hardware.links.wire import WireError

NUMBERS = st.floats(-1e6, 1e6)
TIMES = st.floats(1e-3, 1e3)
FLAGS = st.none() | st.booleans()


@given(
    st.builds(
        FlightOrder,
        robot=st.text(),
        stamp_s=NUMBERS,
        wanted=st.sampled_from([str(w) for w in DesiredFlightState]),
        top_m=NUMBERS,
        climb_s=TIMES,
        ground_m=NUMBERS,
        down_s=TIMES,
    )
)
def test_an_order_survives(order):
    assert FlightOrder.decode(order.encode()) == order


@given(st.sampled_from(list(FlightAct)), NUMBERS, TIMES, st.floats(0, 10), st.integers(0, 2**53))
def test_a_request_survives(act, height_m, duration_s, valid_s, sequence):
    request = FlightRequest(act, height_m, duration_s, valid_s)
    message = FlightRequestMessage.decode(FlightRequestMessage.of("r0", sequence, 12.5, request).encode())
    assert (message.robot, message.sequence, message.stamp_s) == ("r0", sequence, 12.5)
    assert message.request == request


@given(
    st.builds(
        VehicleState,
        stamp_s=NUMBERS,
        battery_v=st.none() | NUMBERS,
        armed=FLAGS,
        can_fly=FLAGS,
        flying=FLAGS,
        tumbled=FLAGS,
        locked=FLAGS,
        controller=st.text(),
        estimator=st.text(),
        latency_s=st.none() | NUMBERS,
        holds=st.text(),
    )
)
def test_a_state_survives(state):
    assert VehicleMessage.decode(VehicleMessage.of("r0", state).encode()).state == state


SPOILT = [
    (FlightOrder("r0", 1.0, "fly", 1.0, 2.0, 0.0, 3.0), {"wanted": "loop"}),
    (FlightOrder("r0", 1.0, "fly", 1.0, 2.0, 0.0, 3.0), {"climb_s": 0.0}),
    (FlightOrder("r0", 1.0, "fly", 1.0, 2.0, 0.0, 3.0), {"down_s": -1.0}),
    (FlightOrder("r0", 1.0, "fly", 1.0, 2.0, 0.0, 3.0), {"top_m": "high"}),
    (FlightRequestMessage("r0", 1, 1.0, "land", 0.0, 2.0, 0.0), {"act": "loop"}),
    (FlightRequestMessage("r0", 1, 1.0, "land", 0.0, 2.0, 0.0), {"duration_s": 0.0}),
    (FlightRequestMessage("r0", 1, 1.0, "land", 0.0, 2.0, 0.0), {"sequence": 1.5}),
    (FlightRequestMessage("r0", 1, 1.0, "land", 0.0, 2.0, 0.0), {"height_m": True}),
    (VehicleMessage.of("r0", VehicleState(1.0)), {"flying": 1}),
    (VehicleMessage.of("r0", VehicleState(1.0)), {"battery_v": "full"}),
    (VehicleMessage.of("r0", VehicleState(1.0)), {"controller": None}),
    (VehicleMessage.of("r0", VehicleState(1.0)), {"robot": None}),
    (VehicleMessage.of("r0", VehicleState(1.0)), {"holds": None}),
]


@pytest.mark.parametrize(("message", "change"), SPOILT)
def test_what_nobody_should_act_on_is_refused(message, change):
    values = json.loads(message.encode())
    with pytest.raises(EnvelopeError):
        type(message).decode(json.dumps(values | change).encode())
    values.pop(next(iter(change)))
    with pytest.raises(EnvelopeError):
        type(message).decode(json.dumps(values).encode())


@given(st.binary(max_size=60))
def test_bytes_that_are_no_envelope_are_refused(data):
    for kind in (FlightOrder, FlightRequestMessage, VehicleMessage):
        with pytest.raises(EnvelopeError):
            kind.decode(data)


@pytest.mark.parametrize(
    "words", [{"height_m": math.inf}, {"duration_s": math.nan}, {"duration_s": 0.0}, {"remain_valid_s": -1.0}]
)
def test_no_vehicle_is_asked_for_what_is_no_number(words):
    with pytest.raises(WireError):
        FlightRequest(FlightAct.LAND, **{"height_m": 0.0, "duration_s": 1.0, **words})
