"""The benchmark of one control tick on a robot's own processor.

In: a policy file.
Out: a `BenchResult`.
"""
