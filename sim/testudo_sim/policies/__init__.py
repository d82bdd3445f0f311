"""Hand-written policies that stand beside trained ones.

In: a robot and its goal.
Out: a policy file.
"""
