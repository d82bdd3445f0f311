"""The nodes and verbs of the operator station.

In: what robots say of themselves.
Out: requests, markers, recordings, scores.
"""
