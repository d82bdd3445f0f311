"""Shared by the launch files.

In: a fleet file and launch arguments.
Out: nodes of `launch`.
"""
