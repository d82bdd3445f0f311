"""Sweeps over training options.

In: a training configuration and a search space.
Out: a folder with every trial as a training run, a table, plots, and the best configuration.
"""
