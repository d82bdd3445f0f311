"""Offline datasets.

In: recorded runs.
Out: transitions with the scenario's rewards, a composition profile and a dataset card.
"""
