"""Recorded runs: read, imported, aligned. NumPy only, so that it also works on a robot's computer.

In: run folders, bags and logs of others.
Out: typed tracks of a team.
"""
