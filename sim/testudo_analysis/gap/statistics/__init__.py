"""Statistics of prediction errors: intervals, causes, places, margins.

In: prediction errors.
Out: figures with confidence intervals.
"""
