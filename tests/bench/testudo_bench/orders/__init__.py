"""A fleet that takes orders while its robots join and leave, in one process: 0 contacts, each goal reached or refused.

In: options of `testudo bench orders`.
Out: a `BenchResult` with one row for each run.
"""
