"""The operator station: status of robots, bring-up and emergency stop of a fleet, and markers for viewers.

In: status messages, tick records, peer messages, arena.
Out: requests to robots, status values, markers.
"""
