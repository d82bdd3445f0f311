"""Monitors of a robot: brakes, actuation, climb, diagnostics.

In: commands sent and poses seen.
Out: alarms with a brake reason.
"""
