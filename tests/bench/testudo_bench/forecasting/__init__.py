"""Forecasts of plants with hidden parameters, and whether they come true.

In: a policy file, a number of plants.
Out: a `BenchResult` with coverage and CRPS of each kind of robot file, and the rank correlation of policies.
"""
