"""Calibration of emulated robots whose parameters are hidden.

In: options of `testudo bench calibrate`. Out: a `BenchResult` with the errors of each parameter.
"""
