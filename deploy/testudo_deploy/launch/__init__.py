"""Processes of a fleet on this machine: plan, topics, start, lock-step, run folder.

In: a fleet file.
Out: running nodes and a recorded run.
"""
