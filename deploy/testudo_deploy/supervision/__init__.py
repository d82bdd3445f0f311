"""Supervision of one robot: modes, arming checks, flight phases.

In: requests, alarms, guard status.
Out: the mode, and whether it may drive.
"""
