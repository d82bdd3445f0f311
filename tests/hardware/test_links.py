"""Commands and measurements as messages: 90-degree turns, round trips, refusals."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hardware import plain_messages as plain

from testudo_hardware.frames import PlanarTransform, turned, wrapped
from testudo_hardware.links.link_profile import LinkError, load_link, parse_link, with_stamped_commands
from testudo_hardware.links.topics import CommandWire, MeasurementWire
from testudo_hardware.links.wire import (
    CommandReading,
    OdometryReading,
    PoseReading,
    WireError,
    convert_clock_s,
    fill_odometry,
    fill_pose,
    fill_stamp,
    read_transform,
)
from testudo_hardware.spec import load_robot

GROUND, DRONE, BASE = load_robot("turtlebot4"), load_robot("crazyflie_2x"), load_robot("robomaster_s1")
NUMBERS = st.floats(-50, 50)
YAWS = st.floats(-math.pi, math.pi)
QUARTER = math.pi / 2


def crazyswarm2(**command):
    """Return the profile of Crazyswarm2 with other commands."""
    values = {
        "schema": "testudo/link/1",
        "name": "mine",
        "wire": "crazyswarm2",
        "description": "x",
        "stamps": {"value": "ros", "source": "x"},
        "command": {
            "topic": {"value": "cmd_" + command["set_point"], "source": "x"},
            "frame": {"value": "world", "source": "x"},
            "set_point": {"value": command["set_point"], "source": "x"},
            "other_publishers": {"value": [], "source": "x"},
        },
        "pose": {
            "topic": {"value": "pose", "source": "x"},
            "type": {"value": "geometry_msgs/msg/PoseStamped", "source": "x"},
            "rate": {"value": 10.0, "unit": "Hz", "source": "x"},
            "reliability": {"value": "reliable", "source": "x"},
        },
    }
    return parse_link(values, "mine.toml")


def posed(message, where, position, yaw, *, frame="map", stamp_s=3.25):
    fill_stamp(message.header.stamp, stamp_s)
    message.header.frame_id = frame
    fill_pose(where, position, yaw)
    return message


# ---- commands


def test_a_twist_for_a_drone_is_a_velocity_in_the_world():
    wire = CommandWire("cf1", DRONE, load_link("testudo"))
    message = wire.encode(plain.twist_stamped(), CommandReading(12.5, (0.1, -0.4, 0.2)))
    assert message.header.frame_id == wire.frame == "world"
    assert wire.decode(message, 13.0) == CommandReading(12.5, (0.1, -0.4, 0.2))
    assert CommandWire("tb1", GROUND, load_link("testudo")).frame == "tb1/base_link"


def test_a_turtlebot4_takes_a_twist_and_a_turtlebot3_a_stamped_one():
    reading = CommandReading(12.5, (0.1, -0.4))
    four = CommandWire("tb", GROUND, load_link("turtlebot4"))
    message = four.encode(plain.twist(), reading)
    assert (four.topic, four.type, four.needs_place) == ("cmd_vel", "geometry_msgs/msg/Twist", False)
    assert (message.linear.x, message.linear.y, message.angular.z) == (0.1, 0.0, -0.4)
    three = CommandWire("tb", load_robot("turtlebot3_burger"), load_link("turtlebot3"))
    message = three.encode(plain.twist_stamped(), reading)
    assert three.type == "geometry_msgs/msg/TwistStamped"
    assert (message.header.frame_id, message.header.stamp.sec, message.header.stamp.nanosec) == (
        "base_link",
        12,
        500_000_000,
    )
    assert (message.twist.linear.x, message.twist.angular.z) == (0.1, -0.4)


def test_a_base_on_mecanum_wheels_takes_its_sideways_speed_in_y():
    message = CommandWire("s1", BASE, load_link("generic_twist")).encode(
        plain.twist_stamped(), CommandReading(0.0, (0.3, -0.2))
    )
    assert (message.twist.linear.x, message.twist.linear.y, message.twist.angular.z) == (0.3, -0.2, 0.0)


def test_our_own_profile_says_what_the_plant_has_always_been_told():
    message = CommandWire("r0", GROUND, load_link("testudo")).encode(
        plain.twist_stamped(), CommandReading(1.0, (0.1, 0.2))
    )
    assert message.header.frame_id == "r0/base_link"


def test_crazyswarm2_is_told_a_velocity_in_the_world_and_holds_its_heading():
    wire = CommandWire("cf1", DRONE, load_link("crazyswarm2"))
    message = wire.encode(plain.velocity_world(), CommandReading(2.0, (0.1, -0.2, 0.3)))
    assert (wire.topic, wire.type) == ("cmd_velocity_world", "crazyflie_interfaces/msg/VelocityWorld")
    assert (message.vel.x, message.vel.y, message.vel.z, message.yaw_rate) == (0.1, -0.2, 0.3, 0.0)
    assert (message.header.frame_id, message.header.stamp.sec) == ("world", 2)


def test_a_drone_that_faces_y_hovers_forward_to_fly_along_y():
    wire = CommandWire("cf1", DRONE, crazyswarm2(set_point="hover"))
    at = PlanarTransform((0.0, 0.0, 0.8), QUARTER)
    message = wire.encode(plain.hover(), CommandReading(0.0, (0.0, 0.4, 0.1)), at)
    assert wire.type == "crazyflie_interfaces/msg/Hover"
    assert (message.vx, message.vy) == pytest.approx((0.4, 0.0))
    assert (message.z_distance, message.yaw_rate) == (0.8, 0.0)


def test_a_full_state_holds_place_heading_and_a_velocity_in_the_world():
    wire = CommandWire("cf1", DRONE, crazyswarm2(set_point="full_state"))
    at = PlanarTransform((1.0, 2.0, 0.8), QUARTER)
    message = wire.encode(plain.full_state(), CommandReading(0.0, (0.0, 0.4, 0.1)), at)
    turn, linear, half = message.pose.orientation, message.twist.linear, math.sqrt(0.5)
    assert wire.type == "crazyflie_interfaces/msg/FullState"
    assert wire.needs_place
    assert (message.pose.position.x, message.pose.position.y, message.pose.position.z) == (1.0, 2.0, 0.8)
    assert (turn.x, turn.y, turn.z, turn.w) == pytest.approx((0.0, 0.0, half, half))
    assert (linear.x, linear.y, linear.z) == (0.0, 0.4, 0.1)


@pytest.mark.parametrize("set_point", ["velocity_world", "hover", "full_state"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_no_set_point_that_is_not_finite_reaches_a_crazyflie(set_point, wrong):
    message = {"velocity_world": plain.velocity_world, "hover": plain.hover, "full_state": plain.full_state}
    wire = CommandWire("cf1", DRONE, crazyswarm2(set_point=set_point))
    with pytest.raises(WireError, match="expected a finite"):
        wire.encode(message[set_point](), CommandReading(0.0, (0.0, wrong, 0.0)), PlanarTransform((0.0, 0.0, 1.0), 0.0))


def test_a_set_point_that_is_a_place_asks_for_it():
    with pytest.raises(WireError, match="found no position"):
        CommandWire("cf1", DRONE, crazyswarm2(set_point="hover")).encode(
            plain.hover(), CommandReading(0.0, (0.0, 0.0, 0.0))
        )


def test_no_wheels_on_the_wire_of_a_drone():
    with pytest.raises(LinkError, match="carries commands of a velocity_point, found a differential_drive"):
        CommandWire("r0", GROUND, load_link("crazyswarm2"))


@given(
    st.sampled_from(["testudo", "turtlebot3", "turtlebot4", "generic_twist"]),
    st.sampled_from([GROUND, BASE]),
    st.tuples(NUMBERS, NUMBERS),
    st.integers(0, 10**15),
)
def test_what_is_told_to_wheels_is_what_their_driver_reads(link, spec, command, nanoseconds):
    wire, sent = CommandWire("r0", spec, load_link(link)), CommandReading(nanoseconds / 1e9, command)
    stamped = wire.type.endswith("Stamped")
    message = wire.encode(plain.twist_stamped() if stamped else plain.twist(), sent)
    got = wire.decode(message, received_s=sent.stamp_s)
    assert got.command == command
    assert got.stamp_s == pytest.approx(sent.stamp_s, abs=1e-9)


@given(st.sampled_from(["velocity_world", "full_state"]), st.tuples(NUMBERS, NUMBERS, NUMBERS))
def test_what_is_told_to_a_drone_is_what_its_server_reads(set_point, command):
    message = {"velocity_world": plain.velocity_world, "full_state": plain.full_state}[set_point]()
    wire = CommandWire("cf1", DRONE, crazyswarm2(set_point=set_point))
    wire.encode(message, CommandReading(2.5, command), PlanarTransform((0.0, 0.0, 1.0), 0.2))
    assert wire.decode(message, received_s=9.0) == CommandReading(2.5, command)


def test_a_hover_does_not_tell_the_climb():
    with pytest.raises(WireError, match="does not contain the climb rate"):
        CommandWire("cf1", DRONE, crazyswarm2(set_point="hover")).decode(plain.hover(), 0.0)


@pytest.mark.parametrize("stamped", [False, True])
def test_navs_parameter_decides_between_twist_and_twist_stamped(stamped):
    profile = with_stamped_commands(load_link("generic_twist"), stamped)
    assert profile.command_type == f"geometry_msgs/msg/Twist{'Stamped' if stamped else ''}"
    with pytest.raises(LinkError, match="enable_stamped_cmd_vel: unknown key for wire 'crazyswarm2'"):
        with_stamped_commands(load_link("crazyswarm2"), stamped)


# ---- measurements


@given(st.tuples(NUMBERS, NUMBERS), YAWS, st.tuples(NUMBERS, NUMBERS))
def test_odometry_of_a_turtlebot_comes_back_in_its_own_frame(position, yaw, velocity):
    wire = MeasurementWire.odometry("tb", GROUND, load_link("turtlebot4"))
    sent = OdometryReading(4.5, position, yaw, velocity)
    message = fill_odometry(plain.odometry(), "tb", GROUND, sent, ("odom", "base_link"))
    got = wire.decode(message)
    assert (got.stamp_s, got.position_world, got.velocity) == (4.5, position, velocity)
    assert wrapped(got.yaw - yaw) == pytest.approx(0.0, abs=1e-9)
    assert (wire.rate_hz, wire.reliable) == (20.0, False)


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), YAWS)
def test_a_pose_comes_back_whatever_message_brings_it(position, yaw):
    capture = MeasurementWire.motion_capture("tb", GROUND, load_link("turtlebot4"), "map")
    message = plain.pose_stamped()
    pose = capture.decode(posed(message, message.pose, position, yaw))
    message = plain.pose_with_covariance_stamped()
    amcl = MeasurementWire.amcl("tb", GROUND, "map").decode(posed(message, message.pose.pose, position, yaw))
    array = MeasurementWire.motion_capture("tb", DRONE, load_link("crazyswarm2"), "map")
    message = plain.named_poses("other", "tb")
    named = array.decode(posed(message, message.poses[1].pose, position, yaw))
    assert (pose.stamp_s, pose.position_world) == (3.25, position[:2])
    assert amcl == pose
    assert (named.stamp_s, named.position_world, named.yaw) == (3.25, position, pose.yaw)
    assert wrapped(pose.yaw - yaw) == pytest.approx(0.0, abs=1e-9)


@given(st.tuples(NUMBERS, NUMBERS), YAWS, st.tuples(NUMBERS, NUMBERS))
def test_a_stand_in_sends_what_is_read(position, yaw, velocity):
    reading = OdometryReading(2.5, position, yaw, velocity)
    wire = MeasurementWire.odometry("s1", BASE, load_link("generic_twist"))
    got = wire.decode(wire.encode(plain.odometry(), reading))
    assert (got.stamp_s, got.position_world, got.velocity) == (2.5, position, pytest.approx(velocity, abs=1e-9))
    pose = PoseReading(2.5, position, got.yaw)
    for wire, message in (
        (MeasurementWire.motion_capture("s1", BASE, load_link("testudo"), "map"), plain.pose_stamped()),
        (MeasurementWire.amcl("s1", BASE, "map"), plain.pose_with_covariance_stamped()),
    ):
        again = wire.decode(wire.encode(message, pose))
        assert (again.stamp_s, again.position_world) == (2.5, position)
        assert wrapped(again.yaw - yaw) == pytest.approx(0.0, abs=1e-9)
        with pytest.raises(WireError, match="found OdometryReading, which a geometry_msgs"):
            wire.encode(message, reading)


def test_a_quarter_turn_left_faces_y_with_quaternion_xyzw():
    message = posed(plain.pose_stamped(), plain.pose(), (0, 0), 0.0)
    half = math.sqrt(0.5)
    message.pose.orientation = SimpleNamespace(x=0.0, y=0.0, z=half, w=half)
    got = MeasurementWire.motion_capture("tb", GROUND, load_link("turtlebot4"), "map").decode(message)
    assert got.yaw == pytest.approx(QUARTER)


def test_a_body_that_was_not_seen_is_not_news():
    array = MeasurementWire.motion_capture("cf1", DRONE, load_link("crazyswarm2"), "map")
    message = plain.named_poses("other")
    message.header.frame_id = "map"
    assert array.decode(message) is None


def test_a_body_that_stands_twice_is_refused():
    array = MeasurementWire.motion_capture("cf1", DRONE, load_link("crazyswarm2"), "map")
    message = plain.named_poses("cf1", "cf1")
    message.header.frame_id = "map"
    with pytest.raises(WireError, match="found 2 bodies of the name 'cf1'"):
        array.decode(message)


@pytest.mark.parametrize("w", [math.nan, 0.0, 0.5, 1.01])
def test_a_quaternion_that_is_none_is_refused(w):
    message = posed(plain.pose_stamped(), plain.pose(), (0, 0), 0.0)
    message.pose.orientation.w = w
    with pytest.raises(WireError, match="tb: pose: quaternion norm"):
        MeasurementWire.motion_capture("tb", GROUND, load_link("turtlebot4"), "map").decode(message)


def test_another_frame_is_refused():
    capture = MeasurementWire.motion_capture("tb", GROUND, load_link("turtlebot4"), "map")
    with pytest.raises(WireError, match="found frame 'odom', expected 'map'"):
        capture.decode(posed(plain.pose_stamped(), plain.pose(), (0, 0), 0.0, frame="odom"))
    odometry = MeasurementWire.odometry("tb", GROUND, load_link("turtlebot4"))
    message = fill_odometry(plain.odometry(), "tb", GROUND, OdometryReading(0.0, (0, 0), 0.0, (0, 0)))
    with pytest.raises(WireError, match="found frames"):
        odometry.decode(message)


def test_a_position_that_is_not_finite_passes_for_the_control_loop_to_refuse():
    message = plain.pose_stamped()
    posed(message, message.pose, (math.nan, 1.0), 0.0)
    got = MeasurementWire.motion_capture("tb", GROUND, load_link("turtlebot4"), "map").decode(message)
    assert math.isnan(got.position_world[0])


def test_a_drone_without_odometry_says_so():
    with pytest.raises(LinkError, match="'crazyswarm2' has no odometry"):
        MeasurementWire.odometry("cf1", DRONE, load_link("crazyswarm2"))


@given(st.tuples(NUMBERS, NUMBERS), YAWS)
def test_a_transform_comes_back_and_others_are_left_alone(shift, yaw):
    message = plain.transform_stamped()
    message.header.frame_id, message.child_frame_id = "map", "odom"
    fill_stamp(message.header.stamp, 7.5)
    fill_pose(
        SimpleNamespace(position=message.transform.translation, orientation=message.transform.rotation), shift, yaw
    )
    got = read_transform(message, "map", "odom", 2, "tb: tf")
    assert (got.stamp_s, got.placement.position) == (7.5, shift)
    assert wrapped(got.placement.yaw - yaw) == pytest.approx(0.0, abs=1e-9)
    assert read_transform(message, "odom", "map", 2, "tb: tf") is None


# ---- links


def test_stamps_are_converted_to_the_clock_of_the_robot_and_back():
    ros_now_s, steady_now_s = 1_700_000_000.0, 50.0
    sent = CommandReading(convert_clock_s(49.75, steady_now_s, ros_now_s), (0.1, 0.0))
    stamp = CommandWire("tb", GROUND, load_link("generic_twist")).encode(plain.twist_stamped(), sent).header.stamp
    # a double holds seconds since 1970 to a quarter of a microsecond
    assert stamp.sec == 1_699_999_999
    assert stamp.nanosec == pytest.approx(750_000_000, abs=250)
    measured = OdometryReading(1_699_999_999.5, (1.0, 2.0), 0.5, (0.1, 0.0))
    message = fill_odometry(plain.odometry(), "tb", GROUND, measured, ("odom", "base_link"))
    read = MeasurementWire.odometry("tb", GROUND, load_link("generic_twist")).decode(message)
    assert convert_clock_s(read.stamp_s, ros_now_s, steady_now_s) == pytest.approx(49.5, abs=1e-6)


def test_one_clock_leaves_a_stamp_as_it_is_to_the_last_digit():
    assert convert_clock_s(0.1 + 0.2, 123456.789, 123456.789) == 0.1 + 0.2


# ---- placements

PLACES = st.builds(PlanarTransform, st.tuples(NUMBERS, NUMBERS, NUMBERS), YAWS)


def close(one, other):
    assert one.position == pytest.approx(other.position, abs=1e-9)
    assert wrapped(one.yaw - other.yaw) == pytest.approx(0.0, abs=1e-9)


def test_a_frame_turned_left_puts_its_x_on_the_parents_y():
    base = PlanarTransform((1.0, 0.0), QUARTER).then(PlanarTransform((2.0, 0.0), QUARTER))
    close(base, PlanarTransform((1.0, 2.0), math.pi))


@given(PLACES, PLACES)
def test_a_placement_then_its_inverse_is_where_it_was(outer, inner):
    close(outer.inverse().then(outer.then(inner)), inner)


@given(PLACES, PLACES, PLACES)
def test_placements_chain_in_any_grouping(one, two, three):
    close(one.then(two).then(three), one.then(two.then(three)))


@given(st.tuples(NUMBERS, NUMBERS), YAWS)
def test_turning_back_undoes_a_turn(vector, yaw):
    assert turned(turned(vector, yaw), -yaw) == pytest.approx(vector, abs=1e-9)
