"""Reads bags of rosbag2, whole or damaged, and of ROS 1.

In: MCAP and SQLite files, packed or not.
Out: serialised messages with their types and definitions; numbers by path.
"""
