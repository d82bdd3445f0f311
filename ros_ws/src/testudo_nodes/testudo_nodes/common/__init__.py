"""Shared by all nodes.

In: a node.
Out: its clock and timers, quality of service, messages, parameters and main loop.
"""
