"""Faults injected over DDS into a fleet on the MuJoCo plant.

In: options of `testudo bench` faults, kills and lossy.
Out: a `BenchResult` with the reaction and its time.
"""
