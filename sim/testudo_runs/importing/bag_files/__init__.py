"""Files of rosbag2 bags of others, whole or damaged.

In: MCAP and SQLite files.
Out: messages, and series decoded from them.
"""
