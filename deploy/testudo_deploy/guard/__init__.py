"""The guard between a robot's policy and its actuators.

In: commands of the policy, emergency stops.
Out: commands that may act, or a brake.
"""
