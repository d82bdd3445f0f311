"""Brax's own trainers on our environments and networks.

In: a training configuration.
Out: a training run as ours.
"""
