"""The plant: a C MuJoCo world with drivers, sensors, batteries and a contact monitor, in place of robots.

In: commands, flight requests and injected faults.
Out: odometry, driver states, contacts.
"""
