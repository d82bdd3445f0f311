"""Accuracy of identification and of the physics tiers.

In: options of `testudo bench`.
Out: a `BenchResult`.
"""
