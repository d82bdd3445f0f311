"""Signals of a policy from sensor topics: what a message says, and which topics a link profile may name."""

import math
import re
from types import SimpleNamespace

import pytest
from tests.hardware.plain_messages import header
from tests.hardware.test_link_profiles import changed

from testudo_hardware.links.link_profile import LinkError, parse_link
from testudo_hardware.links.signal_wire import LASER_SCAN, TWIST, TWIST_STAMPED, SignalWire
from testudo_hardware.spec import load_robot

SOURCE = {"source": "the sensor's manual"}
SCAN = {
    "topic": {"value": "scan", **SOURCE},
    "type": {"value": LASER_SCAN, **SOURCE},
    "reliability": {"value": "best_effort", **SOURCE},
    "scale": {"value": 0.5, **SOURCE},
}
LOAD = {**SCAN, "topic": {"value": "load", **SOURCE}, "type": {"value": "std_msgs/msg/Float32", **SOURCE}}
LOAD = {**LOAD, "delay": {"value": 0.05, **SOURCE}}


def profile(**signals):
    return parse_link(changed(("signals",), signals), "mine.toml")


def wire(part, *, ros_stamps=False, robot="gritsbot_x"):
    return SignalWire("ranges", profile(ranges=part).signals["ranges"], "/r0/scan", ros_stamps, load_robot(robot))


def test_ranges_of_a_scan_in_the_unit_of_the_signal_and_no_echo_is_the_greatest_range():
    scan = SimpleNamespace(header=header(), ranges=[1.0, math.inf, 0.2], range_max=4.0)
    scan.header.stamp.sec = 1000
    assert wire(SCAN, ros_stamps=True).decode(scan, 1000.25, 7.0) == (6.75, (0.5, 2.0, 0.1))
    assert wire(SCAN).decode(scan, 1000.25, 7.0)[0] == 1000.0
    broken = SimpleNamespace(header=header(), ranges=[math.nan, -math.inf], range_max=4.0)
    assert not any(map(math.isfinite, wire(SCAN).decode(broken, 0.0, 0.0)[1]))  # the robot judges it


def test_a_number_without_a_stamp_is_as_old_as_its_delay():
    assert wire(LOAD).decode(SimpleNamespace(data=3.0), 1000.0, 7.0) == (6.95, (1.5,))
    array = {**LOAD, "type": {"value": "std_msgs/msg/Float32MultiArray", **SOURCE}}
    assert wire(array).decode(SimpleNamespace(data=[3.0, 4.0]), 0.0, 7.0)[1] == (1.5, 2.0)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({**SCAN, "delay": LOAD["delay"]}, "signals.ranges.delay: found for a sensor_msgs/msg/LaserScan"),
        ({key: value for key, value in LOAD.items() if key != "delay"}, "signals.ranges.delay: missing for a std_msgs"),
        ({**LOAD, "delay": {"value": 0.5, **SOURCE}}, "signals.ranges.delay.value: found 0.5 s, expected 0 to 0.4 s"),
        ({**SCAN, "scale": {"value": 0.0, **SOURCE}}, "signals.ranges.scale.value: found 0"),
        ({**SCAN, "topic": {"value": "no name", **SOURCE}}, "signals.ranges.topic.value: found 'no name'"),
        ({**SCAN, "topic": {"value": "scan", "source": ""}}, "signals.ranges.topic.source: found an empty text"),
        ({**SCAN, "type": {"value": "std_msgs/msg/String", **SOURCE}}, "signals.ranges.type.value"),
    ],
)
def test_a_topic_whose_messages_have_no_age_or_source_is_refused(part, sentence):
    with pytest.raises(LinkError, match=re.escape(sentence)):
        profile(ranges=part)


def test_a_twist_is_the_command_of_its_kind_of_robot_with_its_stamp_or_that_of_its_arrival():
    axes = SimpleNamespace
    twist = axes(linear=axes(x=0.2, y=0.3, z=0.4), angular=axes(x=0.0, y=0.0, z=1.5))
    bare = {**SCAN, "type": {"value": TWIST, **SOURCE}, "delay": {"value": 0.0, **SOURCE}}
    bare.pop("scale")
    assert wire(bare).decode(twist, 0.0, 7.0) == (7.0, (0.2, 1.5))
    assert wire(bare, robot="crazyflie_2x").decode(twist, 0.0, 7.0) == (7.0, (0.2, 0.3, 0.4))
    stamped = {**bare, "type": {"value": TWIST_STAMPED, **SOURCE}}
    stamped.pop("delay")
    message = axes(header=header(), twist=twist)
    message.header.stamp.sec = 1000
    assert wire(stamped, ros_stamps=True).decode(message, 1000.25, 7.0) == (6.75, (0.2, 1.5))
