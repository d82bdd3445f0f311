"""Starts guard and policy of one robot: `ros2 launch testudo_bringup robot.launch.py robot:=tb1 fleet:=fleet.yaml`.

The station starts the other nodes with the same fleet file, see `station.launch.py`.
"""

from launch import LaunchDescription

from testudo_bringup.launching import arguments, description


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and nodes."""
    return description(__file__, arguments(plant=False))
