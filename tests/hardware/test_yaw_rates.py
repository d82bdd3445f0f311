"""The yaw rate beside a drone's velocity on every wire: its sign, its unit, and who refuses it.

Right-handed about the vertical (REP-103): a positive rate turns x, east, towards y, north.
"""

import dataclasses
import math

import pytest
from tests.hardware import plain_messages as plain
from tests.hardware.test_links import crazyswarm2

from testudo_hardware.frames import PlanarTransform, turned
from testudo_hardware.links.crazyflie.flight_sequencer import FlightSequencer
from testudo_hardware.links.crazyflie.vehicle_messages import STANDSTILL, VehicleAction, VehicleRequest
from testudo_hardware.links.crazyswarm2 import LEASH_RAD, SetPointLeader
from testudo_hardware.links.link_profile import CONTROL_POINT_VELOCITY, VELOCITY_YAW_RATE, LinkError, YawRate, load_link
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import CommandReading, WireError, fill_twist
from testudo_hardware.spec import SpecError, load_robot, parse_robot

DRONE, GROUND, BASE = load_robot("crazyflie_2x"), load_robot("turtlebot4"), load_robot("robomaster_s1")
QUARTER = math.pi / 2
HERE = PlanarTransform((0.0, 0.0, 1.0), 0.0)
TURNS = CommandReading(2.0, (0.1, -0.2, 0.3), QUARTER)
"""East becomes north in one second."""


def saying(set_point, value):
    """Return a profile of Crazyswarm2 that says how its server takes a yaw rate."""
    profile = crazyswarm2(set_point=set_point)
    return dataclasses.replace(profile, command=dataclasses.replace(profile.command, yaw_rate=YawRate(value, "test")))


def test_a_quarter_turn_in_a_second_is_a_right_handed_radian_on_a_twist():
    for link in ("testudo", "testudo_flight", "crazyflie_radio"):
        wire = CommandWire("cf1", DRONE, load_link(link))
        message = wire.encode(plain.twist_stamped(), TURNS)
        assert message.twist.angular.z == QUARTER
        assert turned((1.0, 0.0, 0.0), message.twist.angular.z * 1.0) == pytest.approx((0.0, 1.0, 0.0))
        assert (message.twist.angular.x, message.twist.angular.y) == (0.0, 0.0)
        assert wire.decode(message, 3.0) == TURNS


@pytest.mark.parametrize(("value", "number"), [("degrees", 90.0), ("degrees_clockwise", -90.0)])
def test_a_quarter_turn_is_ninety_degrees_in_the_sense_of_the_server(value, number):
    """The server on cflib counts anticlockwise, the C++ server by an old packet clockwise."""
    wire = CommandWire("cf1", DRONE, saying("velocity_world", value))
    message = wire.encode(plain.velocity_world(), TURNS)
    assert message.yaw_rate == pytest.approx(number)
    assert (message.vel.x, message.vel.y, message.vel.z) == TURNS.command
    assert wire.decode(message, 3.0).yaw_rate == pytest.approx(QUARTER)


def test_a_full_state_carries_the_rate_in_radians_and_the_heading_in_its_pose():
    wire = CommandWire("cf1", DRONE, saying("full_state", "radians"))
    message = wire.encode(plain.full_state(), TURNS, PlanarTransform((0.0, 0.0, 1.0), QUARTER))
    assert message.twist.angular.z == QUARTER
    assert message.pose.orientation.z == pytest.approx(math.sin(QUARTER / 2))
    assert wire.decode(message, 3.0) == TURNS


def test_the_set_point_turns_on_with_the_rate_and_stays_near_where_the_drone_looks():
    leader = SetPointLeader(oldest_s=0.1)
    leader.see(HERE, 5.0)
    leader.lead((0.0, 0.0, 0.0), 5.0, 1.0)
    _, at = leader.lead((0.0, 0.0, 0.0), 5.02, 1.0)
    assert at.yaw == pytest.approx(0.02)
    for k in range(2, 100):  # the drone does not turn
        leader.see(HERE, 5.0 + 0.02 * k)
        _, at = leader.lead((0.0, 0.0, 0.0), 5.0 + 0.02 * k, 1.0)
    assert at.yaw == pytest.approx(LEASH_RAD)
    _, held = leader.lead((0.0, 0.0, 0.0), 7.0)
    assert held.yaw == at.yaw


