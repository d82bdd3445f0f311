"""The nodes and verbs of the operator station.

In: status messages of robots and guards.
Out: requests, markers, recordings, scores.
"""
