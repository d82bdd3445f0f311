"""The fleet, observer and faulty policies that fault cases run with.

In: a fault case.
Out: what was observed.
"""