@pytest.mark.parametrize("link", ["crazyswarm2", "crazyswarm2_logged", "generic_twist", "turtlebot3", "turtlebot4"])
def test_a_wire_of_which_nobody_said_what_it_makes_of_a_yaw_rate_refuses_it(link):
    profile = load_link(link)
    assert profile.takes == (CONTROL_POINT_VELOCITY,)
    message = plain.velocity_world() if "swarm" in link else plain.twist_stamped()
    wire = CommandWire("cf1", DRONE, profile)
    for rate in (QUARTER, math.nan):
        with pytest.raises(WireError, match=r"cf1: .*: found a yaw rate of .* rad/s, the wire carries control_point_"):
            wire.encode(message, dataclasses.replace(TURNS, yaw_rate=rate))


def test_ground_robots_take_no_yaw_rate_beside_their_command():
    for spec in (GROUND, BASE):
        wire = CommandWire("r0", spec, load_link("testudo"))
        assert VELOCITY_YAW_RATE in wire.profile.takes
        assert not wire.carries_yaw_rate
        with pytest.raises(WireError, match="found a yaw rate"):
            wire.encode(plain.twist_stamped(), CommandReading(0.0, (0.1, 0.0), 0.5))
        with pytest.raises(WireError, match="beside the command of a"):
            fill_twist(plain.twist(), spec, (0.1, 0.0), 0.5)
        message = wire.encode(plain.twist_stamped(), CommandReading(0.0, (0.1, 0.4)))
        assert wire.decode(message, 0.0).yaw_rate == 0.0


@pytest.mark.parametrize(
    ("set_point", "value", "expected"),
    [
        ("hover", "radians", "no such key"),
        ("velocity_world", "radians", "degrees or degrees_clockwise"),
        ("full_state", "degrees", "radians"),
    ],
)
def test_a_profile_may_say_only_what_its_messages_mean(set_point, value, expected):
    """A `hover` never: its velocity stands in a body that turns."""
    from testudo_hardware.links import link_profile as module

    with pytest.raises(LinkError, match=rf"yaw_rate\.value: found '{value}' for a {set_point}, expected {expected}"):
        module._check_wire(saying(set_point, value), "mine.toml: link")


def test_the_pilot_of_a_radio_sends_it_with_the_velocity_and_standstill_turns_no_more():
    pilot = FlightSequencer(dead_man_s=0.1, speed_limit_m_s=1.0)
    pilot.command((0.1, 0.0, 0.0), 5.0, QUARTER)
    pilot.watch.holds = lambda now_s: ""
    assert pilot._fly(5.0) == [VehicleRequest(VehicleAction.SET_POINT, (0.1, 0.0, 0.0), QUARTER)]
    pilot.watch.holds = lambda now_s: "commands_silent"
    assert pilot._fly(5.0) == [STANDSTILL]
    assert STANDSTILL.yaw_rate == 0.0


def test_the_limit_is_of_the_robot_file_and_no_part_of_the_hash():
    assert DRONE.yaw_rate_limit_rad_s == 1.0
    assert GROUND.yaw_rate_limit_rad_s == 0.0
    assert "heading" not in DRONE.to_dict()
    assert dataclasses.replace(DRONE, heading={}).sha256 == DRONE.sha256


def test_the_table_is_of_drones():
    entry = {"value": 0.5, "unit": "rad/s", "source": "test"}
    found = parse_robot(DRONE.to_dict() | {"heading": {"yaw_rate_limit": entry}}, "mine.toml")
    assert found.yaw_rate_limit_rad_s == 0.5
    with pytest.raises(SpecError, match=r"heading\.yaw_rate_limit: found 9\.0 in .* expected within \[0\.05, 3\]"):
        parse_robot(DRONE.to_dict() | {"heading": {"yaw_rate_limit": entry | {"value": 9.0}}}, "mine.toml")
    with pytest.raises(SpecError, match="heading: unknown table"):
        parse_robot(GROUND.to_dict() | {"heading": {"yaw_rate_limit": entry}}, "mine.toml")
