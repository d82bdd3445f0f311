"""The gap between a robot model and recorded motion: size, place, cause, and effect on the shield's margins.

In: a team recording and robot files.
Out: a gap report, its sentences and tables for the terminal.
"""
