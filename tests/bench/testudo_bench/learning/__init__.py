"""Effect of the shield on learning, its cost, fine-tuning from recorded runs, and exact matrix games.

In: options of `testudo bench learning`, `testudo bench improve` and `testudo bench games`.
Out: a `BenchResult`.
"""
