"""Scenarios, one file each.

In: robot file, team size, shield margins.
Out: starts, task signals, rewards and success.
"""
