import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_hardware.links.wire import (
    CommandReading,
    OdometryReading,
    WireError,
    body_forward_command,
    fill_command,
    fill_odometry,
    read_command,
    read_odometry,
    read_tilt,
    world_command,
)
from testudo_hardware.spec import load_robot

GROUND, DRONE, BASE = load_robot("gritsbot_x"), load_robot("crazyflie_2x"), load_robot("robomaster_s1")


def vector():
    return SimpleNamespace(x=0.0, y=0.0, z=0.0)


def header():
    return SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0), frame_id="")


def twist():
    return SimpleNamespace(linear=vector(), angular=vector())


def odometry():
    orientation = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=1.0)
    pose = SimpleNamespace(position=vector(), orientation=orientation)
    return SimpleNamespace(
        header=header(),
        child_frame_id="",
        pose=SimpleNamespace(pose=pose),
        twist=SimpleNamespace(twist=twist()),
    )


def command():
    return SimpleNamespace(header=header(), twist=twist())


@pytest.mark.parametrize("yaw", [0.0, math.pi / 2, -math.pi / 2, 3.0, -3.1])
@pytest.mark.parametrize(
    ("spec", "position", "velocity"),
    [
        (GROUND, (1.0, -2.0), (0.2, -0.7)),
        (DRONE, (1.0, -2.0, 0.5), (0.3, -0.1, 0.2)),
        (BASE, (1.0, -2.0), (0.3, -0.1)),
    ],
)
def test_odometry_comes_back(spec, position, velocity, yaw):
    sent = OdometryReading(12.345678901, position, yaw, velocity)
    got = read_odometry(fill_odometry(odometry(), "r0", spec, sent), "r0", spec)
    assert got.stamp_s == pytest.approx(sent.stamp_s, abs=1e-9)
    assert got.position_world == position
    assert got.yaw == pytest.approx(yaw)
    assert got.velocity == pytest.approx(velocity)


def test_a_quarter_turn_left_faces_y_with_quaternion_xyzw():
    message = fill_odometry(odometry(), "r0", GROUND, OdometryReading(0.0, (0.0, 0.0), math.pi / 2, (0.2, 0.5)))
    turn = message.pose.pose.orientation
    half = math.sqrt(0.5)
    assert (turn.x, turn.y, turn.z, turn.w) == pytest.approx((0.0, 0.0, half, half))
    # the twist stands in the body: forward stays forward
    assert (message.twist.twist.linear.x, message.twist.twist.angular.z) == (0.2, 0.5)
    assert (message.header.frame_id, message.child_frame_id) == ("world", "r0/base_link")


def test_a_drone_that_faces_y_and_flies_along_y_flies_forward_in_its_body():
    message = fill_odometry(
        odometry(), "r0", DRONE, OdometryReading(0.0, (0.0, 0.0, 1.0), math.pi / 2, (0.0, 0.4, 0.1))
    )
    linear = message.twist.twist.linear
    assert (linear.x, linear.y, linear.z) == pytest.approx((0.4, 0.0, 0.1))


def test_commands_come_back_in_their_frames():
    ground = fill_command(command(), "r0", GROUND, CommandReading(3.5, (0.1, -0.2)))
    assert (ground.header.frame_id, ground.twist.linear.x) == ("r0/base_link", 0.1)
    assert (ground.twist.linear.y, ground.twist.angular.z) == (0.0, -0.2)
    assert read_command(ground, "r0", GROUND) == CommandReading(3.5, (0.1, -0.2))
    drone = fill_command(command(), "r0", DRONE, CommandReading(3.5, (0.1, -0.2, 0.3)))
    assert drone.header.frame_id == "world"
    assert read_command(drone, "r0", DRONE) == CommandReading(3.5, (0.1, -0.2, 0.3))


def test_a_base_that_faces_y_is_told_to_drive_along_y_by_a_twist_forward():
    """A base takes a body twist as every ground robot does, its model a velocity in the world."""
    travels = body_forward_command(BASE, (0.0, 0.4), math.pi / 2)
    message = fill_command(command(), "r0", BASE, CommandReading(3.5, travels))
    assert message.header.frame_id == "r0/base_link"
    assert (message.twist.linear.x, message.twist.linear.y) == pytest.approx((0.4, 0.0))
    assert message.twist.angular.z == 0.0
    got = read_command(message, "r0", BASE)
    assert world_command(BASE, got.command, math.pi / 2) == pytest.approx((0.0, 0.4))
    # facing the other way, the very same message drives it along -y
    assert world_command(BASE, got.command, -math.pi / 2) == pytest.approx((0.0, -0.4))


@pytest.mark.parametrize("spec", [GROUND, DRONE])
def test_no_other_command_is_turned_on_its_way(spec):
    values = (0.1, -0.2, 0.3)[: spec.dimension]
    assert body_forward_command(spec, values, 1.0) == values
    assert world_command(spec, values, 1.0) == values


def test_a_base_that_faces_y_and_drives_along_y_drives_forward_in_its_body():
    message = fill_odometry(odometry(), "r0", BASE, OdometryReading(0.0, (0.0, 0.0), math.pi / 2, (0.0, 0.4)))
    linear = message.twist.twist.linear
    assert (linear.x, linear.y, linear.z) == pytest.approx((0.4, 0.0, 0.0))


def test_another_frame_is_refused():
    ground = fill_command(command(), "r0", GROUND, CommandReading(0.0, (0.1, 0.2)))
    ground.header.frame_id = "world"
    with pytest.raises(WireError, match="found frame 'world', expected 'r0/base_link'"):
        read_command(ground, "r0", GROUND)
    message = fill_odometry(odometry(), "r1", GROUND, OdometryReading(0.0, (0, 0), 0.0, (0, 0)))
    with pytest.raises(WireError, match="found frames"):
        read_odometry(message, "r0", GROUND)


@pytest.mark.parametrize("w", [math.nan, 0.0, 0.5, 1.01])
def test_a_quaternion_that_is_none_is_refused(w):
    message = fill_odometry(odometry(), "r0", GROUND, OdometryReading(0.0, (0, 0), 0.0, (0, 0)))
    message.pose.pose.orientation.w = w
    with pytest.raises(WireError, match="quaternion norm"):
        read_odometry(message, "r0", GROUND)


def test_numbers_that_are_not_finite_pass_for_the_control_loop_to_refuse():
    reading = OdometryReading(0.0, (math.nan, 0.0), 0.0, (0.0, math.inf))
    got = read_odometry(fill_odometry(odometry(), "r0", GROUND, reading), "r0", GROUND)
    assert math.isnan(got.position_world[0])
    assert got.velocity[1] == math.inf


@given(st.floats(-math.pi, math.pi), st.floats(0, math.pi))
def test_the_tilt_is_the_angle_of_the_bodys_axis_with_the_vertical(yaw, tilt):
    """A turn about z, then one by `tilt` about x: q = q_z q_x."""
    (sz, cz), (sx, cx) = ((math.sin(angle / 2), math.cos(angle / 2)) for angle in (yaw, tilt))
    quaternion = SimpleNamespace(x=cz * sx, y=sz * sx, z=sz * cx, w=cz * cx)
    assert read_tilt(quaternion) == pytest.approx(tilt, abs=1e-6)
