"""Recordings: series of numbers by robot and role, from and to the format of run folders.

In: a run folder, or series.
Out: series, statistics, or a run folder.
"""
