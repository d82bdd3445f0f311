"""Envelopes: a round trip keeps every digit; whatever else arrives ends in an EnvelopeError."""

import dataclasses
import json
import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.contract.messages import EnvelopeError, PeerMessage, TickRecord

NUMBERS = st.floats(-1e6, 1e6)
VECTORS = st.tuples(NUMBERS, NUMBERS)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.builds(
        PeerMessage,
        robot=st.text(),
        epoch=st.text(),
        sequence=st.integers(0, 2**53),
        stamp_s=NUMBERS,
        sample_age_s=NUMBERS,
        control_point_world=VECTORS,
        control_velocity_world=VECTORS,
        position_world=VECTORS,
        yaw=NUMBERS,
        contract=st.text(),
        reserved_segment_world=st.tuples(VECTORS, VECTORS),
        requested_segment_world=st.tuples(VECTORS, VECTORS),
        echoes=st.dictionaries(st.text(), st.tuples(st.text(), NUMBERS, st.integers(-1, 2**53)), max_size=3),
    )
)
def test_a_peer_message_survives_bit_for_bit(message):
    assert PeerMessage.decode(message.encode()) == message


def test_a_tick_record_survives_bit_for_bit(make_loop):
    rig = make_loop()
    for record in (rig.loop.tick(rig.now_s), rig.tick(), rig.tick(hears=False)):
        assert TickRecord.decode(record.encode()) == record


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("key", ["stamp_s", "yaw", "sample_age_s"])
def test_a_number_that_is_not_finite_is_not_even_built(message, key, bad):
    with pytest.raises(EnvelopeError, match="testudo/peer/5"):
        dataclasses.replace(message, **{key: bad})


def test_a_record_that_is_not_finite_is_not_sent(make_loop):
    record = dataclasses.replace(make_loop().loop.tick(1.0), late_s=math.nan)
    with pytest.raises(EnvelopeError, match="not finite"):
        record.encode()


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_does_not_arrive(message, literal):
    for key in ("yaw", "stamp_s"):
        text = json.dumps(json.loads(message.encode()) | {key: "?"}).replace('"?"', literal)
        with pytest.raises(EnvelopeError):
            PeerMessage.decode(text.encode())
    vector = message.encode().replace(b"[1.0,0.0]", f"[{literal},0.0]".encode())
    assert vector != message.encode()
    with pytest.raises(EnvelopeError):
        PeerMessage.decode(vector)


@pytest.mark.parametrize("kind", [PeerMessage, TickRecord])
@given(data=st.binary(max_size=200))
@example(data=b"")
@example(data=b"null")
@example(data=b"[]")
@example(data=b'"text"')
@example(data=b"{}")
@example(data=b"1" * 5000)
@example(data=b"[" * 100_000)
@example(data=b'{"schema": "testudo/peer/5"}')
def test_garbage_is_refused(kind, data):
    with pytest.raises(EnvelopeError):
        kind.decode(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 10**6), flip=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_truncated_bytes_are_refused_and_altered_ones_refused_or_sound(message, cut, flip, byte):
    whole = message.encode()
    with pytest.raises(EnvelopeError):
        PeerMessage.decode(whole[: cut % len(whole)])
    altered = bytearray(whole)
    altered[flip % len(whole)] = byte
    try:
        got = PeerMessage.decode(bytes(altered))
    except EnvelopeError:
        return
    assert PeerMessage.decode(got.encode()) == got


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(300))
@given(data=st.data())
def test_a_value_of_a_wrong_type_is_refused_here_and_not_in_the_control_loop(message, make_loop, data):
    """Regression: a text as sequence number made every later message of that peer fail."""
    values = json.loads(message.encode())
    key = data.draw(st.sampled_from(sorted(set(values) - {"schema"})))
    values[key] = data.draw(JSON)
    try:
        got = PeerMessage.decode(json.dumps(values).encode())
    except (EnvelopeError, ValueError):
        return
    rig = make_loop()
    rig.loop.on_peer(got, 100.0)
    rig.hear(received_s=100.0)
    rig.loop.tick(101.0).encode()


