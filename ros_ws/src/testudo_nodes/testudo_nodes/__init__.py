"""Thin ROS 2 nodes around the robot side and the plant."""
