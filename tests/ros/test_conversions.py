"""Envelopes on the wire: what we pack by hand is what the middleware packs, and nothing else is read."""

from importlib.util import find_spec

import pytest

from testudo_deploy.contract.messages import EnvelopeError

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
]

DATA = (b"", b"x", b'{"schema": "testudo/peer/5"}', bytes(range(256)) * 5)


@pytest.mark.parametrize("data", DATA)
def test_an_envelope_packed_by_hand_is_the_message_of_the_middleware(data):
    from rclpy.serialization import deserialize_message, serialize_message
    from std_msgs.msg import UInt8MultiArray

    from testudo_nodes.common.messages import envelope_bytes, envelope_message, raw_envelope, raw_envelope_bytes

    assert envelope_bytes(deserialize_message(raw_envelope(data), UInt8MultiArray)) == data
    assert raw_envelope_bytes(serialize_message(envelope_message(data))) == data
    assert raw_envelope_bytes(raw_envelope(data)) == data


def other_messages():
    from rclpy.serialization import serialize_message
    from std_msgs.msg import MultiArrayDimension, MultiArrayLayout, String, UInt8MultiArray

    from testudo_nodes.common.messages import raw_envelope

    layout = MultiArrayLayout(dim=[MultiArrayDimension(label="rows", size=2, stride=2)])
    whole = raw_envelope(b"four")
    return {
        "nothing": b"",
        "a part of the head": whole[:15],
        "shorter than it says": whole[:-1],
        "the other byte order": b"\x00\x00" + whole[2:],
        "dimensions": serialize_message(UInt8MultiArray(layout=layout, data=[1, 2])),
        "another type": serialize_message(String(data="a text that is long enough to be read as a head")),
    }


def test_what_is_no_envelope_is_refused():
    from testudo_nodes.common.messages import raw_envelope_bytes

    for raw in other_messages().values():
        with pytest.raises(EnvelopeError, match="not a std_msgs/msg/UInt8MultiArray"):
            raw_envelope_bytes(raw)