def test_another_schema_is_refused(message, make_loop):
    record = make_loop().loop.tick(1.0)
    with pytest.raises(EnvelopeError, match="testudo/tick/7"):
        TickRecord.decode(message.encode())
    with pytest.raises(EnvelopeError, match="testudo/peer/5"):
        PeerMessage.decode(record.encode())


def test_a_recorded_tick_of_the_third_version_had_no_deadlock_rule(make_loop):
    record = make_loop().loop.tick(1.0)
    data = record.encode().replace(b"testudo/tick/7", b"testudo/tick/3").replace(b',"deadlock_memory":[]', b"")
    assert TickRecord.decode(data, recorded=True) == record
    with pytest.raises(EnvelopeError, match="expected schema"):
        TickRecord.decode(data)


@pytest.mark.parametrize(("make", "old"), [("message", b"testudo/peer/2"), ("record", b"testudo/tick/2")])
def test_a_recorded_run_of_the_second_version_stays_readable_and_no_robot_takes_it_live(make, old, message, make_loop):
    sent = message if make == "message" else make_loop().loop.tick(1.0)
    data = sent.encode().replace(sent.SCHEMA.encode(), old)
    for before, now in type(sent).OLDER[old.decode()].items():
        data = data.replace(f'"{now}"'.encode(), f'"{before}"'.encode())
    assert b"lane_world" in data
    assert type(sent).decode(data, recorded=True) == sent
    with pytest.raises(EnvelopeError, match="expected schema"):
        type(sent).decode(data)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("key", ["control_point_world", "control_velocity_world", "position_world"])
def test_a_vector_that_is_not_finite_is_not_even_built(message, key, bad):
    with pytest.raises(EnvelopeError, match="not finite"):
        dataclasses.replace(message, **{key: (bad, 0.0)})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("key", ["reserved_segment_world", "requested_segment_world"])
def test_a_segment_with_an_end_that_is_not_finite_is_not_even_built(message, key, bad):
    for ends in (((0.0, bad), (0.0, 0.0)), ((0.0, 0.0), (bad, 0.0))):
        with pytest.raises(EnvelopeError, match="not finite"):
            dataclasses.replace(message, **{key: ends})


def test_the_same_values_under_an_unknown_schema_version_are_refused(message, make_loop):
    record = make_loop().loop.tick(1.0)
    for sent in (message, record):
        other = json.dumps(json.loads(sent.encode()) | {"schema": sent.SCHEMA[:-1] + "9"}).encode()
        with pytest.raises(EnvelopeError, match=sent.SCHEMA):
            type(sent).decode(other)


@pytest.mark.parametrize("key", ["measured_yaw", "estimate_yaw", "pose_stamp_s"])
def test_a_record_does_not_write_nan_as_a_missing_value(make_loop, key):
    record = dataclasses.replace(make_loop().loop.tick(1.0), **{key: math.nan})
    with pytest.raises(EnvelopeError, match="not finite"):
        record.encode()


_BYTES = b'0e."[]{},:\\ns-\xff'
_UNKNOWN = (
    *(b',"more":' + value for value in (b"1", b"1e999", b'"\xff"', b"nul")),
    *(b',"yaw":1,"yaw":1', b',"schema":"testudo/peer/1"', b" "),
)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from([PeerMessage, TickRecord]), cut=st.floats(0, 1), byte=st.sampled_from(_BYTES))
@example(kind=PeerMessage, cut=1.0, byte=None)
def test_the_quick_reading_of_a_message_judges_as_the_slow_one(message, make_loop, kind, cut, byte):
    """What `encode` wrote is read at once; bytes of any other kind get the same result, or refusal, either way."""
    whole = (message if kind is PeerMessage else make_loop().tick()).encode()
    at = round(cut * (len(whole) - 1))
    changed = [whole] if byte is None else [whole[:at] + bytes([byte]) + whole[at + drop :] for drop in (0, 1)]
    for data in (*changed, *(whole[:-1] + more + b"}" for more in _UNKNOWN)):
        assert _result(kind, data) == _result(kind, bytearray(data)), data


def _result(kind, data):
    try:
        return repr(kind.decode(data))
    except EnvelopeError as error:
        return str(error)
