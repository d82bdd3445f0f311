"""CRTP services of the simulated Crazyflie: log, parameters, memory, platform.

In: CRTP packets.
Out: CRTP packets.
"""
