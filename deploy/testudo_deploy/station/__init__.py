"""The logic of the operator station: bring-up, status and emergency stop of a fleet; pure.

In: status messages of robots and guards.
Out: requests to robots, status and confirmations for operators.
"""
