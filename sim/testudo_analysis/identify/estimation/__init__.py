"""Estimation that both kinds of robot share: fit, uncertainty, windows.

In: windows of a recording.
Out: estimates with uncertainty.
"""
