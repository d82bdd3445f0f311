"""The control tick of a team in many worlds: perceive, shield, announce, move.

In: nominal velocities (D, N, E) [m/s].
Out: shielded commands, states and messages.
"""
