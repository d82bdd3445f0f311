"""Speed of simulation, learning, import, replay and of a fleet over ROS 2.

In: options of `testudo bench`.
Out: a `BenchResult`.
"""
