"""Estimation shared by ground robots and drones: windows, rollout, fit, uncertainty.

In: windows of a recording.
Out: estimates with uncertainty.
"""
