"""MuJoCo worlds built from robot files.

In: robots of several types, an arena, boxes; commands at every physics step.
Out: one model; poses, contacts and distances.
"""
