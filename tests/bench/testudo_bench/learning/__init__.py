"""Effect of the shield on learning, its cost, and fine-tuning from recorded runs.

In: options of `testudo bench learning` and `testudo bench improve`.
Out: a `BenchResult`.
"""
