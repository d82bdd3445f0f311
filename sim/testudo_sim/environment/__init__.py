"""A scenario as a learning environment.

In: actions at decisions.
Out: observations, rewards, terminated, truncated.
"""
