"""Single changes to a recorded run, and whether `testudo replay` reports them.

In: a run folder, a seed.
Out: a `BenchResult` with one row for each kind of change.
"""
