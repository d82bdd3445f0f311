"""Flight of the simulated Crazyflie: commanders, supervisor, vehicle.

In: set-points and requests.
Out: pose, battery, state of flight.
"""
