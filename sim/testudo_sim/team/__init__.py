"""The control tick of a team in many worlds: measure, shield, send messages, move.

In: nominal velocities (D, N, E) [m/s].
Out: shielded commands, states and messages.
"""
