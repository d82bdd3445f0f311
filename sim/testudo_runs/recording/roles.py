"""The roles that a series can have, and the standard message in which each is kept.

A recording knows a robot by roles, not by topics: where it was seen, what it was told, what its motors did. Imported
runs keep each role on one topic, ``/<robot>/<topic>``.
"""

from __future__ import annotations

from dataclasses import dataclass

_POSE = ("x", "y", "z", "qx", "qy", "qz", "qw")
_TWIST = ("vx", "vy", "vz", "wx", "wy", "wz")


@dataclass(frozen=True)
class Role:
    """What a series means."""

    name: str
    topic: str
    """Last part of its topic in an imported run."""
    type: str
    """Its message."""
    channels: tuple[str, ...]
    units: tuple[str, ...]
    paths: tuple[str, ...]
    """Where each channel stands in the message."""
    sense: str
    """In words, with frames."""


def _paths(base: str, names: str) -> tuple[str, ...]:
    return tuple(f"{base}.{name}" for name in names.split())


def _body(pose: str, twist: str) -> tuple[str, ...]:
    return (*_pose(pose), *_twist(twist))


def _pose(base: str) -> tuple[str, ...]:
    return (*_paths(f"{base}.position", "x y z"), *_paths(f"{base}.orientation", "x y z w"))


def _twist(base: str) -> tuple[str, ...]:
    return (*_paths(f"{base}.linear", "x y z"), *_paths(f"{base}.angular", "x y z"))


_M, _R, _V, _W = ("m",) * 3, ("1",) * 4, ("m/s",) * 3, ("rad/s",) * 3

ROLES = {
    role.name: role
    for role in (
        Role(
            "pose",
            "pose",
            "geometry_msgs/msg/PoseStamped",
            _POSE,
            _M + _R,
            _pose("pose"),
            "where the robot was seen from outside, in the world",
        ),
        Role(
            "odometry",
            "odom",
            "nav_msgs/msg/Odometry",
            (*_POSE, *_TWIST),
            _M + _R + _V + _W,
            _body("pose.pose", "twist.twist"),
            "what the robot believed: pose in the world, velocity and rates in its body (REP-105)",
        ),
        Role(
            "command",
            "cmd_vel",
            "geometry_msgs/msg/TwistStamped",
            _TWIST,
            _V + _W,
            _twist("twist"),
            "velocity that the robot was told, in its body unless the frame is world",
        ),
        Role(
            "motors",
            "motors",
            "sensor_msgs/msg/JointState",
            ("m1", "m2", "m3", "m4"),
            ("N",) * 4,
            tuple(f"effort[{k}]" for k in range(4)),
            "thrust of each rotor that was asked for, up along the body",
        ),
        Role(
            "imu",
            "imu",
            "sensor_msgs/msg/Imu",
            ("ax", "ay", "az", "wx", "wy", "wz"),
            ("m/s^2",) * 3 + _W,
            (*_paths("linear_acceleration", "x y z"), *_paths("angular_velocity", "x y z")),
            "specific force and rates in the body: at rest on the floor az is +9.81",
        ),
        Role(
            "battery", "battery", "sensor_msgs/msg/BatteryState", ("voltage",), ("V",), ("voltage",), "battery voltage"
        ),
        Role(
            "setpoint",
            "setpoint",
            "nav_msgs/msg/Odometry",
            (*_POSE, *_TWIST),
            _M + _R + _V + _W,
            _body("pose.pose", "twist.twist"),
            "pose and velocity that the robot was to have, pose in the world, velocity in the world",
        ),
    )
}
"""By name."""
