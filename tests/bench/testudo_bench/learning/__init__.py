"""The shield in learning, fine-tuning from recorded runs, tasks that can tell, exact games, and JaxMARL's learner.

In: options of `testudo bench learning`, `improve`, `screen`, `games` and `mpe`.
Out: a `BenchResult`.
"""
