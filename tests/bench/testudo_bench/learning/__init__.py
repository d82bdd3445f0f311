"""The shield in learning and its cost, fine-tuning from recorded runs, tasks that can tell, and exact matrix games.

In: options of `testudo bench learning`, `testudo bench improve`, `testudo bench screen` and `testudo bench games`.
Out: a `BenchResult`.
"""
