"""The shield: projection, stop-tube check and reservations; one body for NumPy and JAX.

In: nominal velocity, predicted state, peers and their reservations, arena.
Out: the command that may be sent, its status, and the reserved space.
"""
