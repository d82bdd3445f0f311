"""The fleet file: robots, links, pose sources, policy groups.

In: fleet.yaml, Crazyswarm2's files.
Out: a checked `Fleet`.
"""
