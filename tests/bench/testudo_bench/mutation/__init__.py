"""Mutation check: whether the tests notice small faults in shield, guard, supervisor, contract and replay.

In: the faults of the files `*.toml`, one file for each group, and a git checkout with its environment.
Out: a `BenchResult` with the verdict on each fault: whether its test fails.
"""
