"""Training with brax's PPO and SAC on Testudo's environments and networks.

In: a training configuration.
Out: a training run in the same format as `learning` writes.
"""
