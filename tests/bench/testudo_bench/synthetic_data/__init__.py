"""Synthetic runs of robots with known parameters, for studies and tests.

In: a robot file and true parameters.
Out: recordings.
"""
