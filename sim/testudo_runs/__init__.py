"""Reads, imports and aligns recorded runs, with NumPy only, so that it also works on the computer of a robot.

In: run folders, and bags and logs from other software.
Out: typed time series of a team.
"""
