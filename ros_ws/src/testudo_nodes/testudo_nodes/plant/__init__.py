"""The node that simulates the robots, and the lock-step server.

In: commands to robots.
Out: odometry, vehicle states and events.
"""
