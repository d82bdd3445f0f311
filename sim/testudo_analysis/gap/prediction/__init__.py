"""Predictions of a recorded run by the model, and their errors.

In: a recording and a robot model.
Out: errors by start, channel and horizon.
"""
