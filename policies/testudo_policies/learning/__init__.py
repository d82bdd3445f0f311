"""Learning: PPO, rollouts, training runs and their folders.

In: an environment and a configuration.
Out: trained parameters and checkpoints.
"""
