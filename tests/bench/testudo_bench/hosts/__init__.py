"""Several computers on one: a fleet in network namespaces with clocks of their own, and shaped links between them.

In: a fleet, the links, the clocks and the way of discovery. Out: contacts, arrivals and what the network did.
"""
