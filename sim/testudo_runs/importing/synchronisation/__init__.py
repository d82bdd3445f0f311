"""Clock offsets between bags, and matching of motions.

In: series on different clocks.
Out: offsets and drifts [s].
"""
