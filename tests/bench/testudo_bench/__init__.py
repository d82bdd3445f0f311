"""Benchmarks, studies and the fault matrix; never installed on a robot.

In: the options of `testudo bench NAME`.
Out: a `BenchResult`: a table and JSON.
"""
