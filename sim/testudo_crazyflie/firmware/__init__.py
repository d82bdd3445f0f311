"""Firmware of the simulated Crazyflie: CRTP services, commanders, supervisor and flight.

In: CRTP packets, time.
Out: CRTP packets, pose, battery.
"""
