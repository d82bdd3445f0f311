"""Reads bag files of rosbag2, whole or damaged.

In: MCAP and SQLite files, packed or not.
Out: serialised messages with their types and definitions; numbers by path.
"""
