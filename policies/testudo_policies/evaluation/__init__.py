"""Evaluation of a policy on held-out episodes.

In: a policy file or a checkpoint.
Out: success, contacts, separations, interventions.
"""
