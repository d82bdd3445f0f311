"""Starts the nodes of the station: `ros2 launch testudo_bringup station.launch.py fleet:=fleet.yaml backend:=hw`."""

from launch import LaunchDescription

from testudo_bringup.launching import arguments, description


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and nodes."""
    return description(__file__, arguments(robot=False), station=True)
