"""Thin ROS 2 nodes around the robot side, the station and the plant."""
