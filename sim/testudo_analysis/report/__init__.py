"""Results of training, evaluation, export and replay, with their checks.

In: results of training, evaluation, export and replay, and a recorded run.
Out: verdicts, and a summary in JSON.
"""
