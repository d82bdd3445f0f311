"""Online scoring of the task of a scenario on a running fleet.

In: measured poses of robots and bodies, goals.
Out: rewards and success as in training.
"""
