"""Identification of quadrotors from motor signals.

In: logged flights.
Out: parameters with intervals.
"""
