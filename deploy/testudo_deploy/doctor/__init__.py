"""Checks of a machine and of a fleet, before and while it drives: one finding each, with its remedy.

In: facts of this machine, of a fleet file, and of the topics that a listener hears.
Out: a `Finding` for each check.
"""
