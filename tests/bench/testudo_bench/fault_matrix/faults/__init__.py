"""The faults of the fault matrix.

In: a running fleet.
Out: time to the brake command, and reason.
"""
