"""The node that stands in for the robots, and the lock-step server.

In: commands of robots.
Out: odometry and events.
"""
