"""The cases of the fault matrix, by what fails.

In: a fleet that drives.
Out: time to the brake, and reason.
"""
