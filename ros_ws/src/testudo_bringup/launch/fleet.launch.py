"""Starts a whole fleet on this computer: `ros2 launch testudo_bringup fleet.launch.py fleet:=fleet.yaml`."""

from launch import LaunchDescription

from testudo_bringup.launching import arguments, description


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and nodes."""
    return description(__file__, arguments(robot=False))
