"""Control of one robot: validated pose, predicted state, tracked peers, one shielded command a tick.

In: odometry and peer messages.
Out: a command and a record.
"""
