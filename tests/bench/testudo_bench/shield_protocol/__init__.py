"""The shield's test protocol and its baselines.

In: options of `testudo bench shield`.
Out: a `BenchResult` with one row for each cell.
"""
