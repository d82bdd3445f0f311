"""Monitors of a robot: brakes, actuation, diagnostics.

In: sent commands and measured poses.
Out: alarms with a brake reason.
"""
