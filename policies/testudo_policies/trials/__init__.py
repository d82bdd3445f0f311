"""Trials of a policy on a fleet, each from its own start, beside the same starts in simulation.

In: a fleet file, a seed, a number of trials.
Out: one recorded run for each trial, and the table of simulation against the runs with intervals.
"""
