"""Identification of robots that follow velocity commands.

In: a recording.
Out: parameters with intervals.
"""
