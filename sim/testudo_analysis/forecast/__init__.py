"""Forecasts of the next run, and their scores.

In: recorded runs or a fleet file, a policy file, robot files.
Out: intervals of what the next run will show, a ledger of all forecasts, and their scores against recorded runs.
"""
