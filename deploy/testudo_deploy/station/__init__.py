"""The operator station: bring-up, status, emergency stop.

In: status of robots and guards.
Out: requests to robots.
"""
