"""Residual motion beside a fitted model, as a random process, and the coverage of sampled futures on held-out data.

In: windows of a run with predicted and recorded motion.
Out: a `MotionNoise`, the share of recorded motions inside the sampled bands.
"""
