"""Report of a run.

In: results of training, evaluation, export and replay, and a recorded run.
Out: plots, one self-contained HTML page, and a summary in JSON.
"""
